"""The order of the overview: new failures first, then what runs, then what has ended."""

import math
from collections.abc import Callable, Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from ldlm_monitor.core.health import HEALTH
from ldlm_monitor.model.view import RunView
from ldlm_monitor.tui.desk import Desk, alerts_of, current
from ldlm_monitor.tui.draw import Glyphs, fit
from ldlm_monitor.tui.hold_back import muted, suppression
from ldlm_monitor.tui.why import why

NEWS_SECONDS = 3600.0
"""An end without a firing alert is new for this time, as messages treat it (contract, 5)."""
_LEAST_PREFIX = 6  # characters that names share. A choice: fewer are no trouble to read


def is_new_failure(run: RunView, desk: Desk) -> bool:
    """Whether the run has, or ended with, a problem that nobody acknowledged or silenced."""
    if run.health == "HEALTHY" and run.state != "killed":
        return False
    since = max((each.since or 0.0 for each in run.reasons), default=run.ended_at or 0.0)
    if desk.seen.get(run.name, -math.inf) >= since or muted(run.name, desk.held_back):
        return False
    firing = alerts_of(run.name, desk.snapshot.alerts)
    if firing:
        return any(not suppression(each, desk.held_back) for each in firing)
    return run.ended_at is None or desk.clock() - run.ended_at <= NEWS_SECONDS


def triaged(desk: Desk) -> list[RunView]:
    """All runs: new failures, the worst and newest first; running ones; ended ones, last first."""

    def place(run: RunView) -> tuple[float | str, ...]:
        worst = -HEALTH.index(run.health)
        if is_new_failure(run, desk):
            since = run.reasons[0].since if run.reasons else run.ended_at
            return 0, worst, -(since or 0.0), run.name
        if run.ended_at is None:
            return 1, worst, 0.0, run.name
        return 2, 0, -run.ended_at, run.name

    return sorted(desk.snapshot.runs, key=place)


_SORTED: dict[str, Callable[[RunView, Desk], object]] = {
    "RUN": lambda run, desk: run.name,
    "STATE": lambda run, desk: (-HEALTH.index(run.health), run.state),
    "STEP": lambda run, desk: -(run.step or -1),
    "LOSS": lambda run, desk: _last(current(run, "loss")),
    "SPEED": lambda run, desk: run.step_seconds or math.inf,
    "ETA": lambda run, desk: _last(run.eta_seconds),
    "SINCE": lambda run, desk: -(since(run, desk) or 0.0),
}
SORTABLE = ("", *_SORTED)
"""Columns in turn; "" is the order of triage."""


def since(run: RunView, desk: Desk) -> float | None:
    """When the run's trouble began, or without one when it ended or took its last step."""
    found = why(run, desk.snapshot).since if run.reasons else None
    return found if found is not None else run.ended_at or run.last_progress_at


def _last(value: float | None) -> float:
    """The value, or after all others if it is unknown or not finite."""
    return value if value is not None and math.isfinite(value) else math.inf


def arranged(desk: Desk) -> list[RunView]:
    """The runs in the chosen order, without those that a filter leaves out."""
    how = desk.arrangement
    runs = triaged(desk)
    if how.column:
        runs.sort(key=lambda run: _SORTED[how.column](run, desk))  # type: ignore[arg-type, return-value]
    if how.is_reversed:
        runs.reverse()
    words = how.words.lower().split()
    return [
        run
        for run in runs
        if not (how.hides_ended and run.ended_at is not None and not is_new_failure(run, desk))
        and (not words or _holds(run, desk, words))
    ]


def _holds(run: RunView, desk: Desk, words: Iterable[str]) -> bool:
    text = f"{run.name} {run.state} {run.health} {run.framework} {why(run, desk.snapshot).what}"
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
