"""Where the time of a run went."""

from pydantic import Field

from ldlm_monitor.model.incident_view import View


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
    failures: int = Field(description="restarts that took steps again, and a failed end")
    ettr: float = Field(description="effective training time ratio, 0..1: less lost to failures")
    mttf_seconds: float | None = Field(description="time up per failure; None without a failure")
    gpu_hours: float | None = Field(description="total time x ranks; None if these are unknown")
    cost: float | None = Field(
        default=None, description="GPU-hours x `gpu_hour_price`; None without a price"
    )

    def part(self, seconds: float) -> tuple[float | None, float | None]:
        """The GPU-hours and the money that `seconds` of the time took; None if unknown."""
        share = seconds / self.total_seconds
        hours, cost = self.gpu_hours, self.cost
        return (None if hours is None else share * hours, None if cost is None else share * cost)
