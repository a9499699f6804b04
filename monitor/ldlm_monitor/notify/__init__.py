"""Delivers alert transitions to people: at least once, in order, without secrets.

A transition becomes a `notification.Notification`, waits in the `outbox.Outbox`
and is sent by one `courier.Courier` a receiver until the receiver accepts it.
"""

from ldlm_monitor.notify.alertmanager import AlertmanagerClient, AlertmanagerSender
from ldlm_monitor.notify.courier import Courier, Receiver
from ldlm_monitor.notify.heartbeat import HeartbeatSender, Pulse
from ldlm_monitor.notify.notification import Notification, from_transition
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.notify.silences import Silences, Withheld
from ldlm_monitor.notify.slack import SlackWebhook, how_to_configure
from ldlm_monitor.notify.slack_blocks import slack_message
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
    "Withheld",
    "from_transition",
    "how_to_configure",
    "redact",
    "slack_message",
]
