"""One incident: its evidence, its life, and what it looks like."""

from __future__ import annotations

from typing import Final, Literal

from ldlm_monitor.incidents import shown
from ldlm_monitor.incidents.clues import MAX_MESSAGE, Clue, Tier, clue_of, rank_in, tier_of
from ldlm_monitor.incidents.evidence import Evidence
from ldlm_monitor.incidents.facts import Standing
from ldlm_monitor.incidents.root import Judgement, judge
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.records import Event, Position
from ldlm_monitor.model.view import IncidentView

OPENERS: Final = {
    "TrainingStalled": "hang_no_progress",
    "NonFiniteLoss": "nonfinite_metric",
    "NonFiniteGradient": "nonfinite_metric",
}
"""Alerts of what no line of a failure tells, and what their incident is called."""
_TOLD_EARLY: Final = frozenset({"elastic_sigterm_peer", "elastic_force_kill", "fr_dump"})
_NOWHERE: Final = Position("", 0, 0)


def is_early(event: Event) -> bool:
    """No failure yet, but what may have brought one about, or is told of it before it is known."""
    if event.kind in _TOLD_EARLY:
        return True
    if event.severity == "info":
        return False
    return tier_of(clue_of(event, 0.0)) in (Tier.HARDWARE, Tier.NETWORK)


def alert_clue(transition: Transition, kind: str, at: float) -> Clue:
    """What an alert tells that no event does: it is judged by values, or by their absence."""
    summary = transition.annotations.get("summary", transition.alert)
    run, rank = transition.labels.get("run", ""), transition.labels.get("rank", "")
    return Clue(
        kind=kind,
        role="root",
        severity=transition.labels.get("severity", "critical"),
        seen=at,
        effective=transition.active_at,
        message=summary.removeprefix(f"{run}: ")[:MAX_MESSAGE],
        position=transition.position or _NOWHERE,
        rank=rank_in(int(rank)) if rank.isdecimal() and len(rank) < 10 else None,
        fields={"told_by": "alert", "text": (transition.line or "")[:MAX_MESSAGE]},
    )


SETTLED_SECONDS: Final = 5.0
"""Who has not told of a timeout so long after the others did will not."""
State = Literal["open", "recovered", "ended"]
_ENDS: Final = frozenset({"elastic_failure_table"})
_FAILS: Final = frozenset({"root", "evidence", "victim", "death"})
_AFTERMATH: Final = frozenset({"store_lost_during_monitoring", "pg_not_destroyed"})
"""Told every second for as long as a survivor lives: nothing new."""


