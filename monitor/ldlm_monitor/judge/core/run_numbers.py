"""How a run's loss stands: whether it is a number, and what it goes back to where it is none."""

import math
from statistics import median
from typing import Final

from ldlm_monitor.base.snapshot import CurveView
from ldlm_monitor.judge.incidents.decision_table import Numbers
from ldlm_monitor.judge.run.quantity import is_of_update
from ldlm_monitor.judge.run.training_run import TrainingRun

SPIKE: Final = 2.0
"""Multiple of the median loss from which the losses before a NaN are of its spike. A choice: the
spikes in the figures of PaLM (arXiv 2204.02311, 5.1) are above it, noise of batches is not."""
EARLY: Final = 20
"""Logged losses up to which no trainer has saved a checkpoint that no line shows:
a choice; of more, most save by steps that they do not log."""
BEFORE: Final = 20  # logged losses of that median: a choice; fewer are noise, more are the past
SKIPPED: Final = 0.25
"""Share of all steps that were skipped from which a loss that is a number shows little. A choice: a
loss scale that finds its level skips some of the first hundred, one that follows 1 in 2,000."""


def is_lost(run: TrainingRun) -> bool:
    """Whether the loss or the gradient was not finite, and no finite loss shows that it passed.

    A loss beside a gradient was computed before its update: the next one shows what that did.
    """
    if not any(map(is_of_update, run.values.nonfinite.by_quantity())):
        return False
    loss, gradient = run.values.last("loss"), run.values.last("grad_norm")
    if loss is None or not math.isfinite(loss):
        return True
    # Hugging Face's trainer logs a loss that is no number as 0 (`logging_nan_inf_filter`).
    is_filtered = loss == 0.0 and gradient is not None and not math.isfinite(gradient)
    return is_filtered or not run.values.is_after_nonfinite("loss")


def numbers_of(run: TrainingRun) -> Numbers:
    """How the loss stands, by its curve and last value."""
    broken = run.values.nonfinite.by_quantity()
    if not any(map(is_of_update, broken)):
        return "missing" if any(name == "loss" for name, _ in run.values.missed()) else "finite"
    if not is_lost(run):
        skipped = run.progress.skipped_steps > SKIPPED * (run.progress.step or 0)
        return "skipped" if skipped else "passed"
    loss = run.values.last("loss")
    if not broken.get("loss"):
        return "lasting" if loss == 0.0 else "gradient"
    curve = run.curves().get("loss")
    sound = EARLY if curve is None else sum(map(math.isfinite, curve.means))
    if not sound:
        return "never"
    is_early = curve is not None and _begins(curve) and sound < EARLY
    return "early" if is_early and not run.progress.checkpoints else "lasting"


def _begins(curve: CurveView) -> bool:
    """Whether a curve has a training's first steps, and not those after a resume."""
    first, second, *_ = [*curve.steps[:2], 0, 0]
    return first <= max(second - first, 1)


def rollback(run: TrainingRun) -> tuple[int | None, tuple[int, int] | None]:
    """The checkpoint before the loss that is no number, and the steps that made it so.

    These are from the beginning of the spike before it, if there is one, to the first bad step.
    """
    curve = run.curves().get("loss")
    if curve is None or run.progress.step is None:
        return None, None
    bad = next((index for index, count in enumerate(curve.nonfinite) if count), None)
    if bad is None and 0.0 not in curve.means:
        return None, None
    bad = curve.means.index(0.0) if bad is None else bad
    sound = bad - 1
    while sound > 0 and _is_spike(curve, sound):
        sound -= 1
    last = curve.steps[bad]
    first = min(curve.steps[sound] + 1 if sound >= 0 else last, last)
    saved = [step for step in run.progress.checkpoints if step < first]
    # A loss that is no number may come of the update before it, after which the newest was saved.
    sure = [step for step in saved if step < first - 1] or saved
    return max(sure, default=None), (first, last)


def _is_spike(curve: CurveView, index: int) -> bool:
    usual = [mean for mean in curve.means[max(index - BEFORE, 0) : index] if math.isfinite(mean)]
    return len(usual) >= 3 and curve.highs[index] > SPIKE * median(usual) > 0
