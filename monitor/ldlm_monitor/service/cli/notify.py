"""`ldlm-monitor notify test`: a test message to every receiver that is configured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from cyclopts import App

from ldlm_monitor.base.errors import ConfigError, DeliveryError, UsageError
from ldlm_monitor.service.cli.flags import SharedFlags, settings

if TYPE_CHECKING:
    from ldlm_monitor.base.alert import Transition
    from ldlm_monitor.base.snapshot import AlertView
    from ldlm_monitor.service.config import Settings

notify = App(name="notify", help="Tries the receivers of alerts.")

_TEST_SECONDS = 60.0
"""Seconds after which an Alertmanager ends the test alert. A choice: time to see it, soon gone."""


@notify.command(name="test")
def send_test(*, flags: SharedFlags | None = None) -> int:
    """Sends a test message to every receiver, and prints whether each accepted it."""
    receivers = list(_receivers(settings(flags), time.time()))
    if not receivers:
        raise ConfigError(
            "no receiver is configured",
            where="slack",
            remedy="set LDLM_SLACK_WEBHOOK_URL to the URL of an incoming webhook, "
            "or slack.webhook_url_file to a file that holds it; or a bot's token; "
            "or a webhook, apprise, alertmanager or heartbeat",
        )
    problems = []
    for name, send in receivers:
        try:
            remark = send()
        except DeliveryError as error:
            problems.append(f"{name}: {str(error).removeprefix(f'{name} ')}")
        else:
            more = f"; {remark}" if isinstance(remark, str) and remark else ""
            print(f"{name}: accepted the test message{more}")
    if problems:
        raise UsageError(
            "; ".join(problems), where="notify test", remedy="check URL, token and network"
        )
    return 0


def _receivers(configured: Settings, now: float) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each receiver's name, and a function that sends the test message and may return a remark."""
    from ldlm_monitor.service.notify.message import from_transition, message_of
    from ldlm_monitor.service.notify.receivers import otlp_logs, receivers_of
    from ldlm_monitor.service.notify.slack_bot import SlackBot
    from ldlm_monitor.service.notify.states import AlertmanagerClient, SentAlert, ping

    transition, alert = _test_alert(now)
    message = message_of(from_transition(transition, configured.external_url))
    for receiver in receivers_of(configured):
        send = receiver.send_test if isinstance(receiver, SlackBot) else receiver.send
        yield receiver.name, partial(send, message)
    authorization = configured.alertmanager.authorization()
    over_by_then = SentAlert(alert, resolved_at=now + _TEST_SECONDS)
    for server in configured.alertmanager.urls:
        client = AlertmanagerClient(server, authorization=authorization)
        yield client.name, partial(client.send, [over_by_then], now)
    if url := configured.heartbeat.target():
        yield "heartbeat", partial(ping, url)
    if logs := otlp_logs(configured, configured.external_url or ""):
        yield logs.name, partial(logs.send, message)


def _test_alert(now: float) -> tuple[Transition, AlertView]:
    from ldlm_monitor.base.alert import Transition
    from ldlm_monitor.base.snapshot import AlertView

    shared: dict[str, Any] = {
        "state": "firing",
        "labels": {"severity": "info", "run": "notify-test"},
        "annotations": {
            "summary": "A test message: alerts of ldlm-monitor arrive here.",
            "action": "Nothing: this is only a test.",
        },
        "value": 1.0,
        "active_at": now,
    }
    name, reason = "NotifyTest", "condition holds"
    passed = Transition(time=now, alert=name, previous="inactive", reason=reason, **shared)
    return passed, AlertView(name=name, fired_at=now, position=None, **shared)
