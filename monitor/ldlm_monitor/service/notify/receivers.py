"""The table of receivers, the receivers that are configured, and the threads that send to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ldlm_monitor.service.notify.alertmanager import Alertmanager
from ldlm_monitor.service.notify.apprise import Apprise
from ldlm_monitor.service.notify.collector import Otlp
from ldlm_monitor.service.notify.dead_mans_switch import DeadMansSwitch
from ldlm_monitor.service.notify.policy import Policy
from ldlm_monitor.service.notify.slack import Slack
from ldlm_monitor.service.notify.webhook import Webhook

if TYPE_CHECKING:
    from ldlm_monitor.service.notify.courier import Courier
    from ldlm_monitor.service.notify.outbox import Outbox
    from ldlm_monitor.service.notify.receiver import MessageReceiver, Receiver, ReceiverSettings

RECEIVERS: tuple[type[ReceiverSettings], ...] = (
    Slack,
    Webhook,
    Apprise,
    Alertmanager,
    DeadMansSwitch,
    Otlp,
)
"""The kinds of receivers, each by its table of the settings, in the order in which `notify test`
tries them. The settings, what is sent, and what a user reads of receivers are made of this."""


def receivers_of(tables: Iterable[ReceiverSettings]) -> list[Receiver]:
    """The receivers that are configured. Raises ConfigError for one that cannot be used."""
    return [receiver for table in tables for receiver in table.receivers()]


def couriers(
    receivers: Iterable[MessageReceiver], outbox: Outbox, post_interval: float
) -> Iterator[Courier]:
    """One courier per receiver. They need only the outbox, so they start before the pump.

    `post_interval`: the least seconds between two posts to people.
    """
    from ldlm_monitor.service.notify.courier import Courier

    for receiver in receivers:
        pace = post_interval if isinstance(receiver.policy, Policy) else 0.0
        yield Courier(receiver, outbox, pace=pace)
