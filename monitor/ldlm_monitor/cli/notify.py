"""`ldlm-monitor notify test`: a test message to every receiver that is configured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cyclopts import App

from ldlm_monitor.cli.flags import SharedFlags, settings
from ldlm_monitor.errors import ConfigError, DeliveryError, UsageError

if TYPE_CHECKING:
    from ldlm_monitor.alert import Transition

app = App(name="notify", help="Tries the receivers of alerts.")


@app.command(name="test")
def send_test(*, flags: SharedFlags | None = None) -> int:
    """Sends a test message to every receiver, and says what they answered."""
    from ldlm_monitor.notify.notification import from_transition
    from ldlm_monitor.notify.slack import SlackWebhook

    url = settings(flags).slack.secret()
    if url is None:
        raise ConfigError(
            "no receiver is configured",
            where="slack",
            remedy="set LDLM_SLACK_WEBHOOK_URL to the URL of an incoming webhook, "
            "or slack.webhook_url_file to a file that holds it",
        )
    receiver = SlackWebhook(url)
    try:
        receiver.send(from_transition(_example(time.time())))
    except DeliveryError as error:
        raise UsageError(
            str(error), where=f"notify test: {receiver.name}", remedy="check the webhook's URL"
        ) from error
    print(f"{receiver.name}: accepted the test message")
    return 0


def _example(now: float) -> Transition:
    from ldlm_monitor.alert import Transition

    return Transition(
        time=now,
        alert="NotifyTest",
        state="firing",
        previous="inactive",
        reason="condition holds",
        labels={"severity": "info", "run": "notify-test"},
        annotations={
            "summary": "A test message: alerts of ldlm-monitor arrive here.",
            "action": "Nothing: this is only a test.",
        },
        value=1.0,
        active_at=now,
    )
