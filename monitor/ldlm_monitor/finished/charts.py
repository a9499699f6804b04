"""Charts of quantities over steps, as SVG: for pages as wide as their place, and as a file.

Curves are in an inner SVG that is stretched to any width; text is outside of it, placed by
percent, so that letters keep their shape. All text is escaped. matplotlib would write SVG too,
but of one fixed width and with colours that do not follow a dark page.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from typing import Literal

from ldlm_monitor.base.text.format import number
from ldlm_monitor.base.text.sanitize import plain, shorten_path
from ldlm_monitor.base.text.ticks import log_ticks, tick_labels, ticks

LOG_FROM = 10.0
"""Greatest / least value that makes an axis logarithmic: a choice; more flattens, less distorts."""
TICKS = 5
"""Labels of an axis, about: a choice; more crowd `HEIGHT` pixels, fewer leave values unread."""
GREATEST = 1e300
"""Ends of an axis are cut to +/- this: sums and differences of two ends are floats (to 1.8e308)."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`; `ticks` are the labelled values between them."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """The place of a value: 0 at `low` or below, 1 at `high` or above."""
        if self.logarithmic:
            # Logarithms are subtracted because the quotient may overflow a float.
            least = math.log(self.low)
            share = (math.log(max(value, self.low)) - least) / (math.log(self.high) - least)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)


