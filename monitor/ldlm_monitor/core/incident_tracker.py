"""The incidents of the runs: they are asked together with how the run stands at that moment."""

from __future__ import annotations

import math
from dataclasses import replace

from ldlm_monitor.incidents import Incidents, Standing
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.records import Event
from ldlm_monitor.model.view import IncidentView
from ldlm_monitor.run.fleet import Fleet


class IncidentTracker:
    """Takes what tells of failures, at a time in Unix seconds, and names first causes."""

    __slots__ = ("_incidents", "_runs")

    def __init__(self, runs: Fleet) -> None:
        self._runs = runs
        self._incidents = Incidents()

    def take(self, event: Event, at: float) -> None:
        """Take in an event of a log."""
        self._incidents.take(event, at, self._standing)

    def take_alert(self, transition: Transition, at: float) -> None:
        """Take in what was judged."""
        self._incidents.take_alert(transition, at, self._standing)

    def settle(self, run: str, at: float) -> None:
        """Records of a run came: what waited for them is decided."""
        self._incidents.settle(run, at, self._standing)

    def explained(self, transition: Transition, at: float) -> Transition:
        """The transition with its run's incident and the first cause, where they are known."""
        run = transition.labels.get("run")
        if run is None or transition.state != "firing":
            return transition
        cause = self._incidents.cause(run, at, self._standing)
        incident = self._incidents.incident_of(run, transition.key)
        if cause is None and incident is None:
            return transition
        return replace(transition, cause=cause, incident=incident)

    def views(self, at: float) -> tuple[IncidentView, ...]:
        """The incidents for readers, the newest last."""
        return self._incidents.views(at, self._standing)

    def _standing(self, name: str) -> Standing:
        run = self._runs.get(name)
        if run is None:
            return Standing()
        progress = run.life.progress_step
        return Standing(
            state=run.life.state,
            ended_at=run.life.ended_at,
            last_progress_at=-math.inf if progress is None else run.life.last_progress_at,
            step=progress,
            world_size=run.told.world_size,
            spoken=run.ranks,
            rank_steps=run.progress.rank_steps,
        )
