"""`notify test` against a Slack of our own."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.service.notify import slack_api as local

Ask = Callable[..., Any]


class Slack(HTTPServer):
    status = 200
    received: list[dict[str, Any]]


class _Webhook(BaseHTTPRequestHandler):
    server: Slack

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.received.append(json.loads(body or "{}"))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"ok" if self.server.status == 200 else b"no_service")

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slack]:
    with Slack(("127.0.0.1", 0), _Webhook) as server:
        server.received = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/services/T/B/sesame"
        monkeypatch.setenv("LDLM_SLACK_WEBHOOK_URL", url)
        yield server
        server.shutdown()
        thread.join()


def test_a_test_message_arrives(ask: Ask, slack: Slack) -> None:
    answer = ask("notify", "test")
    assert (answer.code, answer.out) == (0, "slack: accepted the test message\n")
    (message,) = slack.received
    assert "NotifyTest" in message["text"]


def test_a_refusal_is_told_without_the_secret(ask: Ask, slack: Slack) -> None:
    slack.status = 404
    answer = ask("notify", "test")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("ldlm-monitor: notify test: slack: ")
    assert "404" in answer.err
    assert "sesame" not in answer.err


def test_without_a_receiver_it_says_how_to_get_one(ask: Ask) -> None:
    answer = ask("notify", "test")
    assert answer.code == 2
    assert "LDLM_SLACK_WEBHOOK_URL" in answer.err


def test_each_receiver_is_tried_and_an_alertmanager_takes_the_alert(
    ask: Ask, slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "LDLM_ALERTMANAGER_URLS", f"http://127.0.0.1:{slack.server_port},http://127.0.0.1:1"
    )
    answer = ask("notify", "test")
    assert answer.code == 2, "one of them is not there"
    assert answer.out.splitlines() == [
        "slack: accepted the test message",
        f"alertmanager 127.0.0.1:{slack.server_port}: accepted the test message",
    ]
    assert "alertmanager 127.0.0.1:1: could not be reached" in answer.err
    _, (alert,) = slack.received
    assert alert["labels"] == {"alertname": "NotifyTest", "run": "notify-test", "severity": "info"}


def test_the_dead_mans_switch_is_tried_too_and_its_url_is_not_shown(
    ask: Ask, slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LDLM_HEARTBEAT_URL", f"http://127.0.0.1:{slack.server_port}/sesame")
    answer = ask("notify", "test")
    assert answer.out.splitlines()[-1] == "heartbeat: accepted the test message"
    slack.status = 404
    answer = ask("notify", "test")
    assert "heartbeat: answered 404" in answer.err
    assert "sesame" not in answer.err


@pytest.mark.parametrize(
    ("urls", "complaint"),
    [("ftp://a", "http://"), ("http://mallory:sesame@a:9093", "authorization_file")],
)
def test_an_alertmanager_that_cannot_be_used_is_refused(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, urls: str, complaint: str
) -> None:
    monkeypatch.setenv("LDLM_ALERTMANAGER_URLS", urls)
    answer = ask("notify", "test")
    assert answer.code == 2
    assert complaint in answer.err
    assert "mallory" not in answer.err
    assert "sesame" not in answer.err


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[local.SlackApi]:
    with local.slack_api() as state:
        monkeypatch.setenv("LDLM_SLACK_BOT_TOKEN", local.TOKEN)
        monkeypatch.setenv("LDLM_SLACK_CHANNEL", local.CHANNEL)
        monkeypatch.setenv("LDLM_SLACK_API_URL", state.url)
        yield state


def test_a_bot_posts_and_changes_its_test_message(ask: Ask, api: local.SlackApi) -> None:
    answer = ask("notify", "test")
    assert (answer.code, answer.out) == (0, "slack: accepted the test message\n")
    (posted,) = api.posted
    assert posted["edits"] == 1


def test_it_says_what_the_bot_is_not_allowed(ask: Ask, api: local.SlackApi) -> None:
    api.scopes = "chat:write,groups:history"
    assert ask("notify", "test").out == (
        "slack: accepted the test message; without the scope files:write it adds no pictures\n"
    )


def test_a_token_that_slack_does_not_know_is_told_without_it(
    ask: Ask, api: local.SlackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LDLM_SLACK_BOT_TOKEN", "xoxb-sesame-sesame")
    answer = ask("notify", "test")
    assert answer.code == 2
    assert "invalid_auth" in answer.err
    assert "sesame" not in answer.err


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"LDLM_SLACK_CHANNEL": ""}, "slack.channel: is not set"),
        ({"LDLM_SLACK_WEBHOOK_URL": "https://hooks.slack.com/x"}, "both set"),
        ({"LDLM_ROUTE_RECEIVER": "pager"}, "LDLM_ROUTE_RECEIVER: route trees, inhibition and"),
    ],
)
def test_a_bot_that_cannot_be_used_is_refused_in_one_line(
    ask: Ask, api: local.SlackApi, monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str], complaint: str,
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    answer = ask("notify", "test")
    assert answer.code == 2
    assert complaint in answer.err
    assert api.posted == []


def test_each_channel_of_a_bot_is_tried(
    ask: Ask, api: local.SlackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LDLM_SLACK_CHANNELS", '{"COTHER": {"min_severity": "critical"}}')
    assert ask("notify", "test").out.splitlines() == [
        "slack: accepted the test message",
        "slack:COTHER: accepted the test message",
    ]
    assert [each["channel"] for each in api.posted] == [local.CHANNEL, "COTHER"]
