"""What an AlertmanagerSender gets, and when, by Prometheus' own rules of sending."""

import pytest

from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.base.snapshot import AlertView, MonitorView, Snapshot
from ldlm_monitor.service.notify.alertmanager import (
    BATCH,
    RESEND_SECONDS,
    RESOLVED_KEPT_SECONDS,
    AlertmanagerClient,
    AlertmanagerSender,
    SentAlerts,
    body,
)
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.states import LOOK_SECONDS, STILL_SECONDS, Pulse

NOW = 1_769_681_700.0


class Turning:
    """A pump whose turns are counted by hand, and the time."""

    def __init__(self) -> None:
        self.turns = 1
        self.now = NOW
        self.pulse = Pulse(lambda: self.turns)


def alert(name: str = "NonFiniteLoss", run: str = "gpt", **more: str) -> AlertView:
    return AlertView(
        name=name,
        state="firing",
        labels={"run": run, "severity": "critical", **more},
        annotations={"summary": f"{run}: the loss is NaN"},
        value=1.0,
        active_at=NOW - 5,
        fired_at=NOW,
        position=None,
    )


def sent(alerts: SentAlerts, now: float) -> list[tuple[str, bool]]:
    """What is due, by run and whether it is over; it counts as sent."""
    due = alerts.due(now)
    for each in due:
        each.sent_at = now
    return [(each.alert.labels["run"], each.resolved_at is not None) for each in due]


def test_what_fires_is_sent_at_once_and_again_every_minute() -> None:
    alerts = SentAlerts()
    alerts.update([alert()], NOW)
    assert sent(alerts, NOW) == [("gpt", False)]
    assert sent(alerts, NOW + RESEND_SECONDS - 1) == []
    assert sent(alerts, NOW + RESEND_SECONDS) == [("gpt", False)]


def test_what_is_over_is_sent_at_once_and_for_a_quarter_of_an_hour() -> None:
    alerts = SentAlerts()
    alerts.update([alert()], NOW)
    sent(alerts, NOW)
    alerts.update([], NOW + 10)
    assert sent(alerts, NOW + 10) == [("gpt", True)]
    assert sent(alerts, NOW + 10 + RESEND_SECONDS) == [("gpt", True)]
    assert sent(alerts, NOW + 11 + RESOLVED_KEPT_SECONDS) == []


def test_a_clock_that_was_set_back_delays_no_alert_and_no_end() -> None:
    alerts = SentAlerts()
    alerts.update([alert(), alert(run="llama")], NOW)
    sent(alerts, NOW)
    alerts.update([alert()], NOW - 3600)
    assert sent(alerts, NOW - 3600) == [("gpt", False), ("llama", True)]
    assert sent(alerts, NOW - 3600 + RESEND_SECONDS - 1) == []


def test_an_alert_that_comes_back_begins_anew() -> None:
    alerts = SentAlerts()
    for active, now in (([alert()], NOW), ([], NOW + 10), ([alert()], NOW + 20)):
        alerts.update(active, now)
    assert sent(alerts, NOW + 20) == [("gpt", False)]


def test_what_is_pending_is_not_sent() -> None:
    alerts = SentAlerts()
    alerts.update([alert().model_copy(update={"state": "pending"})], NOW)
    assert sent(alerts, NOW) == []


def test_a_storm_goes_in_requests_of_bounded_size() -> None:
    alerts = SentAlerts()
    alerts.update([alert(run=f"run{number}") for number in range(150)], NOW)
    assert [len(sent(alerts, NOW)) for _ in range(3)] == [BATCH, BATCH, 150 - 2 * BATCH]
    assert sent(alerts, NOW) == []


def test_external_labels_are_on_every_alert_and_give_way_to_its_own() -> None:
    alerts = SentAlerts()
    alerts.update([alert()], NOW)
    outer = {"cluster": "a", "job_id": "4711", "run": "of the node"}
    (posted,) = body(alerts.due(NOW), NOW, "", outer)
    assert posted["labels"] == {
        "alertname": "NonFiniteLoss",
        "cluster": "a",
        "job_id": "4711",
        "run": "gpt",
        "severity": "critical",
    }


def test_the_body_is_that_of_api_v2_and_holds_no_secret() -> None:
    alerts = SentAlerts()
    alerts.update([alert(token="hf_" + "abcdEFGH12345678abcdEFGH12345678ab", empty="")], NOW)
    (posted,) = body(alerts.due(NOW), NOW, "http://127.0.0.1:9847")
    assert posted["labels"]["alertname"] == "NonFiniteLoss"
    assert "abcdEFGH" not in str(posted)
    assert "empty" not in posted["labels"]
    assert posted["startsAt"] == "2026-01-29T10:15:00.000Z"
    assert posted["endsAt"] == "2026-01-29T10:19:00.000Z"
    assert posted["generatorURL"] == "http://127.0.0.1:9847/runs/gpt"


def sender(
    url: str, outbox: Outbox, *alerts: AlertView, pump: Turning | None = None
) -> AlertmanagerSender:
    monitor = MonitorView.fresh()
    snapshot = Snapshot(
        version=1, at=NOW, runs=(), alerts=alerts, events=(), monitor=monitor, points=()
    )
    client = AlertmanagerClient(url, authorization="Bearer secret")
    pump = pump or Turning()
    return AlertmanagerSender(
        client, lambda: snapshot, outbox, pulse=pump.pulse, clock=lambda: pump.now
    )


def test_what_was_not_accepted_is_sent_again_after_the_pause_that_was_asked_for(
    slack, outbox: Outbox
) -> None:
    elsewhere = {"Retry-After": "7", "Location": "http://127.0.0.1:1/"}
    slack.answers = [(503, elsewhere, b""), (301, elsewhere, b"")]
    alertmanager = sender(slack.url, outbox, alert())
    assert [alertmanager.turn() for _ in range(4)] == [7.0, 7.0, LOOK_SECONDS, LOOK_SECONDS]
    assert [headers["Authorization"] for headers, _ in slack.posted] == ["Bearer secret"] * 3
    counts = outbox.counts()
    assert counts[alertmanager.receiver, "sent"] == 1
    assert counts[alertmanager.receiver, "retried"] == 2


def test_a_server_that_is_not_there_is_said_and_counted(outbox: Outbox) -> None:
    alertmanager = sender("http://127.0.0.1:1", outbox, alert())
    with pytest.raises(DeliveryError, match="could not be reached"):
        AlertmanagerClient("http://127.0.0.1:1").send([], 0.0)
    for failures in range(8):  # the pause doubles, and is at most a minute
        longest = 2**failures
        assert min(longest / 2, 60) <= alertmanager.turn() <= min(longest, 60)
    assert outbox.counts()[alertmanager.receiver, "retried"] == 8


def test_the_watchdog_is_sent_no_more_while_the_pump_is_stuck_and_the_other_alerts_are(
    slack, outbox: Outbox
) -> None:
    pump = Turning()
    watchdog = alert("Watchdog", severity="none")
    alertmanager = sender(slack.url, outbox, alert(), watchdog, pump=pump)

    def told_at(second: float) -> set[str]:
        before = len(slack.received)
        pump.now = NOW + second
        alertmanager.turn()
        return {each["labels"]["alertname"] for sent in slack.received[before:] for each in sent}

    assert told_at(0) == {"NonFiniteLoss", "Watchdog"}
    assert told_at(STILL_SECONDS + 1) == {"NonFiniteLoss"}
    assert told_at(2 * STILL_SECONDS + 2) == {"NonFiniteLoss"}
    pump.turns += 1
    assert told_at(2 * STILL_SECONDS + 3) == {"Watchdog"}
