"""`HealthTracker` for Accelerate: logs what the loop gives to `accelerator.log`."""

from typing import TYPE_CHECKING, Any, ClassVar

from ldlm_callback.health import Adapter, HealthCallback

if TYPE_CHECKING:

    class GeneralTracker:
        """See Accelerate."""
else:
    from accelerate.tracking import GeneralTracker


class HealthTracker(Adapter, GeneralTracker):
    """Give it to an Accelerator: `Accelerator(log_with=HealthTracker(run="run_a"))`.

    Its options are those of `HealthCallback`. Call `accelerator.log({"loss": loss}, step=step)`
    once a step on every rank, with tensors as they are, and `accelerator.end_training()` at the
    end. `health` is the callback itself, for phases and events.
    """

    name = "ldlm_health"
    requires_logging_directory = False  # the callback has its own folder, `out`
    main_process_only = False  # each rank reports itself
    _defaults: ClassVar = {"framework": "accelerate"}

    @property
    def health(self) -> HealthCallback:
        """The callback, made at its first use: only then does Accelerate know the ranks."""
        if self._health is None:
            self._health = HealthCallback(**self._options)
        return self._health

    @property
    def tracker(self) -> HealthCallback:
        """`health`, under the name that Accelerate requires."""
        return self.health

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Report the settings of the run; ignored after the first step."""
        if self._health is None:
            self._options["config"] = values

    def log(self, values: dict[str, Any], step: int | None = None, **given: Any) -> None:
        """Report the values of a step."""
        named = {str(name): value for name, value in values.items() if name not in ("step", "self")}
        self.health.on_step(step, **named)

    def finish(self) -> None:
        """Close the callback: the training is done."""
        self.health.close()
