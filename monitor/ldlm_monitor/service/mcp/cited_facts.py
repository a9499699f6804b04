"""Facts as agents get them: short, and with the file and line that shows each.

Text that a log decides is under the key `untrusted`, sanitised and redacted.
"""

import json
from collections.abc import Sequence
from typing import Any

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import AlertView, CurveView
from ldlm_monitor.base.text.sanitize import jsonable, plain

MOST = 20
"""Items of a list in one answer. A choice: what an agent reads costs; it asks on for more."""
MAX_ANSWER = 16_000
"""Characters of an answer: a choice, 4,000 tokens, so that a dozen fit an agent's context."""
TEXT = 300  # characters of a text from a log: a choice, three rows of a terminal


def text(**answer: object) -> str:
    """An answer as JSON of at most MAX_ANSWER characters; long lists are cut, and `cut` says so."""
    while True:
        text = json.dumps(jsonable(answer), separators=(",", ":"))
        lists = [each for each in answer.values() if isinstance(each, list) and len(each) > 1]
        if len(text) <= MAX_ANSWER or not lists:
            return text
        longest = max(lists, key=len)
        del longest[len(longest) // 2 :]
        answer["cut"] = "too much for one answer: ask about one run, or a shorter stretch"


def few(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first MOST, and how many were left out."""
    more = len(found) - MOST
    return [*found[:MOST], *([{"left_out": more}] if more > 0 else ())]


def cite(position: Position | None) -> str | None:
    """File and line."""
    return None if position is None else f"{position.path}:{position.line}"


def is_of(run: str, labels: dict[str, str]) -> bool:
    """Whether an alert is of the run ("": of any), and no heartbeat."""
    return run in ("", labels.get("run", "")) and labels.get("severity") != "none"


def alert(alert: AlertView) -> dict[str, Any]:
    """An alert that is pending or firing."""
    shown = {"alert": alert.name, "since": alert.active_at}
    text = alert.annotations.get("summary", "")
    return shown | _fact(alert, text, "state", "labels", "rank", "value")


def transition(each: Transition) -> dict[str, Any]:
    """A change of an alert."""
    text = each.annotations.get("summary", "")
    return _fact(each, text, "time", "alert", "state", "reason", "labels", "step")


def event(event: Event) -> dict[str, Any]:
    """An event of a log."""
    return _fact(event, event.message, "time", "kind", "severity", "run", "rank")


def _fact(of: AlertView | Transition | Event, text: str, *names: str) -> dict[str, Any]:
    """Some fields of a record, its place, and the text that its log decided."""
    shown = {name: getattr(of, name) for name in names}
    return shown | {"cite": cite(of.position), "untrusted": plain(text, TEXT)}


def incident(each: IncidentView) -> dict[str, Any]:
    """A failure: its first cause, the evidence, what followed."""
    root = each.root
    return {
        "id": each.id,
        "run": each.run,
        "state": each.state,
        "cause": root.kind,
        "rank": root.rank,
        "ranks": root.ranks,
        "confidence": each.confidence,
        "why": [plain(reason, TEXT) for reason in root.why],
        "opened_at": each.opened_at,
        "attempt": each.attempt,
        "last_step": each.last_step,
        "cite": cite(root.position),
        "evidence": [
            {"cite": cite(line.position), "untrusted": plain(line.text, TEXT)}
            for line in each.excerpt
        ],
        "symptoms": [
            {"kind": symptom.kind, "count": symptom.count, "cite": cite(symptom.position)}
            for symptom in each.symptoms[:MOST]
        ],
        "action": plain(each.action, TEXT),
        "untrusted": plain(each.title, TEXT),
    }


def short(value: float) -> float:
    """The value as it was logged: curves keep single precision."""
    return float(f"{value:.7g}")


def values(curve: CurveView) -> list[dict[str, Any]]:
    """The buckets of a curve: one value, or mean, lowest and highest."""
    rows = []
    for i, step in enumerate(curve.steps):
        low, high, mean = map(short, (curve.lows[i], curve.highs[i], curve.means[i]))
        found = {"value": mean} if not low < high else {"mean": mean, "low": low, "high": high}
        odd = {"nonfinite": curve.nonfinite[i]} if curve.nonfinite[i] else {}
        rows.append({"step": step, **found, **odd, "cite": cite(curve.position(i))})
    return rows
