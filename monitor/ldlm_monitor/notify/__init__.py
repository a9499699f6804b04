"""Delivers alert transitions to people: at least once, in order, without secrets.

A transition becomes a `message.Notification` and waits in the `outbox.Outbox`, which makes
messages of them; one `courier.Courier` a receiver sends those until they are accepted.
"""

from ldlm_monitor.notify.courier import Courier, Receiver
from ldlm_monitor.notify.message import Notification, from_transition
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.notify.silences import Silences
from ldlm_monitor.notify.slack import SlackWebhook, how_to_configure
from ldlm_monitor.notify.states import (
    AlertmanagerClient,
    AlertmanagerSender,
    HeartbeatSender,
    Pulse,
)
from ldlm_monitor.text.sanitize import redact

__all__ = [
    "AlertmanagerClient",
    "AlertmanagerSender",
    "Courier",
    "HeartbeatSender",
    "Notification",
    "Outbox",
    "Pulse",
    "Receiver",
    "Silences",
    "SlackWebhook",
    "from_transition",
    "how_to_configure",
    "redact",
]
