"""A line chart of one or more curves: braille or ASCII, linear or logarithmic.

The least and the greatest value of each column are drawn, so that a spike shows at any zoom.
Values that are not finite are marks below the plot. The library plotext is not used: it removes
NaN (https://github.com/piccolomo/plotext/issues/114), and so joins the points beside a gap;
textual-plot draws no gap either, needs numpy, and has neither marks nor bucketed extremes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ldlm_monitor.base.names import SEVERITIES
from ldlm_monitor.base.snapshot import CurveView, RunView, Snapshot
from ldlm_monitor.base.text.ticks import LABEL_CELLS, log_ticks, tick_labels, ticks, time_ticks
from ldlm_monitor.screen.axis import COLUMNS, Along, label_along
from ldlm_monitor.screen.canvas import Canvas
from ldlm_monitor.screen.draw import Glyphs, Line, StyledSpan, safe

AXIS = LABEL_CELLS + 1  # cells left of the plot: a label, and a blank
_ROWS_A_TICK, _CELLS_A_TICK = 3, 14  # a choice: labels stay apart, and a value is near one
_LABELLED = 10  # lines from which marks have a line of words below them; fewer are for the plot


@dataclass(frozen=True, slots=True)
class Viewport:
    """The steps that are shown: from `start` (None: the first) to `end` (None: the newest)."""

    start: float | None = None
    end: float | None = None

    def within(self, first: float, last: float) -> tuple[float, float]:
        """The first and last step shown of a run from `first` to `last`."""
        start = first if self.start is None else self.start
        end = last if self.end is None else self.end
        # For a single step: a window as wide as one step, with the step in the middle.
        return (start, end) if end > start else (start - 0.5, start + 0.5)

    def zoom(self, factor: float, centre: float, first: float, last: float) -> Viewport:
        """Show `factor` times as many steps around `centre`, at most the whole run."""
        start, end = self.within(first, last)
        if factor < 1 and (end - start) * factor < 2:  # steps: fewer make no curve
            return self
        low, high = centre - (centre - start) * factor, centre + (end - centre) * factor
        return Viewport(low if low > first else None, high if high < last else None)

    def pan(self, share: float, first: float, last: float) -> Viewport:
        """Move the window by a share of its width (negative: to earlier steps), within the run."""
        start, end = self.within(first, last)
        by = min(max((end - start) * share, first - start), last - end)
        if self.start is None and self.end is None:
            return self
        return Viewport(start + by, None if by >= last - end and share > 0 else end + by)


@dataclass(frozen=True, slots=True)
class Mark:
    """A `glyph` below the plot at a step, and a `label` if there is room. `style`: its severity."""

    step: float
    glyph: str
    style: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves with the name of a style each, and how to draw them.

    `smoothing`: weight of the past in an exponential average, 0 for none. `cursor`: step or None.
    `whole`: the first and last step of the run, if the curves have only a part of it. `along`:
    what the curves have for steps.
    """

    curves: Sequence[tuple[CurveView, str]]
    view: Viewport = Viewport()
    log_axis: bool = False
    smoothing: float = 0.0
    marks: Sequence[Mark] = field(default_factory=tuple)
    cursor: float | None = None
    whole: tuple[float, float] | None = None
    along: Along = "step"

    def span(self) -> tuple[float, float]:
        """The least and the greatest step of all curves; 0 and 1 if there are none."""
        if self.whole is not None:
            return self.whole
        steps = [step for curve, _ in self.curves for step in curve.steps]
        return (float(min(steps)), float(max(steps))) if steps else (0.0, 1.0)

    def step_at(self, column: int, width: int) -> float:
        """The step, with a fraction, under a column of a widget that is `width` cells wide."""
        start, end = self.view.within(*self.span())
        return start + (end - start) * (column - AXIS) / max(width - AXIS - 1, 1)


