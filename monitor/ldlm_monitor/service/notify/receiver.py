"""What a kind of receivers declares: its settings, how those make receivers, and what is sent.

The settings of every kind are loaded by every command, so a module that declares one imports what
sends only in the methods that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from ldlm_monitor.base.setting_types import Section
from ldlm_monitor.service.notify.policy import StreamPolicy

if TYPE_CHECKING:
    from ldlm_monitor.base.names import Metric
    from ldlm_monitor.base.points import Point
    from ldlm_monitor.base.snapshot import AlertView, Snapshot
    from ldlm_monitor.service.notify.courier import Sender
    from ldlm_monitor.service.notify.message import Message, Receipt
    from ldlm_monitor.service.notify.outbox import Outbox

Draw: TypeAlias = "Callable[[Message], bytes | None]"
"""Draws a picture (PNG) for a message; None if there is nothing to show."""
Families: TypeAlias = "Callable[[], Iterable[tuple[Metric, Iterable[Point]]]]"
"""Returns what `/metrics` exports."""


@dataclass(frozen=True, kw_only=True)
class TrialAlert:
    """What `notify test` sends: one alert, as a message and as an Alertmanager gets it.

    `now`: Unix seconds. `url`: the monitor's ("": unknown). `labels`: the settings' external ones.
    """

    message: Message
    alert: AlertView
    now: float
    url: str
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class DaemonParts:
    """What senders need of the daemon.

    `url`: the monitor's. `labels`: the settings' external ones. `turns` returns how many rounds of
    reading and judging have ended.
    """

    outbox: Outbox
    url: str
    labels: Mapping[str, str]
    snapshot: Callable[[], Snapshot]
    turns: Callable[[], int]
    exported: Families


class Receiver:
    """One place that something is sent to; `name` is that of its counts."""

    name: str
    gets_alerts: ClassVar[bool] = True
    """Whether it gets alerts that fire, so that somebody learns of them."""
    gets_incidents: ClassVar[bool] = False
    """Whether each incident, at its opening and its end, is queued in the outbox for its name."""

    def send_test(self, trial: TrialAlert) -> str:
        """Send a test message; returns a remark, or "". Raises DeliveryError if not accepted."""
        raise NotImplementedError

    def senders(self, daemon: DaemonParts) -> Iterator[Sender]:
        """Threads that send to it, made once the logs are watched."""
        yield from ()


class MessageReceiver(Receiver):
    """A receiver of messages, sent by a courier from the outbox; it may get one twice.

    `policy` says which alerts it gets, and when. With `draw`, set later, it may add pictures.
    """

    policy: StreamPolicy = StreamPolicy.model_construct()
    draw: Draw | None = None

    def under(self, policy: StreamPolicy) -> Self:
        """This receiver, with a policy."""
        self.policy = policy
        return self

    def send(self, message: Message) -> Receipt:
        """Send a message; return once it is accepted. Raises DeliveryError if it is not."""
        raise NotImplementedError

    def send_test(self, trial: TrialAlert) -> str:
        """Send the message of the trial as any other."""
        self.send(trial.message)
        return ""


class ReceiverSettings(Section):
    """A table of the settings that says where receivers of one kind are."""

    table: ClassVar[str]
    """The table's name, such as `slack` for `[slack]`."""
    how: ClassVar[str]
    """What to set for a first receiver, after the word "set"."""

    def receivers(self) -> Iterator[Receiver]:
        """The receivers that are set, maybe none. Raises ConfigError for one of no use."""
        raise NotImplementedError
