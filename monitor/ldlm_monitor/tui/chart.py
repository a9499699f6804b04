"""A line chart of one or more curves over steps: braille or ASCII, linear or logarithmic.

The least and the greatest value of each column are drawn, so that a spike shows at any zoom.
Values that are not finite are marks below the plot. The library plotext is not used: it removes
NaN (https://github.com/piccolomo/plotext/issues/114), and so joins the points beside a gap.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ldlm_monitor.model.names import SEVERITIES
from ldlm_monitor.model.view import CurveView
from ldlm_monitor.tui.draw import Glyphs, Line, StyledSpan

AXIS = 9  # cells left of the plot: the longest label, such as `-1.2e-05`, and a blank
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille cell (Unicode 15, chapter 21.1), by row and column."""


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
    """A `glyph` below the plot for an event or an alert at a step. `style` is its severity."""

    step: float
    glyph: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves with the name of a style each, and how to draw them.

    `smoothing`: weight of the past in an exponential average, 0 for none. `cursor`: step or None.
    """

    curves: Sequence[tuple[CurveView, str]]
    view: Viewport = Viewport()
    log_axis: bool = False
    smoothing: float = 0.0
    marks: Sequence[Mark] = field(default_factory=tuple)
    cursor: float | None = None

    def span(self) -> tuple[float, float]:
        """The least and the greatest step of all curves; 0 and 1 if there are none."""
        steps = [step for curve, _ in self.curves for step in curve.steps]
        return (float(min(steps)), float(max(steps))) if steps else (0.0, 1.0)

    def step_at(self, column: int, width: int) -> float:
        """The step, with a fraction, under a column of a widget that is `width` cells wide."""
        start, end = self.view.within(*self.span())
        return start + (end - start) * (column - AXIS) / max(width - AXIS - 1, 1)


class _Canvas:
    """Dots in cells: 2 by 4 of braille, or 1 by 2 of ASCII."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self.width, self.height, self._glyphs = width, height, glyphs
        self.across, self.down = (2, 4) if glyphs.braille else (1, 2)  # dots of a cell
        self._bits = [[0] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]

    def dot(self, x: int, y: int, style: str) -> None:
        """Set a dot; x and y count dots from the top left. Dots outside the canvas are dropped."""
        column, row = x // self.across, y // self.down
        if 0 <= column < self.width and 0 <= row < self.height and x >= 0 and y >= 0:
            bits = _DOTS[y % 4][x % 2] if self._glyphs.braille else 1 << (y % 2)
            self._bits[row][column] |= bits
            self._styles[row][column] = style

    def row(self, index: int, cursor: int | None) -> Line:
        """One row of cells, with a line at column `cursor`; neighbours of a style are one span."""
        line: Line = []
        for column in range(self.width):
            bits, style = self._bits[index][column], self._styles[index][column]
            if bits:
                # U+2800 is the braille cell without dots.
                text = chr(0x2800 + bits) if self._glyphs.braille else " '.:"[bits]
            elif column == cursor:
                text, style = self._glyphs.vertical, "dim"
            else:
                text = " "
            if line and line[-1].style == style:
                line[-1] = StyledSpan(line[-1].text + text, style)
            else:
                line.append(StyledSpan(text, style))
        return line


