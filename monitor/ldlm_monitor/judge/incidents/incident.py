"""One incident: the events and alerts that open one, its evidence, its states and its view."""

from dataclasses import dataclass
from typing import Final, Literal

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.names import severity_rank
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import ReasonView
from ldlm_monitor.judge.incidents import incident_parts
from ldlm_monitor.judge.incidents.clues import (
    FAILING,
    MAX_MESSAGE,
    Clue,
    Tier,
    clue_of,
    rank_in,
    tier_of,
)
from ldlm_monitor.judge.incidents.folded_evidence import NONFINITE, STALL, TABLE, Evidence
from ldlm_monitor.judge.incidents.root_cause import Judgement, judge
from ldlm_monitor.judge.incidents.roster import RunFacts
from ldlm_monitor.logs.parse.meanings import meaning_of, meaning_of_kind

OPENERS: Final = {
    "TrainingStalled": STALL,
    "NonFiniteLoss": NONFINITE,
    "NonFiniteGradient": NONFINITE,
}
"""Alert -> kind of the incident that it opens even if no line reports a failure."""
_NOWHERE: Final = Position("", 0, 0)  # of an alert without a log line


def is_early(event: Event) -> bool:
    """Whether an event is no failure, but may be the cause of one or precede its first line."""
    is_look = event.fields.get("missing_ranks") or event.fields.get("processes")
    words = meaning_of(event).words
    if "early" in words or ("look" in words and is_look):
        return True
    if event.severity == "info":
        return False
    return tier_of(clue_of(event, 0.0)) in (Tier.HARDWARE, Tier.NETWORK)


def alert_clue(transition: Transition, kind: str, at: float) -> Clue:
    """An alert, processed at `at`, as a clue of `kind`, for failures that no line reports."""
    summary = transition.annotations.get("summary", transition.alert)
    run, rank = transition.labels.get("run", ""), transition.labels.get("rank", "")
    if kind == STALL:  # an age would stand still
        summary = f"no step since step {transition.step}" if transition.step else "no step yet"
    return Clue(
        kind=kind,
        meaning=meaning_of_kind(kind),
        role="root",
        severity=transition.labels.get("severity", "critical"),
        seen=at,
        effective=transition.active_at,
        message=summary.removeprefix(f"{run}: ")[:MAX_MESSAGE],
        position=transition.position or _NOWHERE,
        # At most 9 digits: a forged label may have thousands.
        rank=rank_in(int(rank)) if rank.isdecimal() and len(rank) < 10 else None,
        fields={
            "reported_by": "alert",
            "text": (transition.line or "")[:MAX_MESSAGE],
            "step": transition.step,
            "quantity": "loss" if "Loss" in transition.alert else None,
        },
    )


SETTLED_SECONDS: Final = 5.0
"""Wait for reports of further ranks. A choice: watchdogs poll at least every second; a longer wait
delays the cause, a shorter one takes ranks that report later for silent ones."""
State = Literal["open", "recovered", "ended"]  # recovered: the run took steps again


@dataclass(frozen=True, slots=True)
class Answer:
    """An incident's id, its root cause (text with ranks and confidence) and its single rank."""

    incident: str
    cause: str | None
    rank: int | None


