"""Where a run may pause for the first time: what a healthy one does there takes long, too."""

from bisect import bisect_left
from collections.abc import Collection
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from ldlm_monitor.base.meaning import Word
from ldlm_monitor.base.records import Sample

Place: TypeAlias = Literal["epoch", "round", "skip"]
"""What may come after the last step: what ends an epoch, what a period of steps brings, batches
that are passed over."""
LEADS: Final = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 7.5, 8, 9)
"""First digits of the numbers of steps after which people evaluate and save, times a power of ten;
powers of two are others. A choice: more make more steps the first of a period (of 10,000 steps 1 in
130 is), fewer miss periods."""
LEAST_PERIOD: Final = 50
"""Steps of the shortest period. A choice: who evaluates more often has short evaluations."""
STRIDES: Final = 10
"""Logged steps of the shortest period, where only some steps are logged. A choice: fewer make each
logged step the first of a period; up to 20, the limit that is not yet learned is longer, too."""
_ROUND: Final = frozenset(int(each * 10**power) for power in range(9) for each in LEADS) | {
    2**power for power in range(30)
}


def is_first_round(step: int, stride: int, begun: int) -> bool:
    """Whether a run that began after the step `begun` comes to the first multiple of a round number
    of steps, at `step` or before the next logged one, `stride` later.

    A period is possible until one of its multiples has passed without a pause, so each counts once.
    Steps count from 0 or from 1.
    """
    firsts = _first_multiples(begun, max(LEAST_PERIOD, STRIDES * stride))
    following = bisect_left(firsts, step)
    return following < len(firsts) and firsts[following] <= step + stride


@lru_cache(maxsize=256)
def _first_multiples(begun: int, shortest: int) -> list[int]:
    """After the step `begun`, the first multiples of round numbers from `shortest` on, rising."""
    return sorted({(begun // period + 1) * period for period in _ROUND if period >= shortest})


class Places:
    """At which places a run is after its last step, by its rows (`here`): whether each is a first.

    The one who counts the next step clears `here`.
    """

    def __init__(self) -> None:
        self.here: dict[Place, bool] = {}
        self._begun: int | None = None
        self._has_parts = False
        self._epochs = 0

    def observe(self, sample: Sample, stride: int, *, moves: bool, ends_epoch: bool) -> None:
        """Process a row; `moves`: it is a step beyond the last one, else it stands beside it.

        `ends_epoch`: the present epoch has as many rows as those before it.
        """
        step, epoch = sample.step, sample.epoch
        if moves and step is not None:
            self.count_from(step)
        if epoch is not None and not epoch.is_integer():
            self._has_parts = True
        if not moves:
            if _sums_up(sample):
                self._sum_up()
            return
        if ends_epoch or self._is_last(sample, stride):
            self._sum_up()
        if step is not None and stride and is_first_round(step, stride, self._begun or 0):
            self.here["round"] = True

    def count_from(self, step: int) -> None:
        """Process a step: periods count from the first one of an attempt."""
        if self._begun is None:
            self._begun = step if step > 1 else 0

    def note(self, words: Collection[Word]) -> None:
        """Process what an event is: results of an epoch, or batches passed over up to a step.

        These are before the first step of an attempt; beyond it they are only words.
        """
        if "skips" in words:
            if self._begun is None:
                self.here["skip"] = True
        elif "results" in words:
            self._sum_up()

    def _sum_up(self) -> None:
        """An epoch or an evaluation is over, and every so many epochs more may follow."""
        if "epoch" not in self.here:
            self._epochs += 1
            self.here["epoch"] = self._epochs in _ROUND

    def begin(self) -> None:
        """Begin another attempt, which counts its periods from its own first step."""
        self.here.clear()
        self._begun, self._epochs = None, 0

    def _is_last(self, sample: Sample, stride: int) -> bool:
        """Whether no further logged step fits into the epoch."""
        if self._has_parts and sample.epoch is not None and sample.epoch.is_integer():
            return True
        total = sample.values.get("total_steps", 0.0)
        return sample.step is not None and 0 < total < sample.step + max(stride, 1)


def _sums_up(sample: Sample) -> bool:
    """Whether a row has what an epoch or an evaluation came to."""
    values = sample.values
    is_epoch = sample.step is None and sample.epoch is not None and sample.source != "bar"
    return is_epoch or any(name.startswith("eval_") and name != "eval_progress" for name in values)
