"""Where the time of a run went."""

import math
from collections.abc import Mapping
from typing import Final, Self, TypeAlias

from pydantic import Field

from ldlm_monitor.base.incident_view import View

Losses: TypeAlias = Mapping[str, tuple[float, int]]
"""By cause: the seconds lost to it, and in how many intervals."""
_NO_PROGRESS: Final = frozenset(
    {"start", "first step", "steps taken again", "restart", "stall", "after the last step"}
)
"""What ETTR takes off: catching up and starting, as in the paper, and hanging."""


class Spent(View):
    """`seconds` lost to the cause `what`, in `times` intervals."""

    what: str
    seconds: float
    times: int


class Goodput(View):
    """`share` (0..1) of `total_seconds` went into steps that were kept, the rest into `losses`."""

    total_seconds: float
    productive_seconds: float
    share: float
    step_seconds: float = Field(description="the usual time of a step, the median of the last")
    least_pause_seconds: float = Field(description="shorter pauses look like steps")
    losses: tuple[Spent, ...] = Field(description="the greatest first")
    failures: int = Field(description="restarts, and a failed end")
    ettr: float = Field(description="effective training time ratio, 0..1: less lost to failures")
    mttf_seconds: float | None = Field(description="time up per failure; None without a failure")
    gpu_hours: float | None = Field(description="total time x ranks; None if these are unknown")
    cost: float | None = Field(
        default=None, description="GPU-hours x `gpu_hour_price`; None without a price"
    )

    @classmethod
    def of(
        cls, productive: float, lost: Losses, usual: float, least: float, failures: int
    ) -> Self | None:
        """The sum of `productive` and `lost` seconds, `usual` of a step; None if no time passed."""
        losses = [
            Spent(what=what, seconds=seconds, times=times)
            for what, (seconds, times) in lost.items()
            if seconds > 0
        ]
        total = math.fsum([productive, *(loss.seconds for loss in losses)])
        if total <= 0:
            return None
        down = sum(loss.seconds for loss in losses if loss.what == "restart")  # not time up
        return cls(
            total_seconds=total,
            productive_seconds=productive,
            share=productive / total,
            step_seconds=usual,
            least_pause_seconds=least,
            losses=tuple(sorted(losses, key=lambda spent: -spent.seconds)),
            failures=failures,
            ettr=1 - sum(loss.seconds for loss in losses if loss.what in _NO_PROGRESS) / total,
            mttf_seconds=(total - down) / failures if failures else None,
            gpu_hours=None,
        )

    def part(self, seconds: float) -> tuple[float | None, float | None]:
        """The GPU-hours and the money that `seconds` of the time took; None if unknown."""
        share = seconds / self.total_seconds
        hours, cost = self.gpu_hours, self.cost
        return (None if hours is None else share * hours, None if cost is None else share * cost)
