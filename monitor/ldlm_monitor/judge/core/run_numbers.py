"""How a run's loss stands: whether it is a number, and what it goes back to where it is none."""

import math
from statistics import median
from typing import Final

from ldlm_monitor.base.snapshot import CurveView
from ldlm_monitor.judge.incidents.decision_table import Numbers
from ldlm_monitor.judge.run.training_run import TrainingRun

SPIKE: Final = 2.0
"""Multiple of the median loss, of the last ones or of the attempt, from which the losses before a
NaN are of its spike. A choice: the spikes in the figures of PaLM (arXiv 2204.02311, 5.1) are above
it, noise of batches is not."""
EARLY: Final = 20
"""Logged losses up to which no trainer has saved a checkpoint that no line shows:
a choice; of more, most save by steps that they do not log."""
BEFORE: Final = 20  # logged losses of that median: a choice; fewer are noise, more are the past
SKIPPED: Final = 0.25
"""Share of all steps that were skipped from which a loss that is a number shows little. A choice: a
loss scale that finds its level skips some of the first hundred, one that follows 1 in 2,000."""
LEVELS: Final = 32
"""Steps that a loss scale may skip until it finds its level: it begins at 2^32 at most, and each
halves it."""


def is_lost(run: TrainingRun) -> bool:
    """Whether a rank's loss, a part of it or a gradient was not finite and has not passed."""
    return any(run.values.lost())


def _as_logged(run: TrainingRun) -> Numbers:
    if not run.values.is_finite("eval_loss"):
        return "untested"
    if run.values.nonfinite.are_of_update():
        return "passed"
    return "missing" if any(name == "loss" for name, _ in run.values.missed()) else "finite"


def numbers_of(run: TrainingRun) -> Numbers:
    """How the loss stands, by its curve and last value."""
    lost = list(run.values.lost())
    if not any(is_own for _, is_own in lost):
        # Hugging Face's trainer logs a loss that is no number as 0 (`logging_nan_inf_filter`).
        if lost and run.values.last("loss") == 0.0:
            return "lasting"
        if has_skipped_many(run):
            return "skipped"
        if lost:
            return "partly"
        return _as_logged(run)
    curve = run.curves().get("loss")
    sound = EARLY if curve is None else sum(map(math.isfinite, curve.means))
    if not sound:
        return "never"
    # Of a log without steps, each row may be an epoch.
    has_steps = run.progress.step is not None
    is_early = curve is not None and has_steps and _begins(curve) and sound < EARLY
    return "early" if is_early and not run.progress.sound else "lasting"


def has_skipped_many(run: TrainingRun) -> bool:
    """Whether the launch skipped so many steps that a loss which is a number shows little."""
    skipped, taken = run.progress.skipped_of_launch, run.progress.taken
    is_past_start = skipped > LEVELS or (run.life.ended and skipped > taken / 2)
    return is_past_start and skipped > SKIPPED * taken


def _begins(curve: CurveView) -> bool:
    """Whether a curve has a training's first steps, and not those after a resume."""
    first, second, *_ = [*curve.steps[:2], 0, 0]
    return first <= max(second - first, 1)


def rollback(run: TrainingRun) -> tuple[int | None, tuple[int, int] | None]:
    """The checkpoint before the loss that is no number, and the steps that made it so.

    These are from the beginning of the spike before it, if there is one, to the first bad step
    after the last loss that was a number.
    """
    curve = run.curves().get("loss")
    if curve is None or run.progress.step is None:
        return None, None
    steps, end = curve.steps, len(curve.steps)
    # The present attempt: steps fall where it resumed.
    begin = max((index for index in range(1, end) if steps[index] < steps[index - 1]), default=0)
    bad = end
    while bad > begin and (curve.nonfinite[bad - 1] or curve.means[bad - 1] == 0.0):
        bad -= 1
    if bad == end:
        return None, None
    sound = bad - 1
    level = median([*filter(math.isfinite, curve.means[begin:bad])] or [math.inf])
    while sound > begin and _is_spike(curve, sound, level):
        sound -= 1
    last = curve.steps[bad]
    first = min(curve.steps[sound] + 1 if sound >= 0 else last, last)
    saved = [step for step in run.progress.sound if step < first]
    # A loss that is no number may come of the update before it, after which the newest was saved.
    sure = [step for step in saved if step < first - 1] or saved
    return max(sure, default=None), (first, last)


def _is_spike(curve: CurveView, index: int, level: float) -> bool:
    """Whether a loss is far above those before it, or above the attempt's `level`, as where it
    stays there.
    """
    usual = [mean for mean in curve.means[max(index - BEFORE, 0) : index] if math.isfinite(mean)]
    return len(usual) >= 3 and curve.highs[index] > SPIKE * min(median(usual), level) > 0