class Incident:
    """A failure of one run. Times are Unix seconds at which events were processed.

    `opened`, `updated`: its first and last event of a failure. `attempt`: that of the run, from
    1. `step`: its last step before the failure; `epoch`: its epoch, if steps begin again in each.
    `shows`: whether views show it. `severity`: the worst of its alerts and events. `deadly`:
    whether a process died of it. `alerts`: the names of all alerts about it, as keys; `firing`:
    the keys of those that fire. `stall`: the alert that the run takes no step. `run_ended`: the
    run's end; `ended`: the incident's. `refuted_ends`: as in `RunFacts`, at its last line.
    """

    def __init__(self, run: str, number: int, opened: float, attempt: int = 1) -> None:
        self.run = run
        self.number = number
        self.opened = opened
        self.updated = opened
        self.evidence = Evidence()
        self.attempt = attempt
        self.step: int | None = None
        self.epoch: float | None = None
        self.refuted_ends = 0
        self.shows = False
        self.severity = "info"
        self.deadly = False
        self.state: State = "open"
        self.run_ended: float | None = None
        self.ended: float | None = None
        self.ended_reason = ""
        self.stall: Clue | None = None
        self.alerts: dict[str, None] = {}
        self.firing: set[str] = set()
        self._host_faults: set[tuple[str, str, int]] = set()
        self._final = False
        self._judged: tuple[tuple[object, ...], Judgement] | None = None
        self._viewed: tuple[tuple[object, ...], IncidentView] | None = None

    @property
    def id(self) -> str:
        """The incident's id, which is the same after a restart."""
        return f"{self.run}/{self.number}"

    def take(self, event: Event, seen: float, *, fails: bool) -> None:
        """Add an event; if it `fails` (is of a failure), a recovered incident is open again."""
        counts = self.evidence.take(event, seen)
        if "aftermath" in meaning_of(event).words:
            return
        if fails:
            self.updated = max(self.updated, seen)
            if self.state == "recovered":
                self.state, self.ended, self.ended_reason = "open", None, ""
        role = event.fields.get("role")
        self._final = self._final or event.kind == TABLE
        if not counts:
            return
        self.deadly = self.deadly or (role == "death" and fails)
        if self.deadly or (event.severity == "critical" and role in FAILING):
            self.shows, self.severity = True, "critical"

    def add_host_fault(self, clue: Clue) -> None:
        """Add a line of a kernel log if it is about a machine or process of the incident."""
        roster = self.evidence.roster
        own = roster.on_host(clue.host, clue.node) or roster.by_pid(clue.pid) is not None
        key = (clue.kind, clue.position.path, clue.position.offset)
        if own and key not in self._host_faults:
            self._host_faults.add(key)
            self.evidence.add(clue)

    def attach(self, alert: str, key: str, severity: str) -> None:
        """Add a firing alert about the incident; `key` is `Transition.key`."""
        self.alerts[alert] = None
        self.firing.add(key)
        self.severity = max(self.severity, severity, key=severity_rank)
        if severity in ("error", "critical"):
            self.shows = True

    def locate(self, run: RunFacts) -> None:
        """Store where its attempt of the run is."""
        if run.attempt == self.attempt:
            self.step, self.epoch = run.step, run.epoch

    def note_end(self, at: float, state: str) -> None:
        """Note when and how the run ended: a crash is critical; a kill may be wanted: a warning.

        That a person asked us for it is none, unless a process failed by itself.
        """
        self.run_ended = at
        self.shows = self.shows or state != "finished"
        severity = {"crashed": "critical", "killed": "warning"}.get(state, "info")
        deed = self.evidence.deed
        asked = deed is not None and tier_of(deed) is Tier.EXTERNAL
        if asked and not self.evidence.fails_anyway:
            severity = "info"
        self.severity = max(self.severity, severity, key=severity_rank)

    def recover(self, at: float) -> None:
        """Mark the incident as recovered: the run took steps again at `at`."""
        self.state, self.ended, self.ended_reason = "recovered", at, "recovered"

    def end(self, at: float, reason: str) -> None:
        """End the incident, unless it is over already."""
        if self.state == "open":
            self.state, self.ended, self.ended_reason = "ended", at, reason

    def judgement(self, run: RunFacts, at: float) -> Judgement:
        """The root cause, analysed again only if the evidence or the run changed."""
        over = self._final or self.run_ended is not None or self.state != "open"
        settled = over or at - self.updated >= SETTLED_SECONDS
        ranks = (len(run.logged_ranks), run.world_size)
        stalled_at = None if self.stall is None else tuple(run.rank_steps.items())
        key = (self.evidence.records, settled, *ranks, stalled_at)
        if self._judged is None or self._judged[0] != key:
            self._judged = key, judge(self.evidence, run, self.stall, settled=settled)
        return self._judged[1]

    def answer(self, run: RunFacts, at: float) -> Answer:
        """The incident's answer to an alert: cause and rank are None if unknown or recovered."""
        verdict = self.judgement(run, at).verdict
        if verdict.tier is Tier.UNATTRIBUTED or self.state != "open":
            return Answer(self.id, None, None)
        alone = verdict.clue is not None and verdict.clue.fields.get("reported_by") == "alert"
        found = incident_parts.cause_text(verdict, self.evidence, run.meshes)
        cause = f"{found} [{verdict.confidence}]"
        return Answer(self.id, None if alone and len(self.alerts) < 2 else cause, verdict.rank)

    def reason(self, run: RunFacts, at: float) -> ReasonView:
        """The incident as a reason of its run's health."""
        view = self.view(run, at)
        text = view.title + ("" if view.confidence == "none" else f" ({view.confidence})")
        return ReasonView(kind="incident", severity=self.severity, text=text, since=view.began_at)

    def survived_fault(self, run: RunFacts, at: float) -> ReasonView | None:
        """That the run went on after a fault of a GPU itself, which the next stop is to mend."""
        clue = self.judgement(run, at).verdict.clue if self.state == "recovered" else None
        if clue is None or clue.meaning.fault != "gpu" or clue.severity != "critical":
            return None
        view = self.view(run, at)
        text = f"{view.title}; the run goes on: look at that GPU at its next stop"
        return ReasonView(kind="incident", severity="warning", text=text, since=view.began_at)

    def view(self, run: RunFacts, at: float) -> IncidentView:
        """The incident for people and programs, built again only if something in it changed."""
        judgement = self.judgement(run, at)
        state_now = self._current_state()
        shown = self.severity, self.updated, self.step, self.epoch, len(self.alerts)
        key = (judgement, state_now, shown)
        if self._viewed is None or self._viewed[0] != key:
            self._viewed = key, self._view(judgement, run, *state_now)
        return self._viewed[1]

    def _view(
        self, judgement: Judgement, run: RunFacts, state: State, ended: float | None, reason: str
    ) -> IncidentView:
        verdict, evidence = judgement.verdict, self.evidence
        return IncidentView(
            id=self.id,
            run=self.run,
            state=state,
            ended_reason=reason,
            title=incident_parts.title(judgement, evidence, run.meshes, self.step, self.epoch),
            confidence=verdict.confidence,
            severity=self.severity,
            opened_at=self.opened,
            updated_at=self.updated,
            ended_at=ended,
            root=incident_parts.root_view(verdict, evidence, run.meshes),
            collective=incident_parts.collective_view(judgement.collective, judgement.silent)
            if judgement.collective is not None
            else None,
            symptoms=incident_parts.symptoms(evidence),
            events=evidence.records,
            claims=judgement.claims,
            excerpt=incident_parts.excerpt(verdict, evidence),
            action=incident_parts.action(verdict),
            attempt=self.attempt,
            last_step=self.step,
            alerts=tuple(self.alerts),
        )

    def _current_state(self) -> tuple[State, float | None, str]:
        """State, end and its reason; an open incident ends with its run."""
        if self.state != "open":
            return self.state, self.ended, self.ended_reason
        if self.run_ended is not None:
            return "ended", self.run_ended, "run ended"
        return "open", None, ""
