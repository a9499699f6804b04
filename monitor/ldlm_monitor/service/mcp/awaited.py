"""What somebody waits for, as a snapshot shows it: a decision, an alert, an end, or a step."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.names import ENDED_STATES, severity_rank
from ldlm_monitor.base.snapshot import AlertView, RunView, Snapshot
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.service.mcp import cited_facts

Kind: TypeAlias = Literal["decision", "alert", "finished", "step", "ended", "timeout"]
"""What came: `ended` is the end of a run that did not finish; `timeout` is none of the others."""
LEAST: Final = severity_rank("warning")
"""The least severity of an alert for which somebody waits."""
LOOK_SECONDS: Final = 0.25
"""Seconds between two looks at the last snapshot. A choice: an answer is late by so much."""
_STEP = re.compile(r"step=(\d{1,15})")


@dataclass(frozen=True, slots=True)
class Until:
    """What is waited for: `decision`, `alert`, `finished`, or the step `step`.

    A decision that something must be done ends each of them, since the others may then never come.
    """

    word: str
    step: int | None = None

    @classmethod
    def read(cls, text: str) -> "Until":
        """Reads `decision`, `alert`, `finished` or `step=N`; raises UsageError for another text."""
        if text in ("decision", "alert", "finished"):
            return cls(text)
        if (found := _STEP.fullmatch(text)) is None:
            raise UsageError(
                "nothing to wait for",
                where=f"--until {plain(text, cited_facts.TEXT)}",
                remedy="use decision, alert, finished or step=1000",
            )
        return cls("step", int(found[1]))


@dataclass(frozen=True, slots=True)
class Awaited:
    """What came. `answer`: the facts about its run, for JSON."""

    kind: Kind
    answer: dict[str, Any]

    @property
    def is_well(self) -> bool:
        """Whether it is an end or a step that was wanted, so that nobody must decide anything."""
        return self.kind in ("finished", "step")


def awaited(snapshot: Snapshot, run: str, until: Until) -> Awaited | None:
    """What came of what is waited for, the worst first; None as long as nothing did.

    `run`: "" for every run; then an end or a step has come once it has for each. Nothing comes
    while logs are being read whose history may still say otherwise.
    """
    runs = [each for each in snapshot.runs if run in ("", each.name)]
    if not runs or snapshot.reading is not None or any(each.health == "READING" for each in runs):
        return None
    for each in sorted(runs, key=_badness, reverse=True):
        if _needs_decision(each):
            return Awaited("decision", facts(snapshot, each, "decision"))
        if until.word == "alert" and (alert := _alert(snapshot, each)) is not None:
            shown = cited_facts.alert(alert)
            return Awaited("alert", facts(snapshot, each, "alert") | {"alert": shown})
    if until.step is not None and all((each.step or 0) >= until.step for each in runs):
        return Awaited("step", facts(snapshot, runs[0], "step"))
    return _end(snapshot, runs, until) if all(each.state in ENDED_STATES for each in runs) else None


def _end(snapshot: Snapshot, runs: Sequence[RunView], until: Until) -> Awaited:
    """What came of runs that are over, and of a step that none of them will take."""
    left = next((each for each in runs if each.state != "finished"), None)
    kind: Kind = "finished" if left is None and until.step is None else "ended"
    return Awaited(kind, facts(snapshot, left or runs[0], kind))


def timed_out(snapshot: Snapshot, run: str, seconds: float) -> Awaited:
    """That nothing came in so many seconds, with how the run is; without it if it is unknown."""
    found = [each for each in snapshot.runs if run in ("", each.name)]
    shown = facts(snapshot, max(found, key=_badness), "timeout") if found else {"what": "timeout"}
    known = {} if found else {"runs": [plain(each.name) for each in snapshot.runs[:20]]}
    reading = {"reading": snapshot.unjudged()} if snapshot.reading is not None else {}
    return Awaited("timeout", {**shown, **known, **reading, "seconds": seconds})


def facts(snapshot: Snapshot, run: RunView, what: Kind) -> dict[str, Any]:
    """The state of a run, what to do about it, and the lines that show it; `where` is the first."""
    incidents = [each for each in snapshot.incidents if each.run == run.name]
    failure = next((each for each in reversed(incidents) if not each.ended_at), None)
    failure = failure or (incidents[-1] if incidents and what == "decision" else None)
    found = run.decision
    places = [*(found.evidence if found else ()), run.end_position]
    root = [] if failure is None else [failure.root.position]
    cites = [cite for each in (*root, *places) if (cite := cited_facts.cite(each)) is not None]
    shown: dict[str, Any] = {
        "what": what,
        "run": plain(run.name),
        "state": run.state,
        "health": run.health,
        "step": run.step,
        "total_steps": run.total_steps,
        "rank": run.failed_rank,
        "where": cites[0] if cites else None,
        "end_reason": run.end_reason,
        "untrusted": [plain(each.text, cited_facts.TEXT) for each in run.reasons[:3]],
    }
    if found is not None:
        shown["decision"] = {
            "decision": found.decision,
            "order": plain(found.order),
            "confidence": found.confidence,
            "reasons": [plain(each, cited_facts.TEXT) for each in found.reasons],
            "if_wrong": found.if_wrong,
            "evidence": _unique(cited_facts.cite(each) for each in found.evidence),
        }
    if failure is not None:
        shown["incident"] = cited_facts.incident(failure)
    return shown


def _unique(cites: Any) -> list[str]:
    return list(dict.fromkeys(each for each in cites if each is not None))


def _needs_decision(run: RunView) -> bool:
    """Whether something must be done now: a decision other than to go on, about an ill run."""
    ill = run.health in ("CRITICAL", "UNHEALTHY")
    return ill and run.decision is not None and run.decision.decision != "GO_ON"


def _alert(snapshot: Snapshot, run: RunView) -> AlertView | None:
    """The worst alert of the run that fires."""
    firing: Sequence[AlertView] = [
        each
        for each in snapshot.alerts
        if each.state == "firing"
        and each.labels.get("run") == run.name
        and severity_rank(each.labels.get("severity", "")) >= LEAST
    ]
    return max(firing, key=lambda each: severity_rank(each.labels["severity"]), default=None)


def _badness(run: RunView) -> int:
    order = ("READING", "HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL")
    return order.index(run.health)
