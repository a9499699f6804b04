"""The incidents of all runs, with the state of the run at the time of each event and alert."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ldlm_monitor.incidents import Incidents, RunFacts
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.records import Event
from ldlm_monitor.model.view import IncidentView
from ldlm_monitor.run.fleet import Fleet


class IncidentTracker:
    """Turns events and alerts, at times in Unix seconds, into incidents and root causes."""

    __slots__ = ("_incidents",)

    def __init__(self, runs: Fleet) -> None:
        self._incidents = Incidents(_FactsOf(runs))

    def take(self, event: Event, at: float) -> None:
        """Process an event of a log."""
        self._incidents.take(event, at)

    def take_alert(self, transition: Transition, at: float) -> None:
        """Process a change of an alert."""
        self._incidents.take_alert(transition, at)

    def settle(self, run: str, at: float) -> None:
        """Update the incidents of a run that got records."""
        self._incidents.settle(run, at)

    def failed_rank(self, run: str, at: float) -> int | None:
        """The rank that the run's open incident names."""
        return self._incidents.failed_rank(run, at)

    def explained(self, transition: Transition, at: float) -> Transition:
        """The transition with its run's incident and the first cause, where they are known."""
        run = transition.labels.get("run")
        if run is None or transition.state != "firing":
            return transition
        cause = self._incidents.cause(run, at)
        incident = self._incidents.incident_of(run, transition.key)
        if cause is None and incident is None:
            return transition
        return replace(transition, cause=cause, incident=incident)

    def views(self, at: float) -> tuple[IncidentView, ...]:
        """The incidents for readers, the newest last."""
        return self._incidents.views(at)


@dataclass(frozen=True, slots=True)
class _FactsOf:
    """The present facts of a run by its name."""

    runs: Fleet

    def __call__(self, name: str) -> RunFacts:
        run = self.runs.get(name)
        if run is None:
            return RunFacts()
        progress = run.life.progress_step
        return RunFacts(
            state=run.life.state,
            ended_at=run.life.ended_at,
            last_progress_at=-math.inf if progress is None else run.life.last_progress_at,
            step=progress,
            world_size=run.logged.world_size,
            logged_ranks=run.ranks,
            rank_steps=run.progress.rank_steps,
        )
