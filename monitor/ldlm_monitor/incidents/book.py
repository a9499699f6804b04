"""The incidents of all runs: what opens one, what belongs to it, what ends it.

A run that fails once has one incident, however many of its lines, ranks and files tell of
it. What may still be nothing (an exception that the program caught) is kept, but not shown:
it shows with the first critical event, the death of a process, a serious alert, or the end
of the run, and is dropped where the steps simply go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ldlm_monitor.incidents.clues import Clue, Tier, clue_of, fails
from ldlm_monitor.incidents.facts import Standing
from ldlm_monitor.incidents.incident import OPENERS, Incident, alert_clue, is_early
from ldlm_monitor.incidents.outside import BEFORE_SECONDS
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.records import Event
from ldlm_monitor.model.view import IncidentView

QUIET_SECONDS: Final = 1260.0
"""Twice torch's longest default heartbeat timeout (600 s) and a minute: nothing more will come."""
WENT_ON_SECONDS: Final = 10.0
DEAD_SECONDS: Final = 60.0
"""So long after a failure, and after the death of a process, steps show that the job outlived it.

Other files may tell their last steps later, and lines without a time are placed by those with one.
"""
ATTACH_SECONDS: Final = 60.0
"""An alert so soon after an incident is about it."""
KEPT: Final = 20
KEPT_EARLY: Final = 256
_NUMERICS: Final = "numerics"
_HOST: Final = "host"
_STARTS: Final = frozenset({"run_started", "run_resumed"})
_OVER: Final = frozenset({"finished", "crashed", "killed"})

StandingOf = Callable[[str], Standing]


