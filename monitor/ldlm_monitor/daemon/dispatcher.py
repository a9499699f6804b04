"""Puts transitions into the outbox, prints them, and makes the receivers' sending threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ldlm_monitor.config import Settings
from ldlm_monitor.config.policy import Policy, StreamPolicy
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.errors import ConfigError
from ldlm_monitor.model.incident_view import IncidentView
from ldlm_monitor.notify.apprise import apprise_services
from ldlm_monitor.notify.courier import Courier, Receiver, Sender
from ldlm_monitor.notify.incident_log import LOGS, IncidentLog
from ldlm_monitor.notify.loss_picture import picture_of
from ldlm_monitor.notify.message import from_transition
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.notify.silences import Silences
from ldlm_monitor.notify.slack_bot import SlackBot
from ldlm_monitor.notify.slack_message import SlackWebhook
from ldlm_monitor.notify.states import (
    AlertmanagerClient,
    AlertmanagerSender,
    HeartbeatSender,
    Pulse,
)
from ldlm_monitor.notify.webhook import WebhookSender
from ldlm_monitor.text.lines import transition_line
from ldlm_monitor.text.sanitize import plain

if TYPE_CHECKING:
    from ldlm_monitor.daemon.pump import Pump
    from ldlm_monitor.notify.otlp import Families, OtlpLogs

log = logging.getLogger(__name__)

SLACK_CHANNEL = "slack:"
"""Prefix of the receiver's name of a further channel of the Slack bot; the rest is the channel."""


@dataclass(slots=True)
class Dispatcher:
    """Prints transitions and puts them into the outbox, each once.

    `receivers`: their names. `couriers`: senders to wake. `prints`: whether to print to stdout.
    `external_url`: as in the settings.
    """

    outbox: Outbox
    receivers: Sequence[str]
    silences: Silences | None = None
    couriers: Sequence[Courier] = ()
    prints: bool = field(default=True, kw_only=True)
    external_url: str | None = field(default=None, kw_only=True)
    incident_log: IncidentLog | None = field(default=None, kw_only=True)

    def dispatch(
        self, transitions: Iterable[Transition], now: float, *, notify: bool = True
    ) -> None:
        """Print the transitions; with `notify`, queue those that are not pending for receivers."""
        for transition in transitions:
            if transition.is_heartbeat:
                continue
            notification = from_transition(transition, self.external_url)
            self.outbox.note(notification)
            if notify and transition.state != "pending":
                self.outbox.add(notification, self.receivers, now)
            silence = self.silences and self.silences.silenced(notification, now)
            mark = f"  [silenced by {plain(silence.by)}]" if silence else ""
            self.print_line(transition_line(transition) + mark)
        self._wake()

    def end_acknowledgements(
        self, passed: list[Transition], active: Callable[[], Collection[str]]
    ) -> None:
        """End acknowledgements with their alerts: those of `passed`, or not `active` any more."""
        if self.silences is not None and self.silences.any:
            ended = {each.key for each in passed if each.state not in ("pending", "firing")}
            self.silences.end_acknowledgements(ended, active())

    def dispatch_history(
        self, passed: list[tuple[Transition, bool]], now: float, *, recent: bool
    ) -> None:
        """Send news, and of history the alerts that still fire, unless they were sent before.

        `passed`: pairs of a transition and whether it is news. `recent`: whether the run was active
        recently enough (`pump.NEWS_SECONDS`) for alerts of its history to be sent.
        """
        sent = set(self.outbox.firing_keys())
        before: dict[str, Transition] = {}
        over = 0
        for transition, news in passed:
            key, firing = transition.key, transition.state == "firing"
            if transition.state == "pending":
                continue
            if not news:
                before[key] = transition
                over += not firing
                continue
            past = before.pop(key, None)
            if past is not None and past.state != "firing" and key in sent:
                self.dispatch([past], now)
                sent.discard(key)
            if firing != (key in sent):
                self.dispatch([transition], now)
                sent ^= {key}
            elif firing:
                self.dispatch([transition], now, notify=False)
        for key, past in before.items():
            if past.state == "firing":
                self.dispatch([past], now, notify=recent and key not in sent)
            elif key in sent:
                self.dispatch([past], now)
        if over:
            log.info("alerts in the files' past that have ended: %d (see replay)", over)

    def update_incidents(self, incidents: Sequence[IncidentView], now: float) -> None:
        """Update the sent messages of incidents that have changed since, and log new ones."""
        if self.incident_log is not None:
            self.incident_log.update(incidents, now)
        if self.receivers and self.outbox.update_incidents(incidents, now):
            self._wake()

    def _wake(self) -> None:
        for courier in self.couriers:
            courier.wake()

    def print_line(self, line: str) -> None:
        """Print a line; if stdout is closed or its disk full, print no more, but go on sending."""
        if self.prints:
            try:
                print(line, flush=True)
            except OSError as error:
                self.prints = False
                log.error("stdout: cannot be written (%s); alerts go on without it", error.strerror)


