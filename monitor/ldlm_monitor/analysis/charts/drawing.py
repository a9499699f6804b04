"""A chart as SVG that is as wide as its place, for pages; charts as a file.

Curves stand in a drawing of their own that is stretched, so letters stay readable at any width;
they are placed by percent. Everything that is text is escaped. matplotlib would write SVG too,
but of one fixed width and with colours that do not follow a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from ldlm_monitor.analysis.charts.chart import Axis, Figure, Line, axis_of, stretches
from ldlm_monitor.text.sanitize import plain, shorten_path

HEIGHT = 216
"""Pixels; four charts fit a page of a laptop's screen."""
_TOP = 30
_BOTTOM = 24
LEGEND = 44
"""Characters of all names together, so that they fit on a phone."""
APART = 0.02
"""Of the width: values that are not finite and closer together are one stretch."""
_SIZE = 1000
"""Units of the inner drawing, so that one decimal is finer than a pixel."""
GUTTER = 46
"""Pixels that its place must leave free at the left, for what the y axis says."""

STYLE = (files(__package__) / "chart.css").read_text("utf-8")


def svg(chart: Figure, *, y: int = 0, legend: int = LEGEND) -> str:
    """The chart as an `<svg>` element of `HEIGHT` pixels, `y` pixels down.

    At its left `GUTTER` pixels must be free. `legend`: characters that all names may have.
    """
    return "".join(_parts(chart, y, legend))


def _parts(chart: Figure, y: int, legend: int) -> Iterator[str]:
    xs = axis_of((x for line in chart.lines for x in (*line.xs, *line.nonfinite)), straight=True)
    ys = axis_of(value for line in chart.lines for value in (*line.lows, *line.highs))
    title = plain(chart.title) + (f" [{plain(chart.unit)}]" if chart.unit else "")
    place = f' y="{y}"' if y else ""
    yield (
        f'<svg class="chart"{place} width="100%" height="{HEIGHT}" overflow="visible" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f'<text class="title" x="-{GUTTER}" y="16">{escape(title)}</text>'
        f'<text x="100%" y="16" text-anchor="end">{escape(chart.x_title)} →</text>'
    )
    yield from _legend(chart, legend)
    top = _top(chart)
    tall = HEIGHT - _BOTTOM - top
    for tick, label in zip(ys.ticks, _labels(ys.ticks), strict=True):
        down = round(top + tall * (1 - ys.share(tick)) + 4)
        yield f'<text x="-6" y="{down}" text-anchor="end">{escape(label)}</text>'
    yield (
        f'<svg y="{top}" width="100%" height="{tall}" viewBox="0 0 {_SIZE} {_SIZE}" '
        'preserveAspectRatio="none" overflow="hidden">'
    )
    for tick in ys.ticks:
        level = _round(_SIZE * (1 - ys.share(tick)))
        yield _stroke("grid", f"M0 {level}H{_SIZE}")
    for line in chart.lines:
        yield from _line(line, line.color % 5 + 1, xs, ys)
    for mark in filter(lambda mark: xs.holds(mark.x), chart.marks):
        at = _round(_SIZE * xs.share(mark.x))
        name = "bad" if mark.kind == "incident" else "resume"
        yield _stroke(name, f"M{at} 0V{_SIZE}", plain(mark.text))
    yield "</svg>"
    yield from _letters(chart, xs)
    yield "</svg>"


def _top(chart: Figure) -> int:
    """Where the curves begin: lower where there is a legend."""
    return _TOP + 16 if len(chart.lines) > 1 else _TOP


def _legend(chart: Figure, letters: int) -> Iterator[str]:
    """The names of several lines, below the title; of a long name its end, which differs most."""
    if len(chart.lines) < 2:
        return
    limit = max(letters // len(chart.lines), 6)
    names = [(line.color, shorten_path(plain(line.name), limit)) for line in chart.lines]
    spans = "\u2003".join(
        f'<tspan style="fill:var(--c{color % 5 + 1})">━ {escape(name)}</tspan>'
        for color, name in names
    )
    yield f'<text x="-{GUTTER}" y="33">{spans}</text>'


def _line(line: Line, color: int, xs: Axis, ys: Axis) -> Iterator[str]:
    for first, stop in _runs(line.means):
        places = range(first, stop)
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
    for stretch in stretches(line.nonfinite, APART * (xs.high - xs.low)):
        left, right = (_round(_SIZE * xs.share(x)) for x in (stretch.first, stretch.last))
        if stretch.count > 1:
            yield f'<path class="bad-band" d="M{left} 0H{right}V{_SIZE}H{left}Z"/>'
        yield _stroke("bad", f"M{left} 0V{_SIZE}", str(stretch))


def _letters(chart: Figure, xs: Axis) -> Iterator[str]:
    for tick, label in zip(xs.ticks, _labels(xs.ticks), strict=True):
        share = xs.share(tick)
        anchor = "start" if share < 0.05 else "end" if share > 0.95 else "middle"
        across = _round(100 * share)
        yield (
            f'<text x="{across}%" y="{HEIGHT - 8}" text-anchor="{anchor}">{escape(label)}</text>'
        )
    places = [x for line in chart.lines for x in line.nonfinite]
    if places:
        share = xs.share(places[0])
        anchor = "end" if share > 0.6 else "start"
        more = f" ({len(places)} times)" if len(places) > 1 else ""
        if len(chart.lines) > 1:
            names = (plain(line.name, LEGEND) for line in chart.lines if line.nonfinite)
            more += f": {', '.join(names)}"
        yield (
            f'<text class="bad-text halo" x="{_round(100 * share)}%" y="{_top(chart) + 12}" '
            f'text-anchor="{anchor}" dx="{-4 if anchor == "end" else 4}">'
            f"not finite{escape(more)}</text>"
        )


def _runs(values: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Where consecutive values are finite: first, and behind the last."""
    first = None
    for index, value in enumerate(values):
        if math.isfinite(value):
            first = index if first is None else first
        elif first is not None:
            yield first, index
            first = None
    if first is not None:
        yield first, len(values)


def _stroke(name: str, path: str, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<path class="{name}" vector-effect="non-scaling-stroke" d="{path}">{inner}</path>'


def _round(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _labels(ticks: Sequence[float]) -> list[str]:
    """As short as keeps the labels different."""
    for digits in range(4, 16):
        labels = [_tick(tick, digits) for tick in ticks]
        if len(set(labels)) == len(labels):
            break
    return labels


def _tick(value: float, digits: int = 4) -> str:
    """A short form: 12000 as 12k, 1e-5 as 1e-05."""
    if value and abs(value) >= 1e15:
        return f"{value:.0e}"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 10 or (abs(value) >= size and value % size == 0):
            return f"{value / size:.{digits}g}{letter}"
    if 0 < abs(value) < 0.01:
        shown, _, power = f"{value:.{digits - 2}e}".partition("e")
        return f"{float(shown):g}e{int(power)}"
    return f"{value:.{digits}g}"


WIDTH = 860
"""Pixels; a page in portrait at 96 dpi, with room for the axis."""
_MARGIN = 16
_LEGEND = 110
"""Characters of all names, at about seven pixels each in `WIDTH`."""


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