def draw_chart(chart: Chart, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The chart in `width` by `height` cells: plot, marks, their labels if high, steps."""
    # A window may have no room for a moment while it is resized: the plot is cut then.
    has_labels = height >= _LABELLED and any(mark.label for mark in chart.marks)
    plot_width, plot_height = max(width - AXIS, 4), max(height - 2 - has_labels, 1)
    start, end = chart.view.within(*chart.span())
    shown = [(_part(curve, start, end), style) for curve, style in chart.curves]
    curves = [curve for curve, _ in shown]
    low, high = _range(curves, start, end, log_axis=chart.log_axis)
    canvas = Canvas(plot_width, plot_height, glyphs)
    columns = plot_width * canvas.across

    def x_of(step: float) -> int:
        return round((step - start) / (end - start) * (columns - 1))

    def share_of(scaled: float) -> float:
        return 1 - (scaled - low) / (high - low)

    def y_of(value: float) -> int:
        if chart.log_axis and value <= 0:
            return plot_height * canvas.down - 1
        share = share_of(_scaled(value, log_axis=chart.log_axis))
        return round(min(max(share, -1.0), 2.0) * (plot_height * canvas.down - 1))

    for curve, style in reversed(shown):
        canvas.plot(curve, style, smoothing=chart.smoothing, x_of=x_of, y_of=y_of)
    cursor = None
    if chart.cursor is not None and start <= chart.cursor <= end:
        cursor = x_of(chart.cursor) // canvas.across
    labels = _labels(low, high, plot_height, share_of, log_axis=chart.log_axis)
    lines = [
        [
            StyledSpan(f"{labels.get(row, '')[: AXIS - 1]:>{AXIS - 1}} ", "dim"),
            *canvas.row(row, cursor, grid=row in labels),
        ]
        for row in range(plot_height)
    ]
    below = _marks(chart, curves, glyphs, plot_width, lambda s: x_of(s) // canvas.across)
    margin = StyledSpan(" " * AXIS)
    lines += [[margin, *line] for line in below[: 1 + has_labels]]
    return [*lines, [margin, *_steps(start, end, plot_width, chart.along)]]


def nearest(curve: CurveView, step: float) -> int | None:
    """The index of the bucket that contains a step, at least 0; None if the curve is empty."""
    if not curve.steps:
        return None
    return max(bisect_right(curve.steps, step) - 1, 0)


def step_of(curve: CurveView, time: float) -> float | None:
    """The step at a time (Unix seconds); None before the first step or if the curve is empty."""
    index = bisect_right(curve.times, time) - 1
    return float(curve.steps[index]) if 0 <= index < len(curve.steps) else None


def _part(curve: CurveView, start: float, end: float) -> CurveView:
    """The buckets between two steps and one more on each side; all if a resume set steps back."""
    steps = curve.steps
    if any(later < earlier for earlier, later in pairwise(steps)):
        return curve
    low = max(bisect_left(steps, start) - 1, 0)
    high = bisect_right(steps, end) + 1
    return replace(curve, **{name: getattr(curve, name)[low:high] for name in COLUMNS})


def _range(
    curves: Iterable[CurveView], start: float, end: float, *, log_axis: bool
) -> tuple[float, float]:
    """The least and greatest value in view; of the nearest buckets if none begins in it."""
    found = [
        (start <= step <= end, _scaled(value, log_axis=log_axis))
        for curve in curves
        for column in (curve.lows, curve.highs)
        for step, value in zip(curve.steps, column, strict=True)
        if math.isfinite(value) and (value > 0 or not log_axis)
    ]
    ends = [value for inside, value in found if inside] or [value for _, value in found]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    if high > low:
        return low, high
    # A constant: 5 % of it on either side, or 0.5 beside 0. A choice: less makes labels equal.
    return low - (abs(low) * 0.05 or 0.5), high + (abs(high) * 0.05 or 0.5)


def _scaled(value: float, *, log_axis: bool) -> float:
    return math.log10(max(value, 1e-45)) if log_axis else value  # curves hold float32: >= 1.4e-45


def _labels(
    low: float,
    high: float,
    height: int,
    share_of: Callable[[float], float],
    *,
    log_axis: bool,
) -> dict[int, str]:
    """The labels of round values, by the row that is nearest to each."""
    most = max(height // _ROWS_A_TICK, 2)
    values = log_ticks(low, high, most) if log_axis else ticks(low, high, most)
    texts = tick_labels([10.0**each for each in values] if log_axis else values)
    return {
        round(share_of(value) * (height - 1)): text
        for value, text in zip(values, texts, strict=True)
    }


def _marks(
    chart: Chart,
    curves: Iterable[CurveView],
    glyphs: Glyphs,
    width: int,
    column_of: Callable[[float], int],
) -> list[Line]:
    """Rows of marks and of their labels. In a shared cell the worst mark shows."""
    cells, words = [StyledSpan(" ")] * width, [StyledSpan(" ")] * width
    found = [*chart.marks] + [
        Mark(step, glyphs.nonfinite, "critical")
        for curve in curves
        for step, bad in zip(curve.steps, curve.nonfinite, strict=True)
        if bad
    ]
    bad = glyphs.nonfinite  # says more than the mark of the alert about it
    for mark in sorted(found, key=lambda each: (SEVERITIES.index(each.style), each.glyph == bad)):
        column = column_of(mark.step)
        if 0 <= column < width:
            cells[column] = StyledSpan(mark.glyph, mark.style)
    taken, last = -1, ""  # the last cell with a letter of a label, and that label
    for mark in sorted(chart.marks, key=lambda mark: mark.step):
        column = min(column_of(mark.step), width - len(mark.label))
        is_new = bool(mark.label) and mark.label != last
        if is_new and taken < column and 0 <= column_of(mark.step) < width:
            last = mark.label
            for index, letter in enumerate(mark.label):
                words[column + index] = StyledSpan(letter, mark.style)
            taken = column + len(mark.label)
    return [cells, words]


def _steps(start: float, end: float, width: int, along: Along) -> Line:
    """The labels of round steps, each centred below its column; the unit before the last one."""
    most = max(width // _CELLS_A_TICK, 1)
    values = (time_ticks if along == "time" else ticks)(start, end, most)
    text = ""
    for value in values if along != "step" else [each for each in values if each == round(each)]:
        shown = label_along(value, along)
        shown = f"{along} {shown}" if not text and along == "step" else shown
        column = round((value - start) / (end - start) * (width - 1)) - len(shown) // 2
        column = min(max(column, 0), width - len(shown))
        if column >= len(text) + bool(text):
            text += " " * (column - len(text)) + shown
    return [StyledSpan(text[:width].ljust(width), "dim")]


_LABEL = 18  # cells of a label at most: `NonFiniteGradient`; longer ones hide others


def marks_of(run: RunView, curve: CurveView, snapshot: Snapshot, glyphs: Glyphs) -> list[Mark]:
    """The marks of a run, at their own step or at the step of their time on `curve`."""
    marks = [Mark(step, glyphs.saved, "info", "saved") for step in run.checkpoints]
    for bad in run.nonfinite:
        whose = "NaN/Inf" if bad.rank is None else f"NaN/Inf rank {bad.rank}"
        marks.append(Mark(bad.step, glyphs.nonfinite, "critical", whose))
    found: list[tuple[object, float | None, str, str]] = [
        (event.fields.get("step"), event.time, event.severity, "")
        for event in snapshot.events
        if event.run == run.name and event.severity != "info"
    ]
    found += [
        (passed.step, passed.time, passed.labels.get("severity", "info"), passed.alert)
        for passed in snapshot.transitions
        if passed.labels.get("run") == run.name and passed.state == "firing"
    ]
    found += [
        (each.last_step, each.opened_at, "critical", each.root.kind)
        for each in snapshot.incidents
        if each.run == run.name and each.root.kind != "nonfinite_metric"
    ]
    for own, time, severity, name in found:
        step = float(own) if isinstance(own, int) else None
        if step is None and time is not None:
            step = step_of(curve, time)
        if step is not None and severity in glyphs.marks:
            label = safe(name, glyphs)[:_LABEL]
            marks.append(Mark(step, glyphs.marks[severity], severity, label))
    return marks


def placed(evaluation: CurveView, loss: CurveView) -> CurveView:
    """An evaluation's curve at the training steps of its times: its own steps are often none."""
    if not loss.steps:
        return evaluation
    steps = [loss.steps[max(bisect_right(loss.times, at) - 1, 0)] for at in evaluation.times]
    return replace(evaluation, steps=steps)