def receivers_of(settings: Settings) -> Iterator[Receiver]:
    """The receivers of messages that are configured. Raises ConfigError for an unusable one."""
    if token := settings.slack.token():
        channels = {"slack": settings.slack.channel}
        channels |= {f"{SLACK_CHANNEL}{channel}": channel for channel in settings.slack.channels}
        for name, channel in channels.items():
            yield SlackBot(token, channel, api_url=settings.slack.api_url, name=name)
    elif settings.slack.channels:
        raise ConfigError(
            "more channels need a bot",
            where="slack.channels",
            remedy="set slack.bot_token_file and slack.channel; a webhook writes to one channel",
        )
    elif url := settings.slack.secret():
        yield SlackWebhook(url)
    if url := settings.webhook.target():
        yield WebhookSender(url, secret=settings.webhook.secret())
    yield from apprise_services(settings.apprise.urls())


def policy_of(settings: Settings, receiver: Receiver) -> StreamPolicy:
    """The settings of a receiver that decide which alerts it gets, and when."""
    if isinstance(receiver, WebhookSender):
        return settings.webhook
    if receiver.name.startswith(SLACK_CHANNEL):
        return settings.slack.channels[receiver.name.removeprefix(SLACK_CHANNEL)]
    return settings.slack if receiver.name == "slack" else settings.apprise


def draw_from(pump: Pump, receivers: Collection[Receiver]) -> None:
    """Let the receivers that accept pictures draw loss curves from the pump's snapshot."""
    for receiver in receivers:
        if isinstance(receiver, SlackBot):
            receiver.draw = picture_of(lambda: pump.snapshot.curves)


def couriers(
    settings: Settings, outbox: Outbox, receivers: Sequence[Receiver]
) -> Iterator[Courier]:
    """One courier per receiver. They need only the outbox, so they start before the pump."""
    for receiver in receivers:
        is_for_people = isinstance(policy_of(settings, receiver), Policy)
        pace = settings.post_interval_seconds if is_for_people else 0.0
        yield Courier(receiver, outbox, pace=pace)


def incident_log(settings: Settings, outbox: Outbox) -> IncidentLog | None:
    """Queues incidents for the collector, if one is configured."""
    if settings.otlp.endpoint is None:
        return None
    return IncidentLog(outbox, LOGS, settings.external_url)


def senders(
    settings: Settings, pump: Pump, outbox: Outbox, url: str, exported: Families
) -> Iterator[Sender]:
    """Senders for each Alertmanager, the dead man's switch and the collector, as configured.

    `url`: the monitor's. `exported`: what `/metrics` exports. Raises ConfigError.
    """
    authorization = settings.alertmanager.authorization()
    for server in settings.alertmanager.urls:
        client = AlertmanagerClient(
            server,
            authorization=authorization,
            generator=url,
            external=settings.external_labels,
        )
        log.info("%s gets the firing alerts", client.name)
        pulse = Pulse(lambda: pump.turns)
        yield AlertmanagerSender(client, lambda: pump.snapshot, outbox, pulse=pulse)
    if switch := settings.heartbeat.target():
        interval = settings.heartbeat.interval_seconds
        log.info("a dead man's switch is called every %g s", interval)
        yield HeartbeatSender(switch, interval, Pulse(lambda: pump.turns), outbox)
    if logs := otlp_logs(settings, url):
        from ldlm_monitor.notify.otlp import OtlpMetrics

        log.info("the collector at %s gets metrics and incidents", settings.otlp.endpoint)
        yield Courier(logs, outbox)
        yield OtlpMetrics(logs, settings.otlp.interval_seconds, exported, outbox)


def otlp_logs(settings: Settings, url: str) -> OtlpLogs | None:
    """The receiver of incidents, if a collector is configured. Raises ConfigError without SDK."""
    if settings.otlp.endpoint is None:
        return None
    try:
        from ldlm_monitor.notify.otlp import OtlpLogs, resource_of
    except ImportError as error:
        raise ConfigError(
            "needs the OpenTelemetry SDK",
            where="otlp.endpoint",
            remedy="pip install 'ldlm-monitor[otlp]'",
        ) from error
    return OtlpLogs(settings.otlp.endpoint, resource_of(url, settings.external_labels))
