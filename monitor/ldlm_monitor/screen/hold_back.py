"""Acknowledging and silencing from the screen: who holds back an alert's messages, and how."""

from collections.abc import Iterable
from datetime import UTC, datetime
from getpass import getuser
from typing import Any

from textual.widget import Widget

from ldlm_monitor.base.alert import LabelMatcher
from ldlm_monitor.base.errors import LdlmError
from ldlm_monitor.base.queries import Withholding
from ldlm_monitor.base.snapshot import AlertView, RunView
from ldlm_monitor.screen.draw import safe
from ldlm_monitor.screen.page_context import HeldBack, PageContext, alerts_of
from ldlm_monitor.screen.text_prompt import TextPrompt
from ldlm_monitor.screen.time_span import ends_at
from ldlm_monitor.screen.widgets import in_thread


def suppression(alert: AlertView, held_back: HeldBack) -> str:
    """Who acknowledged or silenced the alert; empty if nobody did."""
    for ack in held_back.get("acks", ()):
        if ack.get("alert") == alert.name and ack.get("labels") == alert.labels:
            return f"acknowledged by {ack.get('by', '?')}"
    labels = {"alertname": alert.name, **alert.labels}
    for silence in held_back.get("silences", ()):
        if all(LabelMatcher(**each).holds(labels) for each in silence["matchers"]):
            return f"silenced until {_until(silence)} by {silence.get('createdBy', '?')}"
    return ""


def muted(run: str, held_back: HeldBack) -> str:
    """Until when all alerts of a run are silenced; empty if they are not."""
    for silence in held_back.get("silences", ()):
        matchers = silence["matchers"]
        is_whole = all(each["name"] == "run" for each in matchers)
        if is_whole and all(LabelMatcher(**each).holds({"run": run}) for each in matchers):
            return _until(silence)
    return ""


def _until(silence: dict[str, Any]) -> str:
    return f"{str(silence.get('endsAt', '?'))[:16].replace('T', ' ')} UTC"  # to the minute


def acknowledge_run(widget: Widget, context: PageContext, run: RunView) -> None:
    """Acknowledge the run's firing alerts; without any, its failure counts as seen here."""
    context.seen[run.name] = context.clock()
    firing = [
        each
        for each in alerts_of(run.name, context.snapshot.alerts)
        if not suppression(each, context.held_back)
    ]
    documents = [
        {"alert": each.name, "labels": each.labels, "comment": "seen on the screen"}
        for each in firing
    ]
    send(widget, context, "acks", documents, f"{run.name} is acknowledged")


def silence(
    widget: Widget, context: PageContext, labels: dict[str, str], name: str, verb: str = "Silence"
) -> None:
    """Ask for how long or until when, then silence the alerts with exactly these labels."""
    matchers = [{"name": key, "value": value, "isRegex": False} for key, value in labels.items()]

    def problem(text: str) -> str:
        try:
            ends_at(text, context.clock())
        except ValueError as wrong:
            return str(wrong)
        return ""

    def put(text: str | None) -> None:
        if text is None:
            return
        ends = datetime.fromtimestamp(ends_at(text, context.clock()), UTC).isoformat()
        document = {"matchers": matchers, "endsAt": ends, "comment": "from the screen"}
        send(widget, context, "silences", [document], f"{name} is {verb.lower()}d")

    title = safe(f"{verb} {name} for how long?", context.glyphs)
    hint = "45m, 2h, 3 days, until 08:00"
    widget.app.push_screen(TextPrompt(title, "1h", hint, problem), put)


def send(
    widget: Widget,
    context: PageContext,
    what: Withholding,
    documents: Iterable[dict[str, Any]],
    done: str,
) -> None:
    """Post silences or acknowledgements, with the user's name; then show `done`."""

    def post() -> HeldBack:
        try:
            by = getuser()
        except (KeyError, OSError):  # a container's user may have no name
            by = "somebody"
        for document in documents:
            context.source.send(what, {**document, "by" if what == "acks" else "createdBy": by})
        return context.source.held_back()

    def sent(held_back: HeldBack) -> None:
        context.held_back = held_back
        widget.notify(safe(done, context.glyphs), markup=False)
        context.redraw()

    def refused(problem: LdlmError) -> None:
        text = safe(str(problem), context.glyphs)
        widget.notify(text, severity="error", title="Not done", markup=False)

    in_thread(widget, post, sent, refused, group=done)
