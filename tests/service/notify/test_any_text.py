"""Whatever a log says, each sender makes a valid payload of it in which nothing acts or is secret.

Texts are made of what attacks receivers, of planted secrets, and of anything.
"""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import AlertView, MonitorView, Snapshot
from ldlm_monitor.base.text.lines import transition_json, transition_line
from ldlm_monitor.base.text.sanitize import plain, redact, run_path
from ldlm_monitor.finished.report.plain_text import health_report
from ldlm_monitor.service.notify.alertmanager import SentAlert, body
from ldlm_monitor.service.notify.content import news_of, plain_text, whole_of
from ldlm_monitor.service.notify.message import (
    Message,
    Notification,
    from_json,
    from_transition,
    message_of,
    to_json,
)
from ldlm_monitor.service.notify.slack_message import drawn
from ldlm_monitor.service.notify.webhook import WebhookBody, webhook_body
from ldlm_monitor.service.serve.live_page import live_page
from ldlm_monitor.service.serve.metrics import exposition, families
from ldlm_monitor.service.serve.pages import resource
from tests.service.notify.planted import KEY_FILES, LINES, found_in

NOW = 1_769_681_700.0
ATTACKS = [
    "<!channel>", "<!here|x>", "<@U012AB3CD>", "<#C012|x>", "<https://evil.example|click>",
    "@everyone", "@here @channel @all", "<@123456789012345678>", "<@&42>", "[x](https://evil)",
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</body>", "&lt;b&gt;", "```", "`",
    "\x1b[31mred\x1b[0m", "\x1b]8;;https://evil\x07x\x1b]8;;\x07", "\x9b2J", "\x00", "\r", "\n\n",
    "\u202egnp.exe", "\u200b", "\ud800", '"}\n{"', "\\", "{{ $labels.run }}", "%s %n", "😀",
    "x" * 5000,
]  # fmt: skip
PIECES = st.one_of(
    st.sampled_from(ATTACKS),
    st.sampled_from(LINES),
    st.sampled_from(["\n".join(lines) for lines in KEY_FILES.values()]),
    st.text(max_size=20),
)
TEXTS = st.lists(PIECES, max_size=5).map(" ".join)
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ud800-\udfff]"
)
"""What a terminal acts on, or does not show."""


@st.composite
def transitions(draw: st.DrawFn) -> Transition:
    state = draw(st.sampled_from(["firing", "resolved", "ended", "unknown"]))
    said = {name: draw(TEXTS) for name in ("summary", "description", "action")}
    return Transition(
        time=draw(st.one_of(st.none(), st.floats(0, 4e9))),
        alert="NonFiniteLoss",
        state=state,
        previous="firing",
        reason="condition holds",
        labels={"severity": "critical", "run": draw(TEXTS), "rank": draw(TEXTS)},
        annotations=said,
        value=draw(st.floats()),
        position=Position(draw(TEXTS), 7, 420),
        active_at=NOW,
        step=draw(st.one_of(st.none(), st.integers(0, 10**9))),
        line=draw(TEXTS),
        cause=draw(TEXTS),
        incident=draw(TEXTS),
    )


def alert_of(transition: Transition) -> AlertView:
    return AlertView(
        name=transition.alert,
        state="firing",
        labels=transition.labels,
        annotations=transition.annotations,
        value=transition.value,
        active_at=NOW,
        fired_at=NOW,
        position=transition.position,
    )


def check(shown: str) -> None:
    assert not UNSEEN.search(shown), ascii(UNSEEN.findall(shown))
    assert found_in(shown) == []
    shown.encode()


def strings(document: object) -> list[str]:
    """Every text in a JSON document, keys too."""
    match document:
        case str():
            return [document]
        case dict():
            return [found for pair in document.items() for item in pair for found in strings(item)]
        case list():
            return [found for item in document for found in strings(item)]
    return []


@given(transitions())
def test_slack_gets_blocks_in_which_nothing_acts(transition: Transition) -> None:
    linked = from_transition(transition, "https://monitor.lan")
    fallback, blocks = drawn(news_of(message_of(linked)))
    for shown in strings(json.loads(json.dumps([fallback, blocks]))):
        check(shown)
        link = re.fullmatch(r"<https://monitor\.lan(/runs/[\w.~%-]*)?\|[ a-zA-Z]+>", shown)
        assert link or not set("<>") & set(shown)


