"""A script of events and alerts of one run, and the incidents that they make."""

from __future__ import annotations

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.judge.incidents import Incidents, RunFacts

AT = 1000.0


class Book:
    """The incidents of one run, whose facts a test changes."""

    def __init__(self, **facts: object) -> None:
        self.facts = RunFacts(last_progress_at=AT - 1, step=41, **facts)
        self.incidents = Incidents(lambda _: self.facts)

    def event(self, kind: str, at: float = AT, rank: int | None = None, **fields: object) -> None:
        severity = str(fields.pop("severity", "error"))
        message, path = str(fields.pop("message", kind)), str(fields.pop("path", "train.log"))
        found = Event(
            kind=kind, severity=severity, run="r", rank=rank, message=message,
            fields={"role": "root", "family": "process", **fields},
            position=Position(path, int(at), 0),
        )  # fmt: skip
        self.incidents.take(found, at)

    def alert(self, name: str, at: float = AT, severity: str = "critical", **change: object) -> str:
        labels = {"run": "r", "severity": severity, **change.pop("labels", {})}  # type: ignore[dict-item]
        found = {
            "time": at, "alert": name, "state": "firing", "previous": "inactive", "reason": "",
            "labels": labels, "annotations": {"summary": f"r: {name} holds"}, "value": 1.0,
            "active_at": at, **change,
        }  # fmt: skip
        transition = Transition(**found)  # type: ignore[arg-type]
        self.incidents.take_alert(transition, at)
        return transition.key

    def views(self, at: float = AT + 1) -> tuple[IncidentView, ...]:
        return self.incidents.views(at)
