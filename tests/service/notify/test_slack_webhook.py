"""The webhook on a real connection: what counts as delivered, and what is tried again."""

import logging
import socket
import time
from email.utils import formatdate

import pytest

from ldlm_monitor.base.errors import ConfigError, DeliveryError
from ldlm_monitor.service.notify.message import message_of
from ldlm_monitor.service.notify.slack_message import SlackWebhook
from tests.service.notify.stories import slack_message

pytestmark = pytest.mark.usefixtures("impatient")


def refused(slack, notification) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        SlackWebhook(slack.url).send(message_of(notification))
    return caught.value


def test_the_message_arrives_as_rendered(slack, make_notification):
    SlackWebhook(slack.url).send(message_of(make_notification()))
    text, blocks = slack_message(make_notification())
    assert slack.received == [
        {"text": text, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}
    ]


@pytest.mark.parametrize("status", [400, 403, 404, 410])
def test_some_refusals_are_for_good(slack, make_notification, status):
    slack.answers.append((status, {}, b"no_service"))
    error = refused(slack, make_notification())
    assert (error.permanent, error.retry_after) == (True, None)
    assert str(error) == f"slack answered {status}: no_service"


def test_blocks_that_slack_refuses_are_left_out_rather_than_the_message(slack, make_notification):
    slack.answers.append((400, {}, b"msg_blocks_too_long"))
    SlackWebhook(slack.url).send(message_of(make_notification()))
    first, second = slack.received
    assert second["text"] == f"`{first['text']}`"
    assert "blocks" not in second


def test_a_page_of_something_between_is_no_acceptance(slack, make_notification):
    slack.answers.append((200, {}, b"<html>please log in"))
    assert not refused(slack, make_notification()).permanent


@pytest.mark.parametrize("status", [408, 500, 502, 503])
def test_a_server_in_trouble_is_asked_again(slack, make_notification, status):
    slack.answers.append((status, {}, b""))
    error = refused(slack, make_notification())
    assert (error.permanent, error.retry_after) == (False, None)


@pytest.mark.parametrize("answer", [(500, {}, b""), (429, {}, b""), "drop"])
def test_the_outbox_alone_tries_again(slack, make_notification, answer):
    slack.answers.append(answer)
    assert not refused(slack, make_notification()).permanent
    assert len(slack.received) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_passed_on(slack, make_notification, status):
    slack.answers.append((status, {"Retry-After": "30"}, b"rate_limited"))
    error = refused(slack, make_notification())
    assert (error.permanent, error.retry_after) == (False, 30.0)


def test_retry_after_may_be_a_date(slack, make_notification):
    in_an_hour = formatdate(time.time() + 3600, usegmt=True)
    slack.answers.append((429, {"Retry-After": in_an_hour}, b""))
    wait = refused(slack, make_notification()).retry_after
    assert wait is not None
    assert 3000 < wait <= 3600


@pytest.mark.parametrize("wish", ["soon", "-1", "nan", "", "Tue, 99 Foo"])
def test_a_retry_after_that_says_nothing_is_ours_to_choose(slack, make_notification, wish):
    slack.answers.append((429, {"Retry-After": wish}, b""))
    assert refused(slack, make_notification()).retry_after is None


def test_no_answer_is_given_up_after_the_timeout(slack, make_notification):
    slack.answers.append("hang")
    error = refused(slack, make_notification())
    assert not error.permanent
    assert "timed out" in str(error)


def test_a_redirect_is_no_delivery_and_is_not_followed(slack, make_notification):
    slack.answers.append((302, {"Location": slack.url.replace("services", "elsewhere")}, b""))
    assert not refused(slack, make_notification()).permanent
    assert slack.methods == ["POST"]


def test_nobody_listening_is_tried_again(make_notification):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/services/T/B/s3cr3tpath"
        with pytest.raises(DeliveryError, match="refused") as caught:
            SlackWebhook(url).send(message_of(make_notification()))
    assert not caught.value.permanent


def test_an_answer_that_is_not_http_is_tried_again(make_notification):
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = SlackWebhook(f"http://127.0.0.1:{server.getsockname()[1]}/x")
        with pytest.raises(DeliveryError) as caught:
            client.send(message_of(make_notification()))
    assert not caught.value.permanent


def test_a_hostile_answer_is_bounded_and_holds_no_secret(slack, make_notification):
    slack.answers.append((500, {}, b"\x1b[31m\xff hf_AbCdEfGhIjKlMnOpQrStUv " + b"x" * 100_000))
    text = str(refused(slack, make_notification()))
    assert "\x1b" not in text
    assert "hf_AbC" not in text
    assert len(text) < 250


def test_the_url_is_never_logged_or_shown(slack, make_notification, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    receiver = SlackWebhook(slack.url)
    slack.answers += [(500, {}, b""), (302, {"Location": slack.url}, b""), "hang"]
    errors = [refused(slack, make_notification()) for _ in range(3)]
    receiver.send(message_of(make_notification()))
    shown = [*map(repr, errors), *map(str, errors), repr(receiver), caplog.text]
    assert not any("s3cr3tpath" in text for text in shown)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.slack.com/services/s3cr3tpath",
        "http://127.0.0.1.evil.example/s3cr3tpath",
        "ftp://127.0.0.1/s3cr3tpath",
        "hooks.slack.com/services/s3cr3tpath",
        "https:///s3cr3tpath",
        "https://hooks.slack.com/s3cr3tpath\n",
        "https://hooks.slack.com/s3cr3t path",
        "https://" + "x" * 100 + ".example/s3cr3tpath",
        "https://[::1/s3cr3tpath",
        "",
    ],
)
def test_only_https_or_loopback_is_taken_and_the_complaint_does_not_repeat_it(url):
    with pytest.raises(ConfigError) as caught:
        SlackWebhook(url)
    assert "s3cr3t" not in str(caught.value)
    assert "Incoming Webhooks" in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://hooks.slack.com/services/T/B/x", "http://localhost:1/x", "http://[::1]:1/x"]
)
def test_https_anywhere_and_http_on_loopback_are_fine(url):
    assert SlackWebhook(url).name == "slack"
