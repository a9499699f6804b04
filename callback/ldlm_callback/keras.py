"""`HealthKerasCallback` for Keras 3, on any of its backends: JAX, PyTorch or TensorFlow.

Keras gives its callbacks means over the epoch so far, `loss` among them: a NaN of one batch stays
until the epoch ends. A loop of your own that calls `on_step` reports each batch.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from ldlm_callback.health import Adapter, HealthCallback, harmless

if TYPE_CHECKING:

    class Callback:
        """See Keras."""

        model: Any
        params: dict[str, Any]
else:
    from keras.callbacks import Callback


class HealthKerasCallback(Adapter, Callback):
    """Give it to `fit`: `model.fit(..., callbacks=[HealthKerasCallback(run="run_a")])`.

    Its options are those of `HealthCallback`. A step is a batch; steps go on over epochs. The
    learning rate is that at the epoch's begin.
    """

    _defaults: ClassVar = {"framework": "keras"}
    _step, _batch, _epoch = 0, -1, 0
    _rate: float | None = None

    @harmless
    def on_train_begin(self, logs: Any = None) -> None:
        """Make the callback: its file exists from then on."""
        if self._health is None:
            self._health = HealthCallback(**self._options)
        self._step = 0
        if (steps := self.params.get("steps")) and (epochs := self.params.get("epochs")):
            self._health.log(total_steps=steps * epochs)

    @harmless
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch and its learning rate: with JAX, steps have the variable's memory."""
        self._epoch, self._batch = epoch, -1
        with suppress(Exception):  # an optimizer of another kind
            self._rate = float(self.model.optimizer.learning_rate)

    @harmless
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Report a step, or the last of those that Keras takes at once (`steps_per_execution`)."""
        if self._health is None:
            return
        self._step += batch - self._batch
        self._batch = batch
        values = {str(name): value for name, value in (logs or {}).items() if name != "step"}
        self._health.on_step(self._step, lr=self._rate, batch=batch, epoch=self._epoch, **values)
        if self._health.should_stop(self._step):
            self.model.stop_training = True

    @harmless
    def on_test_begin(self, logs: Any = None) -> None:
        """Enter the phase of an evaluation."""
        self._enter("eval")

    @harmless
    def on_test_end(self, logs: Any = None) -> None:
        """Leave it; its values are those of the last step."""
        self._leave()
        if self._health is not None and logs:
            self._health.log(**{f"eval_{name}": value for name, value in logs.items()})

    @harmless
    def on_train_end(self, logs: Any = None) -> None:
        """Close the callback: the training is done."""
        self._end()
