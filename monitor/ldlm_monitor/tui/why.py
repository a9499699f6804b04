"""Why a run needs a look, in one line: what happened, where, and what to do now."""

import re
from dataclasses import dataclass

from rich.cells import cell_len

from ldlm_monitor.core.health import NONFINITE_ALERTS, what_now
from ldlm_monitor.model.incident_view import IncidentView
from ldlm_monitor.model.view import ReasonView, RunView, Snapshot
from ldlm_monitor.tui.draw import Glyphs, fit, safe

_LEVEL = re.compile(r"^(?:(?:ERROR|WARNING|CRITICAL|FATAL): )+")  # the log's own word for it
_LEAST_TODO, _GOOD_TODO = 8, 18
"""Cells from which a cut decision is of use (`ROLLBACK`), and one with its confidence."""


@dataclass(frozen=True, slots=True)
class Why:
    """`what` happened, `where` (step and rank; may be empty), `todo` (may be empty), `since`."""

    what: str
    where: str = ""
    todo: str = ""
    since: float | None = None

    def line(self, width: int, glyphs: Glyphs) -> str:
        """The parts in `width` cells: the place stays, `what` and `todo` are cut."""
        arrow = " → " if glyphs.braille else " -> "
        what, where, todo = (safe(each, glyphs) for each in (self.what, self.where, self.todo))
        free = width - cell_len(where)
        room = free - cell_len(what) - len(arrow)
        if todo and room < cell_len(todo):  # at least half of the room is for what happened
            room = max(room, free // 2 - len(arrow))
        if room < min(_GOOD_TODO, cell_len(todo)):
            todo = todo.split(" (")[0]  # the decision without its confidence and reason
        tail = ""
        if todo and room >= min(_LEAST_TODO, cell_len(todo)):
            tail = arrow + fit(todo, min(room, cell_len(todo)), glyphs)
        left = max(free - cell_len(tail), 1)
        return (what if cell_len(what) <= left else fit(what, left, glyphs)) + where + tail


def why(run: RunView, snapshot: Snapshot) -> Why:
    """The worst reason for a run's health; empty for a healthy one."""
    if not run.reasons:
        return Why("")
    reason = run.reasons[0]
    incident = _incident(run, reason, snapshot)
    todo = what_now(run, snapshot.alerts)
    if mark := _nonfinite(run, reason, incident):
        step, rank, what = mark
        return Why(what, _place(step, rank), todo, reason.since)
    if incident is None:
        rank = None if f"rank {run.failed_rank}" in reason.text else run.failed_rank
        return Why(reason.text, _place(None, rank), todo, reason.since)
    what = _LEVEL.sub("", incident.root.message) or incident.title
    rank = incident.root.rank if incident.root.rank is not None else run.failed_rank
    return Why(what, _place(incident.last_step, rank), todo, reason.since)


def _place(step: int | None, rank: int | None) -> str:
    at = "" if step is None else f" at step {step}"
    return at + ("" if rank is None else f", rank {rank}")


def _incident(run: RunView, reason: ReasonView, snapshot: Snapshot) -> IncidentView | None:
    """The incident that is the reason."""
    if reason.kind != "incident":
        return None
    of_run = (each for each in reversed(snapshot.incidents) if each.run == run.name)
    return next((each for each in of_run if reason.text.startswith(each.title)), None)


def _nonfinite(
    run: RunView, reason: ReasonView, incident: IncidentView | None
) -> tuple[int, int | None, str] | None:
    """Step, rank and words for a value that was not finite, if that is the reason."""
    is_root = incident is not None and incident.root.kind == "nonfinite_metric"
    if not (is_root or reason.text.startswith(NONFINITE_ALERTS)):
        return None
    is_gradient = reason.text.startswith("NonFiniteGradient")
    marks = [each for each in run.nonfinite if (each.quantity == "grad_norm") is is_gradient]
    first = next(iter(marks or run.nonfinite), None)
    if first is None:
        return None
    rank = first.rank if first.rank is not None else run.failed_rank
    return first.step, rank, "gradient NaN/Inf" if first.quantity == "grad_norm" else "NaN/Inf"