class _Run:
    """The incidents of one run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.attempt = 0
        self.restarting = False
        self.failure: Incident | None = None
        self.numerics: Incident | None = None
        self.past: deque[IncidentView] = deque(maxlen=KEPT)
        self.early: deque[Clue] = deque(maxlen=KEPT_EARLY)

    def current(self) -> list[Incident]:
        return [each for each in (self.numerics, self.failure) if each is not None]


class Incidents:
    """Takes events and alerts as they are judged; `views` says what they come to."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._machines: deque[tuple[str, Clue]] = deque(maxlen=KEPT_EARLY)

    def take(self, event: Event, seen: float, standing_of: StandingOf) -> None:
        """Take in an event that was judged at `seen` (Unix seconds)."""
        run = self._runs.get(event.run)
        opens = fails(event)
        if event.fields.get("family") == _HOST and event.fields.get("role") == "root":
            self._machines.append((event.run, clue_of(event, seen)))
        if run is None:
            early = not opens and is_early(event)
            if not (opens or early or event.kind in ("elastic_restart", *_STARTS)):
                return
            run = self._runs[event.run] = _Run(event.run)
        if self._is_new_attempt(run, event, seen, standing_of):
            return
        if opens or (run.failure or run.numerics):
            self._fold(run, event, seen, opens, standing_of)
        elif is_early(event):
            run.early.append(clue_of(event, seen))

    def take_alert(self, transition: Transition, at: float, standing_of: StandingOf) -> None:
        """Take in what became of an alert at `at`: it joins an incident, or opens one."""
        name = transition.labels.get("run")
        severity = transition.labels.get("severity", "")
        if not name or severity in ("", "none", "info") or transition.state == "pending":
            return
        run = self._runs.get(name)
        if transition.state != "firing":
            for known in run.current() if run is not None else ():
                known.firing.discard(transition.key)
            return
        kind = OPENERS.get(transition.alert)
        if run is None:
            if kind is None:
                return
            run = self._runs[name] = _Run(name)
        self.settle(name, at, standing_of)
        incident = self._for_alert(run, kind, at, severity, standing_of)
        if incident is not None:
            incident.attach(transition.alert, transition.key, severity)
            if incident.step is None:
                incident.step = standing_of(name).step
            if kind == "hang_no_progress":
                incident.stall = alert_clue(transition, kind, at)
            elif kind is not None and not any(incident.evidence.of_kind(kind)):
                incident.evidence.add(alert_clue(transition, kind, at))

    def settle(self, name: str, at: float, standing_of: StandingOf) -> None:
        """See whether a run went on, or ended, since its incidents were looked at."""
        run = self._runs.get(name)
        if run is None or not (run.failure or run.numerics):
            return
        standing = standing_of(name)
        for incident in run.current():
            self._settle(run, incident, at, standing)
            self._lend(run, incident)

    def _lend(self, run: _Run, incident: Incident) -> None:
        """A kernel's log is no run: what it tells of this run's machines belongs here."""
        for owner, clue in self._machines:
            if owner != run.name and clue.seen >= incident.opened - BEFORE_SECONDS:
                incident.lend(clue)

    def cause(self, name: str, at: float, standing_of: StandingOf) -> str | None:
        """The first cause of a run's present incident where it is known, in a few words."""
        run = self._runs.get(name)
        incident = (run.failure or run.numerics) if run is not None else None
        if incident is None or incident.state != "open":
            return None
        return incident.cause(standing_of(name), at)

    def incident_of(self, name: str, key: str) -> str | None:
        """The id of the run's present incident that an alert, by its key, fires about."""
        run = self._runs.get(name)
        present = run.current() if run is not None else ()
        return next((each.id for each in present if key in each.firing), None)

    def views(self, at: float, standing_of: StandingOf) -> tuple[IncidentView, ...]:
        """All incidents that show, the newest last."""
        found: list[IncidentView] = []
        for run in self._runs.values():
            found += run.past
            if run.failure or run.numerics:
                self.settle(run.name, at, standing_of)
            if run.failure or run.numerics:
                standing = standing_of(run.name)
                found += [
                    incident.view(standing, at) for incident in run.current() if incident.shows
                ]
        return tuple(sorted(found, key=lambda each: (each.opened_at, each.id)))

    def _is_new_attempt(
        self, run: _Run, event: Event, seen: float, standing_of: StandingOf
    ) -> bool:
        """Whether the launcher starts the job again, by which the present incident is over."""
        if event.kind == "elastic_restart":
            count = event.fields.get("restart_count")
            if isinstance(count, int):
                if count > run.attempt:
                    run.attempt, run.restarting = count, False
                    self._close(run, seen, "restarted", standing_of)
            elif "global_ranks" in event.fields and run.restarting:
                run.restarting = False
                self._close(run, seen, "restarted", standing_of)
            elif event.fields.get("state"):
                run.restarting = True
            return True
        if event.kind in _STARTS:
            newest = max((each.updated for each in run.current()), default=seen)
            if seen > newest + WENT_ON_SECONDS:
                self._close(run, seen, "restarted", standing_of)
            return True
        return False

    def _fold(
        self, run: _Run, event: Event, seen: float, opens: bool, standing_of: StandingOf
    ) -> None:
        self.settle(run.name, seen, standing_of)
        numeric = event.fields.get("family") == _NUMERICS
        incident = self._open_for(run, event, seen, numeric, standing_of)
        if incident is None:
            if not opens:
                if is_early(event):
                    run.early.append(clue_of(event, seen))
                return
            incident = self._open(run, numeric, seen)
        incident.take(event, seen, fails=opens)
        if opens and (incident.step is None or not numeric):
            incident.step = standing_of(run.name).step

    def _open_for(
        self, run: _Run, event: Event, seen: float, numeric: bool, standing_of: StandingOf
    ) -> Incident | None:
        """The incident that an event belongs to, as far as there is one."""
        failure = run.failure
        if failure is not None and self._is_over(failure, event, seen):
            self._retire(run, failure, standing_of(run.name), seen)
            failure = None
        if failure is not None:
            return failure
        numerics = run.numerics
        if numerics is None or numeric:
            return numerics
        # Numbers that went wrong, and then the death of it, with no step in between.
        standing = standing_of(run.name)
        if standing.last_progress_at <= numerics.updated + WENT_ON_SECONDS and fails(event):
            run.failure, run.numerics = numerics, None
            return numerics
        return None

    def _is_over(self, incident: Incident, event: Event, seen: float) -> bool:
        """Whether a new event is of another failure."""
        began = clue_of(event, seen).effective
        if incident.state == "recovered":
            # A machine's fault may be outlived for some minutes.
            broken = [
                clue.seen
                for fold in incident.evidence.of_tier(Tier.HARDWARE)
                for clue in fold.clues
            ]
            return not fails(event) or max(broken, default=-1e18) < began - BEFORE_SECONDS
        return began > incident.updated + QUIET_SECONDS and not incident.firing

    def _open(self, run: _Run, numeric: bool, seen: float) -> Incident:
        run.number += 1
        incident = Incident(run.name, run.number, seen)
        if numeric:
            run.numerics = incident
        else:
            run.failure = incident
            for clue in run.early:
                if clue.seen >= seen - QUIET_SECONDS:
                    incident.evidence.add(clue)
            run.early.clear()
        return incident

    def _for_alert(
        self,
        run: _Run,
        kind: str | None,
        at: float,
        severity: str,
        standing_of: StandingOf,
    ) -> Incident | None:
        numeric = kind == "nonfinite_metric"
        present = run.failure or run.numerics
        if numeric and run.numerics is not None:
            present = run.numerics
        if present is not None:
            near = at <= present.updated + ATTACH_SECONDS
            if present.state == "open" or (near and kind is None):
                return present
        if kind is None or severity != "critical":
            return None
        if run.failure is not None and not numeric:
            self._retire(run, run.failure, standing_of(run.name), at)
        return self._open(run, numeric, at)

    def _settle(self, run: _Run, incident: Incident, at: float, standing: Standing) -> None:
        over = standing.ended_at if standing.state in _OVER else None
        if over is not None and over < incident.opened - 1.0:
            # A launcher that starts the job again without a word: a process of it died, too.
            over = incident.updated if incident.deadly else None
        if over is not None and incident.state == "open":
            incident.run_ended = over
            incident.shows = incident.shows or standing.state != "finished"
        patience = DEAD_SECONDS if incident.deadly else WENT_ON_SECONDS
        if standing.last_progress_at > incident.updated + patience:
            self._go_on(run, incident, standing)

    def _go_on(self, run: _Run, incident: Incident, standing: Standing) -> None:
        """The steps went on: the program outlived it."""
        if incident is run.numerics and incident.firing:
            return
        if not incident.shows:
            self._drop(run, incident)
        elif incident.state == "open":
            incident.recover(standing.last_progress_at)

    def _close(self, run: _Run, at: float, reason: str, standing_of: StandingOf) -> None:
        for incident in run.current():
            incident.end(at, reason)
            self._retire(run, incident, standing_of(run.name), at)

    def _retire(self, run: _Run, incident: Incident, standing: Standing, at: float) -> None:
        """Keep only what is shown of an incident that is over."""
        if incident.state == "open":
            incident.end(incident.updated, "quiet")
        if incident.shows:
            run.past.append(incident.view(standing, at))
        self._drop(run, incident)

    @staticmethod
    def _drop(run: _Run, incident: Incident) -> None:
        if run.failure is incident:
            run.failure = None
        if run.numerics is incident:
            run.numerics = None
