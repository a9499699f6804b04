"""Why a run needs a look, and the overview's order: new failures, what runs, what has ended."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from rich.cells import cell_len, set_cell_size

from ldlm_monitor.base.headline import ARROW, Headline
from ldlm_monitor.base.snapshot import Health, RunView, Snapshot
from ldlm_monitor.judge.core.headlines import headline_of
from ldlm_monitor.screen.draw import Glyphs, fit, safe
from ldlm_monitor.screen.hold_back import muted, suppression
from ldlm_monitor.screen.page_context import PageContext, alerts_of, current

_LEAST_TODO = 8  # cells from which a cut text is of use, such as `roll bac…`


def why(run: RunView, snapshot: Snapshot) -> Headline:
    """Why a run needs a look, or how it ended; without words for one that is well."""
    found = headline_of(run, snapshot.alerts, snapshot.incidents)
    return found if found is not None else Headline(mark="", run=run.name, what="")


def row_text(found: Headline, width: int, glyphs: Glyphs) -> str:
    """What, where and what to do in `width` cells: the place stays; of `what` at least a half."""
    arrow = safe(ARROW, glyphs)
    what, where, todo = (safe(each, glyphs) for each in (found.what, found.where, found.todo))
    sure = safe(found.sure, glyphs)
    free = width - cell_len(where)
    room = free - cell_len(what) - cell_len(arrow)
    now = _cut(todo, sure, room, max(room, free // 2 - cell_len(arrow)), glyphs)
    tail = arrow + now if now else ""
    left = max(free - cell_len(tail), 1)
    return (what if cell_len(what) <= left else fit(what, left, glyphs)) + where + tail


def _cut(todo: str, sure: str, room: int, most: int, glyphs: Glyphs) -> str:
    """What to do in `room` cells; without its reason and confidence, in up to `most`."""
    certain = f"{todo} {sure.partition(': ')[0]}".rstrip()
    whole = f"{todo} {sure}".rstrip()
    if cell_len(whole) <= room or cell_len(certain) + _LEAST_TODO <= room:
        return fit(whole, min(room, cell_len(whole)), glyphs)
    if cell_len(certain) <= room:  # the event is worth more than how sure
        return certain
    if most < min(_LEAST_TODO, cell_len(todo)):
        return ""
    return fit(todo, min(most, cell_len(todo)), glyphs)


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