def axis_of(values: Iterable[float], *, straight: bool = False) -> Axis:
    """An axis for the finite values. `straight`: steps or times, which are never logarithmic."""
    known = sorted(max(-GREATEST, min(value, GREATEST)) for value in values if math.isfinite(value))
    low, high = (known[0], known[-1]) if known else (0.0, 1.0)
    if straight:
        low, high = (low, high) if high > low else (low - 1, high + 1)
        places = tuple(ticks(low, high, TICKS))
        # Steps are whole numbers, so fractional ticks are left out unless no tick would remain.
        return Axis(low, high, False, tuple(filter(float.is_integer, places)) or places)
    if low > 0 and high / low >= LOG_FROM:
        low, high = low * 0.9, high * 1.1
        powers = log_ticks(math.log10(low), math.log10(high), TICKS)
        return Axis(low, high, True, tuple(10.0**power for power in powers))
    # Choices: margins keep curves off the frame; a `low` below 30 % of `high` is 0, to show ratios.
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = (0.0 if 0 <= low < 0.3 * high else low - room), high + room
    # A tick is a sum, and may be rounded beyond the end.
    return Axis(low, high, False, tuple(max(low, min(at, high)) for at in ticks(low, high, TICKS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One quantity of one run in buckets: first x, mean, least and greatest value (NaN: none).

    `nonfinite`: the x of NaN and infinite values. `color`: the number of the line's colour, from 0.
    """

    name: str
    xs: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    nonfinite: Sequence[float] = ()
    color: int = 0


@dataclass(frozen=True, slots=True)
class FigureMark:
    """A vertical line at `x`; `text` is its tooltip, `tone` its class in chart.css."""

    x: float
    text: str
    tone: Literal["bad", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Lines and marks over the same steps, or over what `along` names.

    `unit` (empty: none) is written beside the title.
    """

    title: str
    lines: Sequence[Line]
    unit: str = ""
    marks: Sequence[FigureMark] = ()
    along: str = "step"


HEIGHT = 216
"""Pixels of a chart: a choice; four fit on a laptop's screen, and lower ones flatten curves."""
_TOP = 30  # pixels above the curves: a choice; less touches the title, more is empty
_BOTTOM = 24  # pixels below the curves: a choice; less cuts the labels, more is empty
LEGEND = 44
"""Characters of all names of a legend together: a choice; more overflow phones, fewer cut names."""
APART = 0.02
"""Share of the width; closer non-finite values share a mark. A choice: less blurs, more merges."""
_SIZE = 1000
"""Units of the inner drawing across and down: with one decimal, finer than a pixel."""
GUTTER = 46
"""Pixels that a page must leave free left of a chart: labels of the y axis of six digits fit."""
WIDTH = 860
"""Pixels of a file of charts: a choice; curves are about as wide as an A4 page (794 at 96 dpi)."""
_MARGIN = 16  # pixels around each chart: a choice; less lets titles touch, more is empty
_LEGEND = 110
"""Characters of all names of a legend in a file: at about seven pixels each, they fit `WIDTH`."""

STYLE = (files(__package__) / "chart.css").read_text("utf-8")  # a page has it once for all charts


def svg(chart: Figure, *, y: int = 0, legend: int = LEGEND) -> str:
    """The chart as an `<svg>` element of `HEIGHT` pixels, `y` pixels down.

    `GUTTER` pixels to its left must be free. `legend`: characters of all names together.
    """
    return "".join(_parts(chart, y, legend))


def _parts(chart: Figure, y: int, legend: int) -> Iterator[str]:
    xs = axis_of((x for line in chart.lines for x in (*line.xs, *line.nonfinite)), straight=True)
    ys = axis_of(value for line in chart.lines for value in (*line.lows, *line.highs))
    title = plain(chart.title) + (f" [{plain(chart.unit)}]" if chart.unit else "")
    yield (
        f'<svg class="chart" y="{y}" width="100%" height="{HEIGHT}" overflow="visible" role="img" '
        f'aria-label="{escape(_spoken(chart, title))}"><title>{escape(title)}</title>'
        f'<text class="title" x="-{GUTTER}" y="16">{escape(title)}</text>'
        f'<text x="100%" y="16" text-anchor="end">{escape(chart.along)} →</text>'
    )
    yield from _legend(chart, legend)
    top = _top(chart)
    tall = HEIGHT - _BOTTOM - top
    for tick, label in zip(ys.ticks, tick_labels(ys.ticks), strict=True):
        down = round(top + tall * (1 - ys.share(tick)) + 4)  # 4: half of a digit's height, pixels
        yield f'<text x="-6" y="{down}" text-anchor="end">{escape(label)}</text>'
    yield (
        f'<svg y="{top}" width="100%" height="{tall}" viewBox="0 0 {_SIZE} {_SIZE}" '
        'preserveAspectRatio="none" overflow="hidden">'
    )
    for tick in ys.ticks:
        yield _stroke("grid", f"M0 {_round(_SIZE * (1 - ys.share(tick)))}H{_SIZE}")
    for line in chart.lines:
        yield from _line(line, line.color % 5 + 1, xs, ys)  # five colours in chart.css
    for mark in (mark for mark in chart.marks if xs.low <= mark.x <= xs.high):
        at = _round(_SIZE * xs.share(mark.x))
        yield _stroke(mark.tone, f"M{at} 0V{_SIZE}", plain(mark.text))
    yield "</svg>"
    yield from _letters(chart, xs)
    yield "</svg>"


def _spoken(chart: Figure, title: str) -> str:
    """The chart in a sentence, for those who do not see it."""
    said = [f"{title}, by step"]
    for line in chart.lines:
        known = [
            (x, mean) for x, mean in zip(line.xs, line.means, strict=True) if math.isfinite(mean)
        ]
        name = f"{plain(line.name)} " if len(chart.lines) > 1 else ""
        if known:
            (first, start), (last, end) = known[0], known[-1]
            said.append(f"{name}from {number(start)} at {first:g} to {number(end)} at {last:g}")
        if line.nonfinite:
            said.append(f"{name}not finite at {line.nonfinite[0]:g}")
    return "; ".join([*said, *(f"{plain(mark.text)} at {mark.x:g}" for mark in chart.marks[-3:])])


def _top(chart: Figure) -> int:
    """Pixels above the curves: a legend takes a line of 16."""
    return _TOP + 16 if len(chart.lines) > 1 else _TOP


def _legend(chart: Figure, letters: int) -> Iterator[str]:
    """The names of several lines, below the title; long ones are cut at their start."""
    if len(chart.lines) < 2:
        return
    limit = max(letters // len(chart.lines), 6)  # characters; fewer identify no run
    spans = "\u2003".join(
        f'<tspan style="fill:var(--c{line.color % 5 + 1})">'
        f"━ {escape(shorten_path(plain(line.name), limit))}</tspan>"
        for line in chart.lines
    )
    yield f'<text x="-{GUTTER}" y="33">{spans}</text>'


def _line(line: Line, color: int, xs: Axis, ys: Axis) -> Iterator[str]:
    finite = (math.isfinite(mean) for mean in line.means)
    for is_drawn, group in groupby(enumerate(finite), key=itemgetter(1)):
        if not is_drawn:
            continue
        places = [index for index, _ in group]
        across = [_round(_SIZE * xs.share(line.xs[i])) for i in places]
        high, low, mean = (
            [_round(_SIZE * (1 - ys.share(column[i]))) for i in places]
            for column in (line.highs, line.lows, line.means)
        )
        upper = [f"{x} {y}" for x, y in zip(across, high, strict=True)]
        lower = [f"{x} {y}" for x, y in zip(across, low, strict=True)]
        if upper != lower:
            around = "L".join([*upper, *reversed(lower)])
            yield f'<path class="band" style="fill:var(--c{color})" d="M{around}Z"/>'
        points = [f"{x} {y}" for x, y in zip(across, mean, strict=True)]
        path = "M" + "L".join(points if len(points) > 1 else points * 2)
        yield (
            f'<path class="mean" style="stroke:var(--c{color})" stroke-linecap="round" '
            f'vector-effect="non-scaling-stroke" d="{path}"/>'
        )
    for bad in _together(line.nonfinite, APART * (xs.high - xs.low)):
        left, right = (_round(_SIZE * xs.share(x)) for x in (bad[0], bad[-1]))
        said = f"not finite at {bad[0]:g}"
        if len(bad) > 1:
            yield f'<path class="bad-band" d="M{left} 0H{right}V{_SIZE}H{left}Z"/>'
            said = f"not finite from {bad[0]:g} to {bad[-1]:g} ({len(bad)} times)"
        yield _stroke("bad", f"M{left} 0V{_SIZE}", said)


def _together(nonfinite: Sequence[float], reach: float) -> list[list[float]]:
    found: list[list[float]] = []
    for x in sorted(nonfinite):
        if found and x - found[-1][-1] <= reach:
            found[-1].append(x)
        else:
            found.append([x])
    return found


def _letters(chart: Figure, xs: Axis) -> Iterator[str]:
    for tick, label in zip(xs.ticks, tick_labels(xs.ticks), strict=True):
        share = xs.share(tick)
        # A label at an edge stays inside the drawing.
        anchor = "start" if share < 0.05 else "end" if share > 0.95 else "middle"
        across = _round(100 * share)
        yield (
            f'<text class="step" x="{across}%" y="{HEIGHT - 8}" text-anchor="{anchor}">'
            f"{escape(label)}</text>"
        )
    if bad := [
        mark.x for mark in chart.marks if mark.tone == "bad" and xs.low <= mark.x <= xs.high
    ]:
        yield _note(xs, bad[-1], f"incident at {bad[-1]:g}", _top(chart) + 28)
    places = [x for line in chart.lines for x in line.nonfinite]
    if places:
        more = f" ({len(places)} times)" if len(places) > 1 else ""
        if len(chart.lines) > 1:
            names = (plain(line.name, LEGEND) for line in chart.lines if line.nonfinite)
            more += f": {', '.join(names)}"
        yield _note(xs, places[0], f"not finite{more}", _top(chart) + 12)


def _note(xs: Axis, x: float, text: str, y: int) -> str:
    """A text beside `x`, on the side that has room for it."""
    share = xs.share(x)
    anchor, aside = ("end", -4) if share > 0.6 else ("start", 4)
    return (
        f'<text class="bad-text halo" data-x="{x:g}" x="{_round(100 * share)}%" y="{y}" '
        f'text-anchor="{anchor}" dx="{aside}">{escape(text)}</text>'
    )


def _stroke(name: str, path: str, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<path class="{name}" vector-effect="non-scaling-stroke" d="{path}">{inner}</path>'


def _round(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def page(charts: Sequence[Figure]) -> str:
    """One SVG document that any browser shows, light or dark."""
    height = len(charts) * (HEIGHT + _MARGIN) + _MARGIN
    inner = "".join(
        svg(chart, y=_MARGIN + index * (HEIGHT + _MARGIN), legend=_LEGEND)
        for index, chart in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="{WIDTH}" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}"><style>{STYLE}</style>'
        '<rect width="100%" height="100%" style="fill:var(--ground)"/>'
        f'<svg x="{_MARGIN + GUTTER}" width="{WIDTH - 2 * _MARGIN - GUTTER}" overflow="visible">'
        f"{inner}</svg></svg>\n"
    )
