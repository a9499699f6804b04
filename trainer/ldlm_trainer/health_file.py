"""The monitor's callback, or nothing: the loop need not know which."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ldlm_trainer.config import Config
    from ldlm_trainer.rank_process import Process


class Health(Protocol):
    """What the loop reports of itself."""

    def on_step(self, step: int, **values: Any) -> None:
        """A step was taken."""

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Something else than steps goes on."""

    def event(self, kind: str, message: str, severity: str) -> None:
        """Something happened."""

    def close(self, error: BaseException | None) -> None:
        """The run ended, of an error or well."""


class Silent:
    """Reports nothing."""

    def on_step(self, step: int, **values: Any) -> None:
        """Nothing."""

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Nothing."""
        return nullcontext()

    def event(self, kind: str, message: str, severity: str) -> None:
        """Nothing."""

    def close(self, error: BaseException | None) -> None:
        """Nothing."""


def open_health(settings: Config, process: Process) -> Health:
    """`health_rank{r}.jsonl` in the run's folder, unless run.health=false.

    SIGTERM stays the loop's, which stops in good order and says so.
    """
    if not settings.run.health:
        return Silent()
    from ldlm_callback import HealthCallback

    health: Health = HealthCallback(
        settings.run.name,
        settings.folder,
        rank=process.rank,
        world_size=process.world,
        config={"mode": settings.objective.mode, "steps": settings.schedule.steps},
        framework="ldlm_trainer",
        sigterm=False,
    )
    return health