def draw_chart(chart: Chart, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The chart in `width` by `height` cells: plot, a line of marks, a line of steps."""
    # A window may have no room for a moment while it is resized: the plot is cut then.
    plot_width, plot_height = max(width - AXIS, 4), max(height - 2, 1)
    start, end = chart.view.within(*chart.span())
    shown = [(_part(curve, start, end), style) for curve, style in chart.curves]
    curves = [curve for curve, _ in shown]
    low, high = _range(curves, log_axis=chart.log_axis)
    canvas = _Canvas(plot_width, plot_height, glyphs)
    columns = plot_width * canvas.across

    def x_of(step: float) -> int:
        return round((step - start) / (end - start) * (columns - 1))

    def y_of(value: float) -> int:
        if chart.log_axis and value <= 0:
            return plot_height * canvas.down - 1
        share = (_scaled(value, log_axis=chart.log_axis) - low) / (high - low)
        return round((1 - share) * (plot_height * canvas.down - 1))

    for curve, style in reversed(shown):
        _plot(canvas, curve, style, smoothing=chart.smoothing, x_of=x_of, y_of=y_of)
    cursor = None
    if chart.cursor is not None and start <= chart.cursor <= end:
        cursor = x_of(chart.cursor) // canvas.across
    lines = []
    for row in range(plot_height):
        value = high - (high - low) * row / max(plot_height - 1, 1)
        labelled = row in (0, plot_height - 1, plot_height // 2)
        label = _label(10**value if chart.log_axis else value) if labelled else ""
        lines.append(
            [StyledSpan(f"{label[: AXIS - 1]:>{AXIS - 1}} ", "dim"), *canvas.row(row, cursor)]
        )
    marks = _marks(chart, curves, glyphs, plot_width, lambda s: x_of(s) // canvas.across)
    lines.append([StyledSpan(" " * AXIS), *marks])
    lines.append([StyledSpan(" " * AXIS), *_steps(start, end, plot_width)])
    return lines


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """Unbiased exponential average (Kingma and Ba, 2015); `weight` of the past; NaN for Inf."""
    result, average, share = [], 0.0, 0.0
    for value in values:
        if math.isfinite(value):
            average = weight * average + (1 - weight) * value
            share = weight * share + (1 - weight)
            result.append(average / share)
        else:
            result.append(math.nan)
    return result


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
    names = ("steps", "times", "lows", "highs", "means", "nonfinite", "lines", "offsets", "origins")
    return replace(curve, **{name: getattr(curve, name)[low:high] for name in names})


def _range(curves: Iterable[CurveView], *, log_axis: bool) -> tuple[float, float]:
    ends = [
        _scaled(value, log_axis=log_axis)
        for curve in curves
        for column in (curve.lows, curve.highs)
        for value in column
        if math.isfinite(value) and (value > 0 or not log_axis)
    ]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    if high > low:
        return low, high
    # A constant: 5 % of it on either side, or 0.5 beside 0. A choice: less makes labels equal.
    return low - (abs(low) * 0.05 or 0.5), high + (abs(high) * 0.05 or 0.5)


def _scaled(value: float, *, log_axis: bool) -> float:
    return math.log10(max(value, 1e-45)) if log_axis else value  # curves hold float32: >= 1.4e-45


def _plot(
    canvas: _Canvas,
    curve: CurveView,
    style: str,
    *,
    smoothing: float,
    x_of: Callable[[float], int],
    y_of: Callable[[float], int],
) -> None:
    raw = "raw" if smoothing else style
    means = smoothed(curve.means, smoothing) if smoothing else curve.means
    for step, low, high in zip(curve.steps, curve.lows, curve.highs, strict=True):
        if math.isfinite(low):
            x = x_of(step)
            for y in range(y_of(high), y_of(low) + 1):
                canvas.dot(x, y, raw)
    before: tuple[int, int] | None = None
    for index, step in enumerate(curve.steps):
        value = means[index]
        if not math.isfinite(value):
            before = None
            continue
        here = (x_of(step), y_of(value))
        if before is not None and here[0] >= before[0]:
            _stroke(canvas, before, here, style)
        else:
            canvas.dot(*here, style)
        before = here


def _stroke(canvas: _Canvas, start: tuple[int, int], end: tuple[int, int], style: str) -> None:
    across, columns = end[0] - start[0], canvas.width * canvas.across
    length = max(across, abs(end[1] - start[1]), 1)
    first, last = 0, length
    if across:  # only dots of the canvas: a gap may be wider by orders of magnitude
        first = max((-1 - start[0]) * length // across, 0)
        last = min((columns - start[0]) * length // across, length)
    for index in range(first, last + 1):
        x = start[0] + across * index / length
        y = start[1] + (end[1] - start[1]) * index / length
        canvas.dot(round(x), round(y), style)


def _marks(
    chart: Chart,
    curves: Iterable[CurveView],
    glyphs: Glyphs,
    width: int,
    column_of: Callable[[float], int],
) -> Line:
    """The row of marks: non-finite values, alerts, events. In a shared cell the worst shows."""
    cells = [StyledSpan(" ")] * width
    found = [*chart.marks] + [
        Mark(step, glyphs.nonfinite, "critical")
        for curve in curves
        for step, bad in zip(curve.steps, curve.nonfinite, strict=True)
        if bad
    ]
    for mark in sorted(found, key=lambda mark: SEVERITIES.index(mark.style)):
        column = column_of(mark.step)
        if 0 <= column < width:
            cells[column] = StyledSpan(mark.glyph, mark.style)
    return cells


def _steps(start: float, end: float, width: int) -> Line:
    left, right = f"{round(start)}", f"{round(end)}"
    middle = f"step {round((start + end) / 2)}"
    room = width - len(left) - len(right)
    if room < len(middle) + 2:
        return [StyledSpan(left + right.rjust(width - len(left)), "dim")]
    before = (width - len(middle)) // 2 - len(left)
    text = left + " " * before + middle
    return [StyledSpan(text + right.rjust(width - len(text)), "dim")]


def _label(value: float) -> str:
    text = f"{value:.4g}"
    return text if len(text) < AXIS else f"{value:.2g}"
