"""`HealthLightningCallback` for Lightning's Trainer (2.x, `lightning` or `pytorch_lightning`).

It reports the values that `training_step` returns: `loss`, and other scalars of its dictionary.
Values that the Trainer logs are not read, because reading them may wait for the GPU.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from ldlm_callback.health import Adapter, HealthCallback, harmless

if TYPE_CHECKING:

    class Callback:
        """See Lightning."""
else:
    _package = (
        "pytorch_lightning"
        if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
        else "lightning.pytorch"
    )
    Callback = importlib.import_module(_package).Callback


class HealthLightningCallback(Adapter, Callback):
    """Give it to a Trainer: `Trainer(callbacks=[HealthLightningCallback(run="run_a")])`.

    Its options are those of `HealthCallback`; `out` defaults to the Trainer's
    `default_root_dir`. SIGTERM is left to Lightning, which ends at the next batch and logs it.
    """

    _defaults: ClassVar = {"framework": "lightning", "sigterm": False}
    _step = 0

    @harmless
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Make the callback before a fit begins: its file exists from then on."""
        if stage != "fit" or self._health is not None:
            return
        options = {"rank": trainer.global_rank, "world_size": trainer.world_size, **self._options}
        options["out"] = options["out"] or trainer.default_root_dir
        self._health = HealthCallback(**options)
        self._step = trainer.global_step
        if trainer.max_steps and trainer.max_steps > 0:
            self._health.log(total_steps=trainer.max_steps)

    @harmless
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add a batch; the last one of an accumulation completes a step, which is reported."""
        health = self._health
        if health is None:
            return
        self._add(outputs if isinstance(outputs, dict) else {"loss": outputs})
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        means = self._summed(1 / self._parts)
        if "loss" in means:  # Lightning divides the loss by the accumulation
            means["loss"] *= trainer.accumulate_grad_batches
        rate = trainer.optimizers[0].param_groups[0]["lr"] if trainer.optimizers else None
        health.on_step(self._step, lr=rate, batch=batch_idx, epoch=trainer.current_epoch, **means)
        if health.should_stop(self._step):
            trainer.should_stop = True

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Enter the phase of an evaluation."""
        self._enter("eval")

    @harmless
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Enter the phase of a checkpoint; Lightning calls no hook after it."""
        self._enter("checkpoint")

    @harmless
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close the callback with the error of the training."""
        if self._health is not None:
            self._health.close(exception)

    @harmless
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Close the callback."""
        self._end()

    on_train_batch_start = on_validation_end = on_train_end = Adapter._leave
    """These end a checkpoint or an evaluation; after `on_train_end` a checkpoint may follow."""
