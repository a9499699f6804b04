"""Status and alerts on stdout: text lines for people, JSON objects for programs."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.snapshot import Health, RunView, Snapshot
from ldlm_monitor.base.text.format import duration, iso, number
from ldlm_monitor.base.text.sanitize import jsonable, plain, summary_of

CAUSE = 200
"""Characters of the first cause in an alert's line, and of the reasons in a run's. A choice: more
fill over two terminal rows."""
SHOWN_RUNS = 20  # changed runs with a line each, the worst first. A choice: more fill a screen
_LEVELS: tuple[Health, ...] = get_args(Health)
_PUBLIC = ("time", "alert", "state", "reason", "labels", "annotations", "value")
"""The fields of a transition in `--format json`, besides `position`: a public format."""


class StatusLines:
    """How the runs stand: one line, and a line for each whose health or state is new since then."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, snapshot: Snapshot, now: float) -> Iterator[str]:
        """The lines at `now` (Unix seconds): an unchanged snapshot may be older.

        A single active run has its line each time, with its step and losses. One that is not judged
        yet has a line if its newest lines say what failed. While history is read, the first line
        says how far.
        """
        standing = {run.name: f"{run.health} {run.state}" for run in snapshot.runs}
        active = [run for run in snapshot.runs if run.ended_at is None]
        said = [run for run in snapshot.runs if run.health != "READING" or run.reasons]
        changed = [run for run in said if standing[run.name] != self._known.get(run.name)]
        changed.sort(key=lambda run: -_LEVELS.index(run.health))
        self._known = {run.name: standing[run.name] for run in said}
        head = f"{iso(now)}  {'STATUS':<8}  "
        summary = [] if len(active) == 1 else [_summary(snapshot.runs, active, standing)]
        summary += [unjudged] if (unjudged := snapshot.unjudged(iso)) else []
        if summary:
            yield head + "  ".join(summary)
        if len(active) == 1:
            changed = [*active, *(run for run in changed if run is not active[0])]
        for run in changed[:SHOWN_RUNS]:
            yield head + "  ".join(_status(run, now))
        if (more := len(changed) - SHOWN_RUNS) > 0:
            yield head + f"and {more} more have changed"


def _summary(
    runs: Sequence[RunView], active: Sequence[RunView], standing: Mapping[str, str]
) -> str:
    if active:
        counts = Counter(standing[run.name] for run in active).most_common()
        return f"{len(active)} runs  " + ", ".join(f"{count} {how}" for how, count in counts)
    ways = Counter(run.state for run in runs).most_common()
    ended = ", ".join(f"{count} {state}" for state, count in ways)
    return f"runs that have ended: {len(runs)} ({ended})" if runs else "no run yet"


def _status(run: RunView, now: float) -> Iterator[str]:
    also = f" ({plain(run.also_called)})" if run.also_called else ""
    yield plain(run.name) + also
    yield f"{run.health} {run.state}"
    if run.step is not None:
        yield f"step {run.step}" + (f"/{run.total_steps}" if run.total_steps else "")
    for quantity in ("loss", "grad_norm"):
        if known := run.statistics.get(quantity):
            yield f"{quantity} {number(known.current)}"
    if run.last_progress_at is not None:
        about = run.about(run.last_progress_at)
        yield f"last step {about}{duration(now - run.last_progress_at)} ago"
    if run.eta_seconds is not None:
        yield f"{duration(run.eta_seconds)} left"
    if unjudged := run.unjudged(iso):
        yield unjudged
    if run.reasons:
        yield plain(run.because, CAUSE)


def transition_json(transition: Transition) -> str:
    """A transition as one JSON object; non-finite numbers are strings, secrets redacted."""
    shown: dict[str, Any] = {name: getattr(transition, name) for name in _PUBLIC}
    shown["position"] = transition.position and asdict(transition.position)
    return json.dumps(jsonable(shown), allow_nan=False)


def transition_line(transition: Transition) -> str:
    """One line: time, state, alert, severity, run/rank, summary, file:line, first cause."""
    labels = transition.labels
    # Each alone: a secret's value may end with `/`, and would take the next one's name away.
    whose = "/".join(plain(labels[name]) for name in ("run", "rank") if name in labels) or "-"
    position = transition.position
    cells = (
        f"{iso(transition.time):<24}",
        f"{transition.state.upper():<8}",
        f"{transition.alert:<20}",
        f"{labels.get('severity', '-'):<8}",
        whose,
        summary_of(transition.annotations, labels.get("run", "")),
        f"{plain(position.path)}:{position.line}" if position else "",
        f"cause: {plain(transition.cause, CAUSE)}" if transition.cause else "",
    )
    return "  ".join(cell for cell in cells if cell).rstrip()
