"""`HealthTrainerCallback` for transformers' Trainer, and for what is built on it (TRL).

Trainer does not pass the loss to its hooks, and its own log has a mean from which NaN is
filtered (`logging_nan_inf_filter`, on by default). So the loss is taken from the model's output
by a hook on its forward. The hooks are those of transformers/trainer_callback.py (5.23).
"""

from typing import TYPE_CHECKING, Any, ClassVar

from ldlm_callback.health import Adapter, HealthCallback, harmless

if TYPE_CHECKING:

    class TrainerCallback:
        """See transformers."""
else:
    from transformers import TrainerCallback

_SETTINGS = (  # of `TrainingArguments`: those that explain a loss or a speed
    *("learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "optim"),
    *("max_grad_norm", "warmup_steps", "weight_decay", "bf16", "fp16", "seed"),
    "logging_nan_inf_filter",
)


class HealthTrainerCallback(Adapter, TrainerCallback):
    """Give it to a Trainer: `Trainer(..., callbacks=[HealthTrainerCallback(run="run_a")])`.

    Its options are those of `HealthCallback`; `out` defaults to the Trainer's `output_dir`.
    """

    _defaults: ClassVar = {"framework": "transformers"}
    _hook: Any = None
    _is_summed = False

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Make the callback: its file exists from now on."""
        settings = {name: getattr(args, name, None) for name in _SETTINGS}
        options = {**self._options, "config": {**settings, **(self._options.get("config") or {})}}
        options["out"] = options["out"] or args.output_dir
        options["run"] = options["run"] or getattr(args, "run_name", None)
        self._health = health = HealthCallback(**options)
        health.log(total_steps=state.max_steps)
        # If tokens are counted over all ranks, a rank's loss is its share of the sum of all.
        averaged = getattr(args, "average_tokens_across_devices", False)
        self._scale = float(args.world_size) if averaged else 1.0
        if (model := given.get("model")) is not None:
            self._hook = model.register_forward_hook(self._take_loss, with_kwargs=True)
        if getattr(args, "logging_nan_inf_filter", False):
            health.event(
                "warning",
                "logging_nan_inf_filter hides NaN from the Trainer's own log, and waits for the "
                "GPU to do so; this file has the loss as it is",
            )

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Report an optimizer step."""
        health = self._health
        if health is None:
            return
        losses = self._summed(self._scale / (1 if self._is_summed else max(self._parts, 1)))
        groups = getattr(given.get("optimizer"), "param_groups", None)
        rate = groups[0].get("lr") if groups else None
        samples = args.per_device_train_batch_size * args.gradient_accumulation_steps
        health.on_step(state.global_step, epoch=state.epoch, lr=rate, samples=samples, **losses)
        if health.should_stop(state.global_step):
            control.should_training_stop = True
        if control.should_evaluate:
            self._enter("eval")
        elif control.should_save:
            self._enter("checkpoint")

    @harmless
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
        """Add the gradient norm, which only the Trainer's log has."""
        norm = (logs or {}).get("grad_norm")
        if self._health is not None and norm is not None:
            self._health.log(grad_norm=_number(norm))

    @harmless
    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **given: Any
    ) -> None:
        """Leave the evaluation's phase, and add its metrics."""
        self._leave()
        if self._health is not None and metrics:
            self._health.log(**{str(name): _number(value) for name, value in metrics.items()})
        if control.should_save:
            self._enter("checkpoint")

    @harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Remove the hook on the model, and close the callback."""
        if self._hook is not None:
            self._hook.remove()
        self._end()

    def _take_loss(self, module: Any, given: Any, named: dict[str, Any], output: Any) -> None:
        if not module.training:
            return
        try:
            items = output.items() if hasattr(output, "items") else ()
            # With the step's token count, the losses of its batches are summands; otherwise means.
            self._is_summed = named.get("num_items_in_batch") is not None
            self._add({str(name): value for name, value in items if "loss" in str(name)})
        except Exception:  # noqa: BLE001 the model's forward must not fail for us
            self._sums = {}

    on_save = Adapter._leave


def _number(value: Any) -> Any:
    """A logged value as a number, None for other text: transformers 5 logs some as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return None
