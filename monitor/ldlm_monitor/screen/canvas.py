"""Dots in cells of a terminal, and the curves that are drawn with them: braille, or ASCII."""

import math
from collections.abc import Callable, Sequence

from ldlm_monitor.base.snapshot import CurveView
from ldlm_monitor.screen.draw import Glyphs, Line, StyledSpan

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille cell (Unicode 15, chapter 21.1), by row and column."""


class Canvas:
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

    def row(self, index: int, cursor: int | None, *, grid: bool) -> Line:
        """One row of cells, with a line at column `cursor`; `grid`: dots in each empty cell."""
        line: Line = []
        empty = StyledSpan(self._glyphs.grid if grid else " ", "grid")
        for column in range(self.width):
            bits, style = self._bits[index][column], self._styles[index][column]
            if bits:
                # U+2800 is the braille cell without dots.
                text = chr(0x2800 + bits) if self._glyphs.braille else " '.:"[bits]
            elif column == cursor:
                text, style = self._glyphs.vertical, "dim"
            else:
                text, style = empty
            if line and line[-1].style == style:
                line[-1] = StyledSpan(line[-1].text + text, style)
            else:
                line.append(StyledSpan(text, style))
        return line

    def plot(
        self,
        curve: CurveView,
        style: str,
        *,
        smoothing: float,
        x_of: Callable[[float], int],
        y_of: Callable[[float], int],
    ) -> None:
        """Draw a curve: all between least and greatest of each bucket, and a line of the means."""
        raw = "raw" if smoothing else style
        means = smoothed(curve.means, smoothing) if smoothing else curve.means
        for step, low, high in zip(curve.steps, curve.lows, curve.highs, strict=True):
            if math.isfinite(low):
                x = x_of(step)
                for y in range(y_of(high), y_of(low) + 1):
                    self.dot(x, y, raw)
        before: tuple[int, int] | None = None
        for index, step in enumerate(curve.steps):
            value = means[index]
            if not math.isfinite(value):
                before = None
                continue
            here = (x_of(step), y_of(value))
            if before is not None and here[0] >= before[0]:
                self._stroke(before, here, style)
            else:
                self.dot(*here, style)
            before = here

    def _stroke(self, start: tuple[int, int], end: tuple[int, int], style: str) -> None:
        across, columns = end[0] - start[0], self.width * self.across
        length = max(across, abs(end[1] - start[1]), 1)
        first, last = 0, length
        if across:  # only dots of the canvas: a gap may be wider by orders of magnitude
            first = max((-1 - start[0]) * length // across, 0)
            last = min((columns - start[0]) * length // across, length)
        for index in range(first, last + 1):
            x = start[0] + across * index / length
            y = start[1] + (end[1] - start[1]) * index / length
            self.dot(round(x), round(y), style)


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
