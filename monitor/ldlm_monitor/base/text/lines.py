"""Status and alerts on stdout: text lines for people, JSON objects for programs."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.snapshot import RunView, Snapshot
from ldlm_monitor.base.text.format import counted, duration, iso, number
from ldlm_monitor.base.text.sanitize import jsonable, plain, summary_of

CAUSE = 200
"""Characters of the first cause in an alert's line, and of the reasons in a run's. A choice: more
fill over two terminal rows."""
SHOWN_RUNS = 20  # the most changed runs with a line each. A choice: more fill a screen
_PUBLIC = ("time", "alert", "state", "reason", "labels", "annotations", "value")
"""The fields of a transition in `--format json`, besides `position`: a public format."""


class StatusLines:
    """How the runs stand: one line, and a line for each whose health or state is new since then."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def reading(self, snapshot: Snapshot, share: float, now: float) -> Iterator[str]:
        """The lines at `now` (Unix seconds) while the first content is read: `share`, 0 to 1.

        A run has a line of its own once its newest lines say what failed.
        """
        head = f"{iso(now)}  {'STATUS':<8}  "
        runs = f"{counted(len(snapshot.runs), 'run')}, not judged yet"
        yield head + f"reading {100 * share:.0f} %  {runs if snapshot.runs else 'no run yet'}"
        failed = {run.name: run for run in snapshot.runs if run.reasons}
        for name in [name for name in failed if name not in self._known][:SHOWN_RUNS]:
            self._known[name] = f"{failed[name].health} {failed[name].state}"
            yield head + "  ".join(_status(failed[name], now))

    def of(self, snapshot: Snapshot, now: float) -> Iterator[str]:
        """The lines at `now` (Unix seconds): an unchanged snapshot may be older.

        A single active run has its line each time, with its step and losses.
        """
        standing = {run.name: f"{run.health} {run.state}" for run in snapshot.runs}
        active = [run for run in snapshot.runs if run.ended_at is None]
        changed = [run for run in snapshot.runs if standing[run.name] != self._known.get(run.name)]
        self._known = standing
        head = f"{iso(now)}  {'STATUS':<8}  "
        if len(active) == 1:
            changed = [*(run for run in changed if run is not active[0]), *active]
        elif active:
            counts = Counter(standing[run.name] for run in active)
            parts = (f"{count} {how}" for how, count in counts.most_common())
            yield head + f"{len(active)} runs  " + ", ".join(parts)
        else:
            ways = Counter(run.state for run in snapshot.runs).most_common()
            ended = ", ".join(f"{count} {state}" for state, count in ways)
            of = f"runs that have ended: {len(snapshot.runs)} ({ended})"
            yield head + (of if snapshot.runs else "no run yet")
        for run in changed[-SHOWN_RUNS:]:
            yield head + "  ".join(_status(run, now))
        if (more := len(changed) - SHOWN_RUNS) > 0:
            yield head + f"and {more} more have changed"


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
        yield f"last step {duration(now - run.last_progress_at)} ago"
    if run.eta_seconds is not None:
        yield f"{duration(run.eta_seconds)} left"
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
