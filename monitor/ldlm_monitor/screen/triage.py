"""Why a run needs a look, and the overview's order: new failures, what runs, what has ended."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from rich.cells import cell_len, set_cell_size

from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.snapshot import Health, ReasonView, RunView, Snapshot
from ldlm_monitor.judge.core.run_health import NONFINITE_ALERTS, what_now
from ldlm_monitor.screen.draw import Glyphs, fit, safe
from ldlm_monitor.screen.hold_back import muted, suppression
from ldlm_monitor.screen.page_context import PageContext, alerts_of, current

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


NEWS_SECONDS = 3600.0
"""An end without a firing alert is new for this time, as messages treat it (contract, 5)."""
_LEVELS: tuple[Health, ...] = get_args(Health)
_LEAST_PREFIX = 6  # characters that names share. A choice: fewer are no trouble to read


def is_new_failure(run: RunView, context: PageContext) -> bool:
    """Whether the run has, or ended with, a problem that nobody acknowledged or silenced."""
    if run.health == "READING":
        return bool(run.reasons)
    if run.health == "HEALTHY" and run.state != "killed":
        return False
    since = max((each.since or 0.0 for each in run.reasons), default=run.ended_at or 0.0)
    if context.seen.get(run.name, -math.inf) >= since or muted(run.name, context.held_back):
        return False
    firing = alerts_of(run.name, context.snapshot.alerts)
    if firing:
        return any(not suppression(each, context.held_back) for each in firing)
    return run.ended_at is None or context.clock() - run.ended_at <= NEWS_SECONDS


def triaged(context: PageContext) -> list[RunView]:
    """All runs: new failures, the worst and newest first; running ones; ended ones, last first."""

    def place(run: RunView) -> tuple[float | str, ...]:
        worst = -_LEVELS.index(run.health)
        if is_new_failure(run, context):
            since = run.reasons[0].since if run.reasons else run.ended_at
            return 0, worst, -(since or 0.0), run.name
        if run.ended_at is None:
            return 1, worst, 0.0, run.name
        return 2, 0, -run.ended_at, run.name

    return sorted(context.snapshot.runs, key=place)


_SORTED: dict[str, Callable[[RunView, PageContext], object]] = {
    "RUN": lambda run, context: run.name,
    "STATE": lambda run, context: (-_LEVELS.index(run.health), run.state),
    "STEP": lambda run, context: -(run.step or -1),
    "LOSS": lambda run, context: _last(current(run, "loss")),
    "SPEED": lambda run, context: run.step_seconds or math.inf,
    "ETA": lambda run, context: _last(run.eta_seconds),
    "SINCE": lambda run, context: -(since(run, context) or 0.0),
}
SORTABLE = ("", *_SORTED)
"""Columns in turn; "" is the order of triage."""


def since(run: RunView, context: PageContext) -> float | None:
    """When the run's trouble began, or without one when it ended or took its last step."""
    found = why(run, context.snapshot).since if run.reasons else None
    at = found if found is not None else run.ended_at or run.last_progress_at
    # The last step in the part of a history that was judged is not the run's last.
    is_past = run.health == "READING" and (at or 0.0) <= (run.judged_to or 0.0)
    return None if is_past else at


def _last(value: float | None) -> float:
    """The value, or after all others if it is unknown or not finite."""
    return value if value is not None and math.isfinite(value) else math.inf


def arranged(context: PageContext) -> list[RunView]:
    """The runs in the chosen order, without those that a filter leaves out."""
    how = context.arrangement
    runs = triaged(context)
    if how.column:
        runs.sort(key=lambda run: _SORTED[how.column](run, context))  # type: ignore[arg-type, return-value]
    if how.is_reversed:
        runs.reverse()
    words = how.words.lower().split()
    return [
        run
        for run in runs
        if not (how.hides_ended and run.ended_at is not None and not is_new_failure(run, context))
        and (not words or _holds(run, context, words))
    ]


def _holds(run: RunView, context: PageContext, words: Iterable[str]) -> bool:
    text = f"{run.name} {run.state} {run.health} {run.framework} {why(run, context.snapshot).what}"
    return all(word in text.lower() for word in words)


def shared_prefix(names: Sequence[str]) -> str:
    """What all names begin with, up to a separator; "" if that is short or a whole name."""
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)  # what these share, all that are sorted between share
    same = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    found = first[: next(same, min(len(first), len(last)))]
    end = max(found.rfind(mark) for mark in "_-./") + 1
    return found[:end] if end >= _LEAST_PREFIX else ""


def middle_cut(name: str, width: int, glyphs: Glyphs) -> str:
    """The name in `width` cells; of a longer one the middle is left out: both ends differ."""
    length = cell_len(name)
    if length <= width or width < 4:
        return fit(name, width, glyphs)
    tail = (width - 1) // 2
    end = name[-tail:]
    while cell_len(end) > tail:
        end = end[1:]
    return set_cell_size(name, width - 1 - cell_len(end)) + glyphs.ellipsis + end
