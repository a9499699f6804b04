"""Silences: which alerts they mean, how long they hold, and that they outlive a restart."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.alert import State, Transition
from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.snapshot import AlertView
from ldlm_monitor.service.notify.message import Notification, Receipt, from_transition
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.policy import Policy
from ldlm_monitor.service.notify.silences import (
    MAX_KEPT,
    Acknowledgement,
    LabelMatcher,
    Silence,
    Silences,
    read_request,
)

NOW = 1_700_000_000.0
LABELS = {"run": "r1", "severity": "critical"}


def rfc3339(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat()


def asked(*matchers: dict[str, object], **changes: object) -> bytes:
    """What a client sends: by default a silence of run r1 for the next hour."""
    fields = {
        "matchers": list(matchers) or [{"name": "run", "value": "r1"}],
        "endsAt": rfc3339(NOW + 3600),
        "createdBy": "ada",
        "comment": "known",
        **changes,
    }
    return json.dumps({key: value for key, value in fields.items() if value is not None}).encode()


def an_alert(**labels: str) -> AlertView:
    return AlertView(
        name="LossSpike",
        state="firing",
        labels=labels or LABELS,
        annotations={},
        value=1.0,
        active_at=NOW,
        fired_at=NOW,
        position=None,
    )


def an_ack(**labels: str) -> bytes:
    labels = labels or LABELS
    return json.dumps({"alert": "LossSpike", "labels": labels, "by": "ada", "comment": ""}).encode()


def an_instance(
    alert: str = "LossSpike", labels: dict[str, str] = LABELS, state: State = "firing"
) -> Notification:
    return from_transition(
        Transition(
            time=NOW,
            alert=alert,
            state=state,
            previous="firing",
            reason="condition holds",
            labels=labels,
            value=1.0,
            active_at=NOW,
        )
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "silences.sqlite"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], Silences]]:
    """Opens the file; a second time as after a restart."""
    known: list[Silences] = []

    def again() -> Silences:
        if known:
            known.pop().close()
        known.append(Silences(path))
        return known[0]

    yield again
    known.pop().close()


@pytest.fixture
def silences(opened: Callable[[], Silences]) -> Silences:
    return opened()


# Which alerts are meant


@pytest.mark.parametrize(
    ("matcher", "meant"),
    [
        ({"name": "alertname", "value": "LossSpike"}, True),
        ({"name": "alertname", "value": "Loss"}, False),
        ({"name": "alertname", "value": "Loss", "isRegex": True}, False),
        ({"name": "alertname", "value": "Loss.*|Nan", "isRegex": True}, True),
        ({"name": "run", "value": "r2", "isEqual": False}, True),
        ({"name": "run", "value": "r[0-9]", "isRegex": True, "isEqual": False}, False),
        ({"name": "node", "value": ""}, True),
        ({"name": "node", "value": ".*", "isRegex": True}, True),
        ({"name": "node", "value": ".+", "isRegex": True}, False),
    ],
)
def test_a_matcher_compares_the_whole_value_and_a_missing_label_is_empty(silences, matcher, meant):
    silences.take_silence(asked({"name": "severity", "value": "critical"}, matcher), NOW)
    assert (silences.silenced(an_instance("LossSpike", LABELS), NOW) is not None) is meant


def test_every_matcher_must_hold(silences):
    silences.take_silence(
        asked({"name": "run", "value": "r1"}, {"name": "severity", "value": "info"}), NOW
    )
    assert silences.silenced(an_instance("LossSpike", LABELS), NOW) is None


@given(st.text(max_size=50), st.text(max_size=50))
def test_a_negated_matcher_is_the_opposite(value, label):
    one = LabelMatcher(name="run", value=value)
    other = LabelMatcher(name="run", value=value, is_equal=False)
    assert one.holds({"run": label}) is not other.holds({"run": label})


def test_a_label_that_is_no_valid_text_is_matched_too(silences):
    silences.take_silence(asked({"name": "run", "value": ".+", "isRegex": True}), NOW)
    assert silences.silenced(an_instance("LossSpike", {"run": "\udcff\n"}), NOW)


# When it holds


def test_it_holds_from_its_start_until_its_end(silences):
    silences.take_silence(asked(startsAt=rfc3339(NOW + 60)), NOW)
    held = [bool(silences.silenced(an_instance("X", LABELS), NOW + t)) for t in (0, 60, 3599, 3600)]
    assert held == [False, True, True, False]
    states = [s["status"]["state"] for s in silences.listing(NOW)["silences"]]
    assert states == ["pending"]
    assert silences.listing(NOW + 3600)["silences"] == []


def test_it_can_be_ended_before_its_time_and_once(silences):
    number = silences.take_silence(asked(), NOW)
    assert silences.expire(number, NOW + 1)
    assert silences.silenced(an_instance("X", LABELS), NOW + 1) is None
    assert not silences.expire(number, NOW + 2)


def test_a_restart_changes_nothing(silences, opened):
    number = silences.take_silence(asked({"name": "run", "value": "r.", "isRegex": True}), NOW)
    silences.take_ack(an_ack(), [an_alert()], NOW)
    before = silences.listing(NOW)
    again = opened()
    assert again.listing(NOW) == before
    assert again.silenced(an_instance("X", LABELS), NOW).by == "ada"
    assert again.expire(number, NOW)
    assert opened().silenced(an_instance("X", LABELS), NOW) is None


def test_what_is_over_makes_room(silences):
    for _ in range(MAX_KEPT):
        silences.take_silence(asked(endsAt=rfc3339(NOW + 60)), NOW)
    with pytest.raises(UsageError, match=str(MAX_KEPT)):
        silences.take_silence(asked(), NOW + 59)
    assert silences.take_silence(asked(), NOW + 60)


# What is refused


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "JSON"),
        (b"[]", "object"),
        (b"\xff", "JSON"),
        (asked(endsAt=None), "endsAt"),
        (asked(endsAt="tomorrow"), "endsAt"),
        (asked(endsAt="1900000000"), "RFC 3339"),
        (asked(endsAt="2099-01-01T00:00:00"), "timezone"),
        (asked(endsAt=rfc3339(NOW - 1)), "past"),
        (asked(startsAt=rfc3339(NOW + 3600)), "endsAt must lie after"),
        (asked(createdBy=None), "createdBy"),
        (asked(createdBy=""), "createdBy"),
        (asked(matchers=[]), "matchers"),
        (asked({"name": "run", "value": "("}), None),
        (asked({"name": "run", "value": "(", "isRegex": True}), "regular expression"),
        (asked({"name": "run", "value": "(x{999}){999}", "isRegex": True}), "regular expression"),
        (asked({"name": "run", "value": "x" * 1025}), "matchers.0.value"),
        (asked(*[{"name": "run", "value": "r"}] * 21), "matchers"),
        (asked({"name": "run", "value": "r", "isregex": True}), "unknown key"),
        (asked({"name": "run", "value": "r", "isRegex": "yes"}), "isRegex"),
        (asked({"name": "a b", "value": "r"}), "matchers.0.name"),
        (asked({"name": "run", "value": ".*", "isRegex": True}), "at least one matcher"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line_that_names_it(silences, body, words):
    if words is None:
        assert silences.take_silence(body, NOW)
        return
    with pytest.raises(UsageError) as refused:
        silences.take_silence(body, NOW)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert silences.listing(NOW)["silences"] == []


@given(st.binary(max_size=200))
def test_no_body_does_more_than_be_refused(body):
    for kind in (Silence, Acknowledgement):
        with pytest.raises(UsageError):
            read_request(kind, body)


# Acknowledgements


def test_an_acknowledgement_means_exactly_one_alert_until_it_ends(silences):
    silences.take_ack(an_ack(), [an_alert()], NOW)
    key = an_instance().key
    assert silences.silenced(an_instance("LossSpike", LABELS), NOW + 1e9)
    assert silences.silenced(an_instance("LossSpike", {**LABELS, "rank": "3"}), NOW) is None
    assert silences.silenced(an_instance("NonFiniteLoss", LABELS), NOW) is None
    silences.end_acknowledgements((), [key])
    assert silences.silenced(an_instance("LossSpike", LABELS), NOW)
    silences.end_acknowledgements([key], [key])
    assert silences.silenced(an_instance("LossSpike", LABELS), NOW) is None


def test_an_alert_that_is_not_active_cannot_be_acknowledged(silences):
    with pytest.raises(LookupError, match="no alert"):
        silences.take_ack(an_ack(run="r2"), [an_alert()], NOW)


def test_one_that_is_said_again_replaces_the_first(silences, opened):
    for _ in range(2):
        number = silences.take_ack(an_ack(), [an_alert()], NOW)
    assert [ack["id"] for ack in opened().listing(NOW)["acks"]] == [number]


def test_an_alert_whose_label_holds_a_secret_is_acknowledged_by_what_was_shown(silences, opened):
    labels = {"run": "HF_TOKEN=hf_" + "a" * 30, "node": "\udcff"}
    shown = {"run": "HF_TOKEN=[redacted]", "node": "\ufffd"}
    silences.take_ack(an_ack(**shown), [an_alert(**labels)], NOW)
    assert opened().silenced(an_instance("LossSpike", labels), NOW)


# What is held back


class Channel:
    """A receiver whose outbox asks the silences, over restarts."""

    def __init__(self, folder: Path, opened: Callable[[], Silences]) -> None:
        self.path = folder / "outbox.sqlite"
        self.opened = opened
        self.restart()

    def restart(self) -> None:
        self.silences = self.opened()
        self.outbox = Outbox(self.path, {}, self.silences)

    def add(self, state: State = "firing", **labels: str) -> None:
        self.outbox.add(an_instance(labels=labels or LABELS, state=state), ["slack"], NOW)

    def sent(self, now: float) -> list[tuple[str, str]]:
        """Run and state of what is due."""
        sent = []
        while (pending := self.outbox.due("slack", now)) is not None:
            self.outbox.accepted(pending, now, Receipt())
            sent += [(each.run, each.state) for each in pending.message.news]
        return sent


@pytest.fixture
def channel(tmp_path: Path, opened: Callable[[], Silences]) -> Iterator[Channel]:
    made = Channel(tmp_path, opened)
    yield made
    made.outbox.close()


def test_a_silenced_alert_is_sent_when_the_silence_ends_and_it_still_fires(channel):
    channel.silences.take_silence(asked({"name": "alertname", "value": "LossSpike"}), NOW)
    for run in ("r1", "r2"):
        channel.add(run=run)
    assert channel.sent(NOW) == []
    channel.add("resolved", run="r2")
    assert channel.sent(NOW + 3600) == [("r1", "firing")]
    assert channel.sent(NOW + 3601) == []
    assert channel.outbox.counts()["slack", "withheld"] == 2


def test_the_end_of_what_was_never_sent_is_not_sent_and_of_what_was_sent_is(channel):
    channel.add(run="r2")
    assert channel.sent(NOW) == [("r2", "firing")]
    channel.silences.take_silence(asked({"name": "alertname", "value": "LossSpike"}), NOW)
    channel.add(run="r1")
    for run in ("r1", "r2"):
        channel.add("resolved", run=run)
    assert channel.sent(NOW) == [("r2", "resolved")]
    assert channel.sent(NOW + 3600) == []


def test_an_alert_that_comes_back_after_its_acknowledgement_is_sent(channel):
    key = an_instance().key
    channel.silences.take_ack(an_ack(), [an_alert()], NOW)
    channel.add()
    assert channel.sent(NOW) == []
    channel.silences.end_acknowledgements([key], [key])
    assert channel.sent(NOW) == [("r1", "firing")]


def test_what_was_held_back_is_sent_after_a_restart_once_it_is_seen_to_fire(channel):
    channel.silences.take_silence(asked(), NOW)
    channel.add()
    assert channel.sent(NOW) == []
    channel.outbox.close()
    channel.restart()
    assert channel.sent(NOW + 1) == []
    assert channel.sent(NOW + 3600) == [], "the logs were not read again yet"
    channel.outbox.note(an_instance())
    assert channel.sent(NOW + 3600) == [("r1", "firing")]


def test_what_ended_while_the_monitor_was_down_is_not_sent(channel):
    channel.silences.take_silence(asked(), NOW)
    channel.add()
    assert channel.sent(NOW) == []
    channel.outbox.close()
    channel.restart()
    channel.add("resolved")
    assert channel.sent(NOW + 3600) == []


def test_what_is_silenced_is_not_repeated(tmp_path, opened):
    silences = opened()
    policy = Policy(repeat_interval_seconds=600)
    outbox = Outbox(tmp_path / "outbox.sqlite", {"slack": policy}, silences)
    outbox.add(an_instance(), ["slack"], NOW)
    outbox.accepted(outbox.due("slack", NOW), NOW, Receipt())
    silences.take_silence(asked(), NOW)
    assert outbox.due("slack", NOW + 600) is None
    assert outbox.due("slack", NOW + 3660).message.step == "repeat"
    outbox.close()


def test_what_a_long_silence_holds_is_not_forgotten(channel):
    """Deliveries that were decided are forgotten after a month; one that is held is not decided."""
    month = 31 * 86_400
    held = {"name": "run", "value": "r1"}
    channel.silences.take_silence(asked(held, endsAt=rfc3339(NOW + month + 60)), NOW)
    channel.add()
    assert channel.sent(NOW) == []
    channel.outbox.add(an_instance(labels={**LABELS, "run": "r2"}), ["slack"], NOW + month)
    assert channel.sent(NOW + month) == [("r2", "firing")]
    assert channel.sent(NOW + month + 61) == [("r1", "firing")]