class Incident:
    """A failure of one run. Times are Unix seconds, as the monitor judged them.

    `opened`, `updated`: its first and last event of a failure. `step`: the last one before it.
    `shows`: it is more than a suspicion. `deadly`: a process died of it. `firing`: the keys of
    the alerts about it that fire.
    """

    def __init__(self, run: str, number: int, opened: float) -> None:
        self.run = run
        self.number = number
        self.opened = opened
        self.updated = opened
        self.evidence = Evidence()
        self.step: int | None = None
        self.shows = False
        self.deadly = False
        self.state: State = "open"
        self.run_ended: float | None = None
        self.ended: float | None = None
        self.ended_reason = ""
        self.stall: Clue | None = None
        self.alerts: dict[str, None] = {}
        self.firing: set[str] = set()
        self.lent: set[tuple[str, str, int]] = set()
        self._final = False
        self._judged: tuple[tuple[object, ...], Judgement] | None = None
        self._viewed: tuple[tuple[object, ...], IncidentView] | None = None

    @property
    def id(self) -> str:
        """Names it, over restarts too."""
        return f"{self.run}/{self.number}"

    def take(self, event: Event, seen: float, *, fails: bool) -> None:
        """Take in an event; one that fails anew opens a recovered incident again."""
        self.evidence.take(event, seen)
        if event.kind in _AFTERMATH:
            return
        if fails:
            self.updated = max(self.updated, seen)
            if self.state == "recovered":
                self.state, self.ended, self.ended_reason = "open", None, ""
        role = event.fields.get("role")
        self._final = self._final or event.kind in _ENDS
        self.deadly = self.deadly or (role == "death" and fails)
        if self.deadly or (event.severity == "critical" and role in _FAILS):
            self.shows = True

    def lend(self, clue: Clue) -> None:
        """Take in what the kernel's log of one of its machines tells, in whatever file."""
        roster = self.evidence.roster
        theirs = roster.on_host(clue.host, clue.node) or roster.by_pid(clue.pid) is not None
        key = (clue.kind, clue.position.path, clue.position.offset)
        if theirs and key not in self.lent:
            self.lent.add(key)
            self.evidence.add(clue)

    def attach(self, alert: str, key: str, severity: str) -> None:
        """An alert about it fires."""
        self.alerts[alert] = None
        self.firing.add(key)
        if severity in ("error", "critical"):
            self.shows = True

    def recover(self, at: float) -> None:
        """The steps went on at `at`."""
        self.state, self.ended, self.ended_reason = "recovered", at, "recovered"

    def end(self, at: float, reason: str) -> None:
        """It is over, unless it was before."""
        if self.state == "open":
            self.state, self.ended, self.ended_reason = "ended", at, reason

    def judgement(self, standing: Standing, at: float) -> Judgement:
        """The first cause as it stands; judged again only where something changed."""
        settled = self._is_settled(at)
        known = (self.evidence.records, settled, len(standing.spoken), standing.world_size)
        key = (*known, self.stall is not None)
        if self._judged is None or self._judged[0] != key:
            self._judged = key, judge(self.evidence, standing, self.stall, settled=settled)
        return self._judged[1]

    def cause(self, standing: Standing, at: float) -> str | None:
        """Rank and first cause in a few words; None while it is not known."""
        verdict = self.judgement(standing, at).verdict
        alone = verdict.clue is not None and verdict.clue.fields.get("told_by") == "alert"
        if verdict.tier is Tier.UNATTRIBUTED or (alone and len(self.alerts) < 2):
            return None
        return f"{shown.cause_text(verdict, self.evidence)} [{verdict.confidence}]"

    def view(self, standing: Standing, at: float) -> IncidentView:
        """All of it, for people and programs; made again only where something changed."""
        judgement = self.judgement(standing, at)
        standing_now = self._standing()
        key = (id(judgement), standing_now, self.updated, self.step, len(self.alerts))
        if self._viewed is None or self._viewed[0] != key:
            self._viewed = key, self._view(judgement, *standing_now)
        return self._viewed[1]

    def _view(
        self, judgement: Judgement, state: State, ended: float | None, reason: str
    ) -> IncidentView:
        verdict, evidence = judgement.verdict, self.evidence
        return IncidentView(
            id=self.id,
            run=self.run,
            state=state,
            ended_reason=reason,
            title=shown.title(judgement, evidence, self.step),
            confidence=verdict.confidence,
            opened_at=self.opened,
            updated_at=self.updated,
            ended_at=ended,
            root=shown.root_view(verdict, evidence),
            collective=shown.collective_view(judgement.collective, judgement.silent)
            if judgement.collective is not None
            else None,
            symptoms=shown.symptoms(evidence),
            events=evidence.records,
            claims=shown.claim_views(judgement),
            excerpt=shown.excerpt(verdict, evidence),
            action=shown.action(verdict),
            last_step=self.step,
            alerts=tuple(self.alerts),
        )

    def _standing(self) -> tuple[State, float | None, str]:
        """State, end and its reason: whose run is dead has ended."""
        if self.state != "open":
            return self.state, self.ended, self.ended_reason
        if self.run_ended is not None:
            return "ended", self.run_ended, "run ended"
        return "open", None, ""

    def _is_settled(self, at: float) -> bool:
        over = self._final or self.run_ended is not None or self.state != "open"
        return over or at - self.updated >= SETTLED_SECONDS
