"""What happened to a run, as marks below its chart: NaN of any rank, alerts, checkpoints."""

from bisect import bisect_right
from dataclasses import replace

from ldlm_monitor.model.view import CurveView, RunView, Snapshot
from ldlm_monitor.tui.chart import Mark, step_of
from ldlm_monitor.tui.draw import Glyphs, safe

_LABEL = 18  # cells of a label at most: `NonFiniteGradient`; longer ones hide others


def marks_of(run: RunView, curve: CurveView, snapshot: Snapshot, glyphs: Glyphs) -> list[Mark]:
    """The marks of a run, at their own step or at the step of their time on `curve`."""
    marks = [Mark(step, glyphs.saved, "info", "saved") for step in run.checkpoints]
    for bad in run.nonfinite:
        whose = "NaN/Inf" if bad.rank is None else f"NaN/Inf rank {bad.rank}"
        marks.append(Mark(bad.step, glyphs.nonfinite, "critical", whose))
    found: list[tuple[object, float | None, str, str]] = [
        (event.fields.get("step"), event.time, event.severity, "")
        for event in snapshot.events
        if event.run == run.name and event.severity != "info"
    ]
    found += [
        (passed.step, passed.time, passed.labels.get("severity", "info"), passed.alert)
        for passed in snapshot.transitions
        if passed.labels.get("run") == run.name and passed.state == "firing"
    ]
    found += [
        (each.last_step, each.opened_at, "critical", each.root.kind)
        for each in snapshot.incidents
        if each.run == run.name and each.root.kind != "nonfinite_metric"
    ]
    for own, time, severity, name in found:
        step = float(own) if isinstance(own, int) else None
        if step is None and time is not None:
            step = step_of(curve, time)
        if step is not None and severity in glyphs.marks:
            label = safe(name, glyphs)[:_LABEL]
            marks.append(Mark(step, glyphs.marks[severity], severity, label))
    return marks


def placed(evaluation: CurveView, loss: CurveView) -> CurveView:
    """An evaluation's curve at the training steps of its times: its own steps are often none."""
    steps = [loss.steps[max(bisect_right(loss.times, at) - 1, 0)] for at in evaluation.times]
    return replace(evaluation, steps=steps) if loss.steps else evaluation
