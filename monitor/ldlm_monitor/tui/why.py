"""Why a run needs a look, in one line: what happened, where, and what to do now."""

import re
from dataclasses import dataclass

from rich.cells import cell_len

from ldlm_monitor.core.health import NONFINITE_ALERTS, what_now
from ldlm_monitor.model.incident_view import IncidentView
from ldlm_monitor.model.view import ReasonView, RunView, Snapshot
from ldlm_monitor.tui.draw import Glyphs, fit, safe

_LEVEL = re.compile(r"^(?:(?:ERROR|WARNING|CRITICAL|FATAL): )+")  # the log's own word for it
_MOST_RANKS = 12  # characters of a list of ranks, a choice: a longer one displaces the reason
_HAS_STEP = re.compile(r"\bstep \d", re.IGNORECASE)
_LEAST_TODO = 8  # cells from which a cut text is of use, such as `ROLLBACK`


@dataclass(frozen=True, slots=True)
class Why:
    """`what` happened, `where` (step and ranks), `since` (Unix seconds), `todo` and what to try.

    Texts may be empty.
    """

    what: str
    where: str = ""
    todo: str = ""
    since: float | None = None
    tries: str = ""

    def line(self, width: int, glyphs: Glyphs) -> str:
        """The parts in `width` cells: the place stays; of `what` at least a half does."""
        arrow = " → " if glyphs.braille else " -> "
        what, where, todo = (safe(each, glyphs) for each in (self.what, self.where, self.todo))
        if todo.startswith("UNKNOWN"):  # cut to that word it would be no answer
            todo = "read its log (UNKNOWN)"
        free = width - cell_len(where)
        room = free - cell_len(what) - cell_len(arrow)
        now = _cut(todo, room, max(room, free // 2 - cell_len(arrow)), glyphs)
        tail = arrow + now if now else ""
        left = max(free - cell_len(tail), 1)
        return (what if cell_len(what) <= left else fit(what, left, glyphs)) + where + tail


def _cut(todo: str, room: int, most: int, glyphs: Glyphs) -> str:
    """The decision in `room` cells; without its reason and confidence, in up to `most`."""
    certain, order = todo.partition(": ")[0], todo.partition(" (")[0]
    if cell_len(todo) <= room or cell_len(certain) + _LEAST_TODO <= room:
        return fit(todo, min(room, cell_len(todo)), glyphs)
    tried = (certain, room), (order, room), (order, most)  # the event is worth more than how sure
    short = next((each for each, free in tried if cell_len(each) <= free), todo)
    if most < min(_LEAST_TODO, cell_len(short)):
        return ""
    return fit(short, min(most, cell_len(short)), glyphs)


def why(run: RunView, snapshot: Snapshot) -> Why:
    """The worst reason for a run's health; empty for a healthy one."""
    if not run.reasons:
        return Why("")
    reason = run.reasons[0]
    incident = _incident(run, reason, snapshot)
    todo = what_now(run, snapshot.alerts)
    tries = incident.action if incident is not None and incident.is_to_mend else ""
    if mark := _nonfinite(run, reason, incident):
        at, rank, what = mark
        return Why(what, _place(at, rank), todo, reason.since, tries)
    if incident is None:
        rank = None if f"rank {run.failed_rank}" in reason.text else run.failed_rank
        return Why(reason.text, _place(None, rank), todo, reason.since)
    root = incident.root
    what = _LEVEL.sub("", root.message) or incident.title
    rank = root.rank if root.rank is not None else run.failed_rank
    if rank is not None and what.startswith(f"rank {rank} "):
        rank = None  # is said already
    ranks = root.ranks if rank is root.rank is None and len(root.ranks) <= _MOST_RANKS else ""
    step = None if _HAS_STEP.search(what) else incident.last_step  # two numbers would contradict
    return Why(what, _place(step, rank, ranks), todo, reason.since, tries)


def _place(step: int | None, rank: int | None, ranks: str = "") -> str:
    at = "" if step is None else f" at step {step}"
    return at + (f", rank {rank}" if rank is not None else f", ranks {ranks}" if ranks else "")


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
