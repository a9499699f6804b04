"""The incidents of all runs: which events open, join and end an incident.

One failure of a run is one incident, however many lines, ranks and files report it. An
incident that may be a caught exception is stored, but not shown. A critical event, the death
of a process, a serious alert or the end of the run makes it show; if steps follow before
that, it is dropped.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.names import ENDED_STATES
from ldlm_monitor.base.records import Event
from ldlm_monitor.base.snapshot import ReasonView
from ldlm_monitor.judge.incidents.clues import Clue, Tier, clue_of, fails
from ldlm_monitor.judge.incidents.folded_evidence import NONFINITE, STALL
from ldlm_monitor.judge.incidents.incident import (
    OPENERS,
    Answer,
    Incident,
    alert_clue,
    is_early,
)
from ldlm_monitor.judge.incidents.outside_causes import BEFORE_SECONDS
from ldlm_monitor.judge.incidents.roster import RunFacts
from ldlm_monitor.logs.parse.meanings import meaning_of

QUIET_SECONDS: Final = 1260.0
"""Events this long after an incident's last one are of another failure. Twice torch's longest
default heartbeat timeout (600 s), and a minute."""
WENT_ON_SECONDS: Final = 10.0
"""A step this long after a failure shows that the job survived it. A choice: other files may log
their last steps later, and lines without a time get that of their neighbours."""
DEAD_SECONDS: Final = 60.0
"""A step this long after a process died shows that the job survived it. Twice the 30 s for which
the other processes may log steps until torchrun kills them."""
ATTACH_SECONDS: Final = 60.0
"""An alert that fires this soon after an incident's last event belongs to it. A choice above the
`for` of the default rules on failures: more joins alerts of other causes."""
KEPT: Final = 20  # past incidents kept of a run. A choice: more cost memory, fewer hide old ones
KEPT_EARLY: Final = 256  # events kept before an incident. A choice: more cost memory in a flood
_NUMERICS: Final = "numerics"  # `family` of events about non-finite numbers (`parse/data/events`)
_HOST: Final = "host"  # `family` of the events in kernel logs


class _RunIncidents:
    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.attempt = 1
        self.failure: Incident | None = None
        self.numerics: Incident | None = None
        self.past: deque[IncidentView] = deque(maxlen=KEPT)
        self.early: deque[Clue] = deque(maxlen=KEPT_EARLY)

    def current(self) -> list[Incident]:
        return [each for each in (self.numerics, self.failure) if each is not None]


class Incidents:
    """Turns events and alerts, in the order of processing, into incidents. Times: Unix seconds.

    `facts_of` returns the present facts of a run by its name.
    """

    def __init__(self, facts_of: Callable[[str], RunFacts]) -> None:
        self._facts_of = facts_of
        self._runs: dict[str, _RunIncidents] = {}
        self._machines: deque[tuple[str, Clue]] = deque(maxlen=KEPT_EARLY)

    def take(self, event: Event, seen: float) -> None:
        """Process an event, which arrived at `seen`."""
        run = self._runs.get(event.run)
        opens = fails(event)
        if event.fields.get("family") == _HOST and event.fields.get("role") == "root":
            self._machines.append((event.run, clue_of(event, seen)))
        if run is None:
            early = not opens and is_early(event)
            if not (opens or early):
                return
            run = self._runs[event.run] = _RunIncidents(event.run)
        self._follow_attempts(run, seen)
        if "start" in meaning_of(event).words:
            return
        if opens or (run.failure or run.numerics):
            self._fold(run, event, seen, opens)
        elif is_early(event):
            run.early.append(clue_of(event, seen))

    def take_alert(self, transition: Transition, at: float) -> None:
        """Process a change of an alert at `at`: a firing alert joins or opens an incident."""
        name = transition.labels.get("run")
        severity = transition.labels.get("severity", "")
        if not name or severity in ("", "none", "info"):
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
            run = self._runs[name] = _RunIncidents(name)
        self.settle(name, at)
        incident = self._for_alert(run, kind, at, severity)
        if incident is not None:
            incident.attach(transition.alert, transition.key, severity)
            if incident.step is None:
                incident.locate(self._facts_of(name))
            if kind == STALL:
                incident.stall = alert_clue(transition, kind, at)
            elif kind is not None:
                clue = alert_clue(transition, kind, at)
                folds = [*incident.evidence.of_kind(kind)]
                ranks = {rank for fold in folds for rank in fold.ranks}
                logged = any("reported_by" not in fold.first.fields for fold in folds)
                if not folds or not (logged or clue.rank is None or clue.rank in ranks):
                    incident.evidence.add(clue)

    def settle(self, name: str, at: float) -> None:
        """Update the states of a run's incidents, and add faults of its machines to them."""
        run = self._runs.get(name)
        if run is None or not (run.failure or run.numerics):
            return
        self._follow_attempts(run, at)
        facts = self._facts_of(name)
        for incident in run.current():
            self._settle(run, incident, at, facts)
            # Faults of this run's machines are in kernel logs, which have runs of their own.
            since, until = incident.opened - BEFORE_SECONDS, incident.updated + QUIET_SECONDS
            for owner, clue in self._machines:
                if owner != name and since <= clue.seen <= until:
                    incident.add_host_fault(clue)

    def forget(self, name: str) -> None:
        """Drop a run's incidents."""
        self._runs.pop(name, None)

    def failed_rank(self, name: str, at: float) -> int | None:
        """The rank that caused a run's open incident; None if unknown, or without an incident."""
        run = self._runs.get(name)
        found = (run.failure or run.numerics) if run is not None else None
        return found.answer(self._facts_of(name), at).rank if found is not None else None

    def reasons(self, name: str, at: float) -> Iterator[tuple[ReasonView, bool]]:
        """The run's incidents that are open, or with which it ended, as reasons of its health.

        Also that it survived a GPU's fault, while it goes on.
        Beside each, whether it is of numbers alone, which later ones show to have passed.
        """
        if name not in self._runs:
            return
        self.settle(name, at)
        facts, run = self._facts_of(name), self._runs[name]
        for incident in run.current():
            if incident.shows and incident.state == "open" and facts.state != "finished":
                yield incident.reason(facts, at), incident is run.numerics
            elif facts.state not in ENDED_STATES and (fault := incident.survived_fault(facts, at)):
                yield fault, False

    def answer(self, name: str, key: str, at: float) -> Answer | None:
        """What the run's incident to which the firing alert `key` belongs answers; None without."""
        present = self._runs[name].current() if name in self._runs else ()
        found = next((each for each in present if key in each.firing), None)
        return None if found is None else found.answer(self._facts_of(name), at)

    def has(self, name: str, key: str) -> bool:
        """Whether the firing alert `key` belongs to an open incident of a run that views show."""
        present = self._runs[name].current() if name in self._runs else ()
        return any(key in each.firing and each.shows and each.state == "open" for each in present)

    def has_survived(self, name: str, key: str) -> bool:
        """Whether the run took steps again after the incident of the firing alert `key`."""
        present = self._runs[name].current() if name in self._runs else ()
        return any(key in each.firing and each.state == "recovered" for each in present)

    def views(self, at: float, name: str | None = None) -> tuple[IncidentView, ...]:
        """The incidents to show of all runs, or of the one `name`; the newest last."""
        found: list[IncidentView] = []
        own = self._runs.get(name) if name is not None else None
        for run in self._runs.values() if name is None else filter(None, (own,)):
            found += run.past
            self.settle(run.name, at)
            if current := run.current():
                facts = self._facts_of(run.name)
                found += [incident.view(facts, at) for incident in current if incident.shows]
        return tuple(sorted(found, key=lambda each: (each.opened_at, each.id)))

    def _follow_attempts(self, run: _RunIncidents, at: float) -> None:
        """End the incidents of an earlier attempt if the run has begun another one."""
        attempt = self._facts_of(run.name).attempt
        if attempt != run.attempt:
            run.attempt = attempt
            run.early.clear()
            for incident in run.current():  # no step came after it, so it was no caught exception
                incident.shows = incident.shows or incident is run.failure
            self._close(run, at, "restarted")

    def _fold(self, run: _RunIncidents, event: Event, seen: float, opens: bool) -> None:
        self.settle(run.name, seen)
        numeric = event.fields.get("family") == _NUMERICS
        incident = self._open_for(run, event, seen, numeric)
        if incident is None:
            if not opens:
                if is_early(event):
                    run.early.append(clue_of(event, seen))
                return
            incident = self._open(run, numeric, seen)
        incident.take(event, seen, fails=opens)
        if opens:
            incident.refuted_ends = self._facts_of(run.name).refuted_ends
        later = numeric or incident.evidence.deed is not None  # the deed answers what was before
        if opens and (incident.step is None or not later):
            incident.locate(self._facts_of(run.name))

    def _open_for(
        self, run: _RunIncidents, event: Event, seen: float, numeric: bool
    ) -> Incident | None:
        """The incident that an event belongs to; None if it would be a new one."""
        failure = run.failure
        if failure is not None and self._is_over(failure, event, seen):
            self._retire(run, failure, self._facts_of(run.name), seen)
            failure = None
        if failure is not None:
            return failure
        numerics = run.numerics
        if numerics is None or numeric:
            return numerics
        # Non-finite numbers, then a death without a step in between, are one failure.
        last = self._facts_of(run.name).last_progress_at
        near = last <= numerics.updated + WENT_ON_SECONDS or "deed" in meaning_of(event).words
        if near and fails(event):
            run.failure, run.numerics = numerics, None
            return numerics
        return None

    def _is_over(self, incident: Incident, event: Event, seen: float) -> bool:
        began = clue_of(event, seen).effective
        if incident.state == "recovered":
            # A run can survive a machine's fault for `BEFORE_SECONDS`, and then fail by it.
            folds = incident.evidence.of_tier(Tier.HARDWARE)
            broken = [clue.seen for fold in folds for clue in fold.clues]
            return not fails(event) or max(broken, default=-math.inf) < began - BEFORE_SECONDS
        return began > incident.updated + QUIET_SECONDS and not incident.firing

    def _open(self, run: _RunIncidents, numeric: bool, seen: float) -> Incident:
        run.number += 1
        run.attempt = self._facts_of(run.name).attempt
        incident = Incident(run.name, run.number, seen, run.attempt)
        if numeric:
            run.numerics = incident
        else:
            run.failure = incident
            stood = self._facts_of(run.name).last_progress_at  # earlier looks at hosts are outdated
            for clue in run.early:
                since = stood if "look" in clue.meaning.words else -math.inf
                if clue.seen >= max(seen - QUIET_SECONDS, since):
                    incident.evidence.add(clue)
            run.early.clear()
        return incident

    def _for_alert(
        self, run: _RunIncidents, kind: str | None, at: float, severity: str
    ) -> Incident | None:
        numeric = kind == NONFINITE
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
            self._retire(run, run.failure, self._facts_of(run.name), at)
        return self._open(run, numeric, at)

    def _settle(self, run: _RunIncidents, incident: Incident, at: float, facts: RunFacts) -> None:
        over = facts.ended_at if facts.state in ENDED_STATES else None
        # 1.0, a choice: clocks of files differ; more takes an earlier attempt's end for this one's.
        if over is not None and over < incident.opened - 1.0:
            # An earlier attempt ended then, and no line reported the restart. The present one is
            # over only if a process of it died; what fails behind a run that finished is, too.
            is_over = incident.deadly or facts.state == "finished"
            over = incident.updated if is_over else None
        if over is not None and incident.state == "open":
            incident.note_end(over, facts.state)
        patience = DEAD_SECONDS if incident.deadly else WENT_ON_SECONDS
        survived = facts.last_progress_at > incident.updated + patience
        survived = survived or facts.refuted_ends > incident.refuted_ends
        if not survived or (incident is run.numerics and incident.firing):
            return
        if not incident.shows:
            self._drop(run, incident)
        elif incident.state == "open":
            incident.recover(facts.last_progress_at)

    def _close(self, run: _RunIncidents, at: float, reason: str) -> None:
        for incident in run.current():
            incident.end(at, reason)
            self._retire(run, incident, self._facts_of(run.name), at)

    def _retire(self, run: _RunIncidents, incident: Incident, facts: RunFacts, at: float) -> None:
        """Store the view of an incident that is over, and drop its evidence."""
        if incident.state == "open":
            incident.end(incident.updated, "quiet")
        if incident.shows:
            run.past.append(incident.view(facts, at))
        self._drop(run, incident)

    @staticmethod
    def _drop(run: _RunIncidents, incident: Incident) -> None:
        if run.failure is incident:
            run.failure = None
        if run.numerics is incident:
            run.numerics = None
