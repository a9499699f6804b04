"""The order of the overview: new failures first, then what runs, then what has ended."""

import math
from collections.abc import Callable, Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from ldlm_monitor.core.health import HEALTH
from ldlm_monitor.model.view import RunView
from ldlm_monitor.tui.draw import Glyphs, fit
from ldlm_monitor.tui.hold_back import muted, suppression
from ldlm_monitor.tui.page_context import PageContext, alerts_of, current
from ldlm_monitor.tui.why import why

NEWS_SECONDS = 3600.0
"""An end without a firing alert is new for this time, as messages treat it (contract, 5)."""
_LEAST_PREFIX = 6  # characters that names share. A choice: fewer are no trouble to read


def is_new_failure(run: RunView, context: PageContext) -> bool:
    """Whether the run has, or ended with, a problem that nobody acknowledged or silenced."""
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
        worst = -HEALTH.index(run.health)
        if is_new_failure(run, context):
            since = run.reasons[0].since if run.reasons else run.ended_at
            return 0, worst, -(since or 0.0), run.name
        if run.ended_at is None:
            return 1, worst, 0.0, run.name
        return 2, 0, -run.ended_at, run.name

    return sorted(context.snapshot.runs, key=place)


_SORTED: dict[str, Callable[[RunView, PageContext], object]] = {
    "RUN": lambda run, context: run.name,
    "STATE": lambda run, context: (-HEALTH.index(run.health), run.state),
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
    return found if found is not None else run.ended_at or run.last_progress_at


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
