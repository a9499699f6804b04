"""`HealthLightningCallback` for Lightning's Trainer (2.x, `lightning` or `pytorch_lightning`).

What `training_step` returns is logged: `loss`, and any other scalar of its dictionary.
Nothing that the Trainer logs is read, because reading it may wait for the GPU.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from ldlm_monitor.callback.health import Adapter, HealthCallback, harmless

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

    Takes what `HealthCallback` takes; `out` defaults to the Trainer's `default_root_dir`.
    SIGTERM is left to Lightning, which ends at the next batch and says so.
    """

    _defaults: ClassVar = {"framework": "lightning", "sigterm": False}
    _step = 0

    @harmless
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before anything runs: from now on there is a file."""
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
        """A batch is done, and with the last of an accumulation a step."""
        health = self._health
        if health is None:
            return
        self._add(outputs if isinstance(outputs, dict) else {"loss": outputs})
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        means = self._summed(1 / self._parts)
        if "loss" in means:  # it came back divided by the accumulation
            means["loss"] *= trainer.accumulate_grad_batches
        rate = trainer.optimizers[0].param_groups[0]["lr"] if trainer.optimizers else None
        health.on_step(self._step, lr=rate, batch=batch_idx, epoch=trainer.current_epoch, **means)

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """An evaluation begins."""
        self._enter("eval")

    @harmless
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """A checkpoint is about to be written; no hook is called after it."""
        self._enter("checkpoint")

    @harmless
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The training failed."""
        if self._health is not None:
            self._health.close(exception)

    @harmless
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """All is done."""
        self._end()

    on_train_batch_start = on_validation_end = on_train_end = Adapter._leave
    """Whatever was done between batches is over; after the last, a checkpoint may follow."""
