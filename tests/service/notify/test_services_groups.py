"""A group of alerts through Apprise: counted by kind, on a real connection."""

import re

import pytest

from ldlm_monitor.service.notify.apprise import apprise_services
from ldlm_monitor.service.notify.content import news_of, plain_text
from ldlm_monitor.service.notify.message import Message, Receipt

pytest.importorskip("apprise")


def message(*news, alerts=()) -> Message:
    alerts = news or alerts
    return Message(step="follow-up", group=1, identity="1", news=news, alerts=alerts, opened_at=0.0)


def test_alerts_of_one_kind_and_run_are_counted_in_one_line(make_notification):
    many = [make_notification("NcclTimeout", rank=str(rank)) for rank in range(999)]
    heading, lines = plain_text(news_of(message(*many, make_notification(state="resolved"))))
    assert heading == "🔴 r1: NcclTimeout firing"
    assert lines.splitlines()[:2] == [
        "🔴 NcclTimeout firing ×999: r1 ranks 0-998",
        "✅ NonFiniteLoss resolved: r1 rank 3",
    ]


def test_what_has_no_room_is_counted(make_notification):
    kinds = [make_notification(f"Alert{number}") for number in range(40)]
    _, text = plain_text(news_of(message(*kinds)))
    lines = text.splitlines()
    named = sum("Alert" in line for line in lines)
    assert f"… and {40 - named} more" in lines


def test_a_service_gets_one_message_for_a_group_and_the_whole_of_a_single_alert(
    slack, make_notification
):
    (service,) = apprise_services([slack.url.replace("http", "json")])
    both = message(make_notification(), make_notification("OutOfMemory"))
    assert service.send(both) == Receipt()
    service.send(message(make_notification()))
    service.send(message(alerts=(make_notification(),)))
    group, single, repeat = slack.received
    assert group["title"] == "🔴 r1: NonFiniteLoss firing +1: OutOfMemory"
    assert "Invalid text_loss detected: nan" in single["message"]
    assert repeat["title"] == "🔴 still: r1: NonFiniteLoss firing"


@pytest.mark.parametrize(
    "words",
    [
        *("@everyone", "@@everyone", "@@@here", "job.@everyone", "a+@channel", "a-@@all"),
        *("job@everyone", "x@HERE.org", "a@@everyone", "_@channel", "(@all)", "<@everyone>"),
    ],
)
def test_no_text_of_a_log_mentions_a_whole_channel(make_notification, words):
    title, text = plain_text(news_of(message(make_notification(run=words, summary=words))))
    assert not re.search("@(everyone|here|channel|all)", f"{title}\n{text}", re.IGNORECASE)


def test_a_mail_address_stays_readable(make_notification):
    _, text = plain_text(news_of(message(make_notification(summary="ask ml.ops@example.org"))))
    assert text.startswith("ask ml.ops@example.org\n")
