"""An incident for its readers: its first cause, and what followed."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ldlm_monitor.base.records import Position

Confidence = Literal["confirmed", "probable", "weak", "none"]
"""Confidence in a first cause: `confirmed` by two independent sources, `probable` by one. A doubt,
such as a source that accuses other ranks, lowers it by a level. `none`: no cause was found."""


class View(BaseModel):
    """A frozen part of a snapshot or report; its JSON has non-finite numbers as strings."""

    model_config = ConfigDict(
        frozen=True, ser_json_inf_nan="strings", serialize_by_alias=True, defer_build=True
    )


class RootView(View):
    """The first cause of an incident. `rank` is None unless the cause is that of one rank.

    `tier` is the kind of evidence: `external` (scheduler or person), `hardware`, `local` (a
    process's own error), `named` (other ranks name the rank), `network`, `silence` or
    `unattributed`. `ranks` are all ranks with this cause, such as `0-36,38-63`. `at` is when
    it began (Unix seconds). `why` has the reasons for this choice. `mesh`: the coordinates that
    these ranks share in the dimensions of parallelism (`pp stage 3`). None means unknown.
    """

    tier: str
    kind: str
    message: str
    rank: int | None
    ranks: str
    node: str | None
    host: str | None
    local_rank: int | None
    pid: int | None
    at: float | None
    position: Position | None
    why: tuple[str, ...]
    mesh: str = ""


class CollectiveView(View):
    """The collective operation that an incident's ranks waited in.

    `seq`: its number in the process `group`. `began_at`: when the first rank's wait began (Unix
    seconds). `waiting` in it and `missing` from it by the log are ranks as text (`0-36,38-63`).
    """

    op: str
    seq: int
    group: str
    timeout_seconds: float | None
    began_at: float
    waiting: str
    missing: str


class SymptomView(View):
    """Events of an incident that are alike: `message` and `position` of the first, all `ranks`."""

    kind: str
    role: str
    count: int
    ranks: str
    message: str
    position: Position


class ClaimView(View):
    """The rank that torchelastic calls the root cause, checked against our `RootView`.

    `agrees` is None if the evidence does not decide; `reason` explains it.
    """

    rank: int
    exitcode: int | None
    host: str | None
    agrees: bool | None
    reason: str
    position: Position


class ExcerptView(View):
    """A log line that shows the first cause, or its first consequence."""

    rank: int | None
    text: str
    position: Position


DecisionWord = Literal["GO_ON", "RESTART", "RESTART_WITHOUT", "ROLLBACK", "STOP", "UNKNOWN"]


class DecisionView(View):
    """What to do about a failure or a run, by the rule `rule` of `data/decisions.yml`.

    RESTART_WITHOUT excludes `node` (None: not known). ROLLBACK resumes from `rollback_step` and
    leaves the batches of `skip_steps` (first, last) out; None where the log does not say. STOP: a
    person must mend code, data or settings. `if_wrong`: what a wrong decision costs.
    """

    decision: DecisionWord
    confidence: Literal["confirmed", "probable", "weak"]
    reasons: tuple[str, ...]
    node: str | None = None
    rollback_step: int | None = None
    skip_steps: tuple[int, int] | None = None
    evidence: tuple[Position, ...] = ()
    rule: str
    if_wrong: str
    do: str = Field(default="", description="its rule's words for it, in one line")

    @property
    def todo(self) -> str:
        """What to do in a few words, such as `roll back to 50`."""
        to = "" if self.rollback_step is None else f" to {self.rollback_step}"
        words: dict[DecisionWord, str] = {
            "GO_ON": "go on",
            "RESTART": "restart",
            "RESTART_WITHOUT": f"restart without {self.node or 'its node'}",
            "ROLLBACK": f"roll back{to}",
            "STOP": "stop and mend it",
            "UNKNOWN": "read its log",
        }
        return self.do or words[self.decision]

    @property
    def order(self) -> str:
        """The decision with its node or steps, such as `ROLLBACK to step 30 skipping 31-35`."""
        parts: list[str] = [self.decision]
        if self.decision == "RESTART_WITHOUT":
            parts.append(self.node or "the node")
        if self.rollback_step is not None:
            parts.append(f"to step {self.rollback_step}")
        if self.skip_steps is not None:
            parts.append("skipping {}-{}".format(*self.skip_steps))
        return " ".join(parts)

    @property
    def phrase(self) -> str:
        """The order, its confidence and the first reason as one phrase."""
        return f"{self.order} ({self.confidence}): {self.reasons[0]}"


class IncidentView(View):
    """One failure of one run: its first cause, and the symptoms that followed, counted.

    Times are Unix seconds. `ended_reason`: `run ended`, `restarted`, `recovered` (the steps went
    on), `quiet` (21 minutes without its events, then another failure's); "" while it is open.
    `attempt`: that of the run, from 1; a restart or another launch in the same log begins one.
    `last_step`: the last step of that attempt before the failure; None without one, and where steps
    begin again with each epoch.
    """

    id: str
    run: str
    state: Literal["open", "recovered", "ended"]
    ended_reason: str
    title: str
    confidence: Confidence
    severity: str = Field(default="critical", description="the worst of what belongs to it")
    opened_at: float
    updated_at: float
    ended_at: float | None
    root: RootView
    collective: CollectiveView | None
    symptoms: tuple[SymptomView, ...]
    events: int
    claims: tuple[ClaimView, ...]
    excerpt: tuple[ExcerptView, ...]
    action: str
    attempt: int = 1
    last_step: int | None
    alerts: tuple[str, ...]
    decision: DecisionView | None = None
    lost_seconds: float | None = Field(
        default=None,
        description="of the run's time: standing, down, taking steps again; None if none is known",
    )

    @property
    def began_at(self) -> float:
        """When the first cause was, otherwise when the incident opened."""
        return self.root.at if self.root.at is not None else self.opened_at

    @property
    def advice(self) -> str:
        """The decision, and what to try."""
        decided = f"Decision: {self.decision.phrase}." if self.decision is not None else ""
        return f"{decided} {self.action if self.is_to_mend else ''}".strip()

    @property
    def is_to_mend(self) -> bool:
        """Whether `action` is of use: not where the run may go on."""
        return self.decision is None or self.decision.decision != "GO_ON"
