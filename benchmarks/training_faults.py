"""One fault each, put into a training that is healthy otherwise, and the alert that must fire."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from healthy_training import Fault, Step, Training

STEPS = 6_000
BEGINS = 4_000


@dataclass(frozen=True, slots=True)
class Case:
    """A training, what goes wrong with it from step `BEGINS` on, and the alert for it."""

    alert: str
    what: str
    training: Training
    fault: Fault


_ROWS = Training("fault", "rows", STEPS, 7)


def _diverge(step: Step, since: int) -> None:
    """The loss doubles every 300 steps up to a plateau, the gradients with it."""
    factor = min(2.0 ** (since / 300), 5.0)
    step.loss, step.grad_norm = step.loss * factor, step.grad_norm * factor


def _spike(step: Step, since: int) -> None:
    """A spike as of a bad batch and a too large step: four times, gone after 40 steps."""
    step.loss *= 1.0 + 3.0 * math.exp(-since / 15)


def _halve_throughput(step: Step, since: int) -> None:
    del since
    step.seconds *= 2.0


def _straggle(step: Step, since: int) -> None:
    """The last rank takes nearly twice as long, and all wait for it."""
    del since
    step.seconds, step.slow_rank = step.seconds * 1.8, 1.8


def _leak(step: Step, since: int) -> None:
    """A graph is kept alive: 0.02 % more memory every step."""
    step.memory *= 1.0 + 0.0002 * since


def _freeze_loss(step: Step, since: int) -> None:
    """The trainer puts a constant in place of a NaN."""
    del since
    step.loss = 100.0


def _collapse_scale(step: Step, since: int) -> None:
    """Every step overflows, so the scale is halved until nothing is left of it."""
    step.scale, step.skipped = max(65_536.0 * 0.5**since, 2.0**-20), True


def _save_no_more(step: Step, since: int) -> None:
    del since
    step.saves = False


def _hang(step: Step, since: int) -> None:
    """A collective waits for two hours."""
    step.seconds += 7_200.0 if since == 0 else 0.0


def _explode_gradients(step: Step, since: int) -> None:
    del since
    step.grad_norm *= 100.0


def _to_nan(step: Step, since: int) -> None:
    del since
    step.loss = math.nan


def _end_schedule(step: Step, since: int) -> None:
    """The schedule falls to 0 within 200 steps, long before the run ends."""
    step.rate *= max(1 - since / 200, 0.0)


def _cut_gradient(step: Step, since: int) -> None:
    """The loss no longer depends on what is trained."""
    del since
    step.grad_norm = 0.0


_ALERTS: tuple[tuple[str, str, Training, Callable[[Step, int], None]], ...] = (
    ("LossDiverging", "loss doubles every 300 steps", _ROWS, _diverge),
    ("LossSpike", "four times the loss, gone after 40 steps", _ROWS, _spike),
    (
        "LossSpike",
        "four times the loss, gone within two seconds",
        replace(_ROWS, step_seconds=0.02),
        _spike,
    ),
    ("LossConstant", "the same value to the last digit", _ROWS, _freeze_loss),
    ("NonFiniteLoss", "NaN from a step on", _ROWS, _to_nan),
    ("GradientNormHigh", "a hundred times the norm", _ROWS, _explode_gradients),
    (
        "GradientNormHigh",
        "a hundred times the norm, 20 steps a second",
        replace(_ROWS, step_seconds=0.05),
        _explode_gradients,
    ),
    ("LossScaleCollapsed", "every step overflows", replace(_ROWS, fp16=True), _collapse_scale),
    (
        "StepsSkipped",
        "every step overflows, and each is logged",
        Training("fault", "mmldlm", STEPS, 7, fp16=True),
        _collapse_scale,
    ),
    ("ThroughputDrop", "steps take twice as long", _ROWS, _halve_throughput),
    (
        "ThroughputDrop",
        "steps take twice as long, 20 a second",
        replace(_ROWS, step_seconds=0.05, eval_every=STEPS),
        _halve_throughput,
    ),
    (
        "RankStraggling",
        "one rank of four takes 1.8 times as long",
        Training("fault", "ranks", STEPS, 7, ranks=4),
        _straggle,
    ),
    ("MemoryGrowing", "0.02 % more memory every step", _ROWS, _leak),
    (
        "CheckpointStale",
        "no checkpoint any more, one every 250 steps before",
        Training("fault", "mmldlm", 4 * STEPS, 7, checkpoint_every=250),
        _save_no_more,
    ),
    ("LearningRateZero", "a schedule that ends before the run", _ROWS, _end_schedule),
    ("GradientZero", "a norm of 0 from a step on", _ROWS, _cut_gradient),
    ("TrainingStalled", "no step for two hours", _ROWS, _hang),
)
CASES: tuple[Case, ...] = tuple(Case(*each) for each in _ALERTS)