@given(st.lists(transitions(), min_size=1, max_size=3))
def test_a_group_in_slack_and_in_services_shows_nothing_that_acts(passed: list[Transition]) -> None:
    notifications = tuple(from_transition(each) for each in passed)
    message = Message(
        step="first",
        group=1,
        identity="1",
        news=notifications,
        alerts=notifications,
        opened_at=NOW,
    )
    for content in (whole_of(message), news_of(message)):
        for shown in strings(json.loads(json.dumps(drawn(content)))):
            check(shown)
            assert not set("<>") & set(shown)
        title, text = plain_text(content)
        assert "\n" not in title
        for shown in (title, text):
            check(shown)
            assert not re.search(r"(?<![\w.+-])@|<[@!#&/A-Za-z]|\]\(", shown, re.ASCII)


@given(transitions())
def test_a_webhook_gets_json_of_the_documented_schema(transition: Transition) -> None:
    posted = webhook_body(from_transition(transition))
    WebhookBody.model_validate_json(posted)
    assert len(posted) < 100_000
    for shown in strings(json.loads(posted)):
        check(shown)


@given(transitions())
def test_an_alertmanager_gets_labels_and_annotations(transition: Transition) -> None:
    view = alert_of(transition)
    (posted,) = json.loads(json.dumps(body([SentAlert(view)], NOW, "http://127.0.0.1:9847")))
    for shown in strings(posted):
        check(shown)
        assert len(shown) <= 4096


@given(transitions())
def test_the_outbox_keeps_no_secret_and_gives_back_what_it_got(transition: Transition) -> None:
    kept = to_json(from_transition(transition))
    check(kept.replace("\\n", " "))
    assert to_json(from_json(Notification, kept)) == kept


@given(transitions())
def test_the_daemons_line_is_one_line(transition: Transition) -> None:
    shown = transition_line(transition)
    check(shown)
    assert "\n" not in shown
    assert "\t" not in shown
    passed = transition_json(transition)
    assert found_in("".join(strings(json.loads(passed)))) == []


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen |= {tag, *(f"{tag} {name}" for name, _ in attrs)}


def tags_of(page: bytes) -> set[str]:
    """The tags and attributes of a page."""
    read = Tags()
    read.feed(page.decode())
    return read.seen


@given(transitions(), TEXTS)
def test_report_pages_and_api_show_harmless_text(transition: Transition, message: str) -> None:
    run, where = transition.labels["run"], transition.position
    assert where is not None
    alert = alert_of(transition)
    snapshot = Snapshot(
        version=1,
        at=NOW,
        runs=(),
        alerts=(alert,),
        events=(Event(kind="error", severity="error", run=run, message=message, position=where),),
        monitor=MonitorView.fresh(),
        points=(
            Point("ldlm_train_loss", make_labels(run=run), 1.0),
            Point("ldlm_train_metric", make_labels(run=run, name=message), 1.0),
        ),
    )
    check(health_report(snapshot))
    for name in ("alerts", "events"):
        document = json.loads(resource(snapshot, name, redact))
        assert found_in("\n".join(strings(document))) == []
    harmless = replace(
        transition,
        labels=dict.fromkeys(transition.labels, "a") | {"severity": "critical"},
        annotations=dict.fromkeys(transition.annotations, "a"),
    )
    usual = snapshot.model_copy(update={"alerts": (alert_of(harmless),), "events": ()})
    assert tags_of(live_page(snapshot, redact)) <= tags_of(live_page(usual, redact))
    assert run_path(run) == run_path(plain(run))  # so that the page is found by the link
    _, scrape = exposition(families(snapshot, notifications={}, behind=0), "", redact)
    samples = [
        sample
        for family in text_string_to_metric_families(scrape.decode())
        for sample in family.samples
        if sample.name.startswith("ldlm_train_")
    ]
    assert len(samples) == 2
    assert found_in(scrape.decode()) == []
