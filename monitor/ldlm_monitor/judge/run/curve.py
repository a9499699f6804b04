"""The curve of one quantity over a whole run, for charts, in a bounded number of buckets."""

import math
from array import array
from collections.abc import Sequence

from ldlm_monitor.base.names import CANONICAL_PREFIXES
from ldlm_monitor.base.records import Position
from ldlm_monitor.base.snapshot import CurveView
from ldlm_monitor.judge.run.file_rows import FileRows

CAPACITY = 512
"""Most buckets of a curve. A choice: two for each of a screen's 256 columns; more only cost memory.
Even, since a full curve merges its buckets in pairs."""
# The fields of `CurveView` that `view` copies.
_COLUMNS = ("steps", "times", "lows", "highs", "means", "nonfinite", "lines", "offsets", "origins")
# Quantities that reports and the screen draw. Others have no curve: a curve costs up to 30 kB.
_CHARTED = frozenset(
    {"loss", "eval_loss", "accuracy", "grad_norm", "learning_rate", "loss_scale"}
    | {"samples_per_second", "tokens_per_second", "steps_per_second", "step_seconds"}
    | {"data_seconds", "mfu", "memory_allocated_bytes", "memory_reserved_bytes"}
)


def is_charted(quantity: str) -> bool:
    """Whether a curve of the quantity is kept."""
    return quantity in _CHARTED or quantity.startswith(CANONICAL_PREFIXES)


class RunCurve:
    """Buckets of consecutive samples, each with minimum, maximum and mean: no spike is lost.

    NaN and infinite values are only counted, in `nonfinite`. `lows`, `highs` and `means`
    describe finite values, and are NaN in a bucket without any. Step, time and position of a
    bucket are those of its first sample.
    """

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.last_step: int | None = None
        self._width = 1
        self._filled = 0
        self._sum = (0.0, 0)
        self._rest: list[float] = []  # finite values that are not in the last bucket's numbers yet
        self.steps, self.lines, self.offsets = array("q"), array("q"), array("q")
        self.times = array("d")
        self.lows, self.highs, self.means = array("f"), array("f"), array("f")
        self.nonfinite, self.origins = array("I"), array("H")

    def extend(self, column: Sequence[float], rows: FileRows, places: Sequence[int]) -> None:
        """Add the values of the rows at `places`, finite but for those of a row alone.

        A step's second finite value is ignored: a bar that was redrawn.
        """
        steps = rows.steps or (0 if self.last_step is None else self.last_step + 1,)
        finite, end = math.isfinite(column[0]), len(column)
        index = int(finite and steps[places[0]] == self.last_step)
        while index < end:
            place = places[index]
            self._open(steps[place], rows.times[place], rows.position(place))
            room = min(self._width - self._filled, end - index)
            self._filled += room
            if finite:
                self._rest.extend(column if room == end else column[index : index + room])
            else:
                self.nonfinite[-1] += 1
            index += room
        self.last_step = steps[places[-1]]

    def view(self) -> CurveView:
        """An immutable copy of the curve."""
        self._fold()
        return CurveView(
            files=tuple(self.files), **{name: getattr(self, name)[:] for name in _COLUMNS}
        )

    def _open(self, step: int, at: float, position: Position) -> None:
        """Open a bucket, unless the last one has room."""
        fell = self.last_step is not None and step < self.last_step
        if not self.steps or fell or self._filled >= self._width:
            self._fold()
            if len(self.steps) >= CAPACITY:
                self._halve()
            self.steps.append(step)
            self.times.append(at)
            self.lines.append(position.line)
            self.offsets.append(position.offset)
            origin = self.files.setdefault(position.path, len(self.files))
            self.origins.append(min(origin, 65535))  # type H holds no more: later files share it
            for column in (self.lows, self.highs, self.means):
                column.append(math.nan)
            self.nonfinite.append(0)
            self._filled, self._sum = 0, (0.0, 0)
        self.last_step = step

    def _fold(self) -> None:
        """Bring the last bucket's numbers up to date: once for many values."""
        if not self._rest:
            return
        low, high = min(self._rest), max(self._rest)
        total, count = self._sum[0] + sum(self._rest), self._sum[1] + len(self._rest)
        if self._sum[1]:
            low, high = min(low, self.lows[-1]), max(high, self.highs[-1])
        self._sum = (total, count)
        self.lows[-1], self.highs[-1] = _single(low), _single(high)
        self.means[-1] = _single(total / count)
        del self._rest[:]

    def _halve(self) -> None:
        pairs = range(0, len(self.steps) - 1, 2)
        lows = array("f", (_least(self.lows[i], self.lows[i + 1]) for i in pairs))
        highs = array("f", (-_least(-self.highs[i], -self.highs[i + 1]) for i in pairs))
        means = array("f", (_middle(self.means[i], self.means[i + 1]) for i in pairs))
        bad = array("I", (self.nonfinite[i] + self.nonfinite[i + 1] for i in pairs))
        self.lows, self.highs, self.means, self.nonfinite = lows, highs, means, bad
        for name in ("steps", "times", "lines", "offsets", "origins"):
            setattr(self, name, getattr(self, name)[:-1:2])
        self._width *= 2
        self._filled = self._width


def _single(value: float) -> float:
    """The value clamped to the range of a 32-bit float, whose maximum is 3.4028e38."""
    return value if -3.4e38 <= value <= 3.4e38 else math.copysign(3.4e38, value)


def _least(a: float, b: float) -> float:
    """The lesser of two values; NaN stands for a bucket without finite values."""
    return b if math.isnan(a) else a if math.isnan(b) else min(a, b)


def _middle(a: float, b: float) -> float:
    return b if math.isnan(a) else a if math.isnan(b) else (a + b) / 2
