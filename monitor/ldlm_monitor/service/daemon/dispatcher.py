"""Puts transitions into the outbox, and prints them."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.names import RUN_FINISHED
from ldlm_monitor.base.snapshot import RunView, Snapshot
from ldlm_monitor.base.text.lines import transition_line
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.service.notify.courier import Courier
from ldlm_monitor.service.notify.incident_log import IncidentLog
from ldlm_monitor.service.notify.message import fit, from_transition
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.silences import Silences

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Dispatcher:
    """Prints transitions and puts them into the outbox, each once.

    `receivers`: their names. `couriers`: senders to wake. `prints`: whether to print to stdout.
    `external_url`: as in the settings. `look` returns a run and its incidents, as the transitions
    to dispatch have left them: a message is about one state of things.
    """

    outbox: Outbox
    receivers: Sequence[str]
    silences: Silences | None = None
    couriers: Sequence[Courier] = ()
    prints: bool = field(default=True, kw_only=True)
    external_url: str | None = field(default=None, kw_only=True)
    incident_log: IncidentLog | None = field(default=None, kw_only=True)
    look: Callable[[str], tuple[RunView | None, Sequence[IncidentView]]] = field(
        default=lambda name: (None, ()), kw_only=True
    )

    def dispatch(
        self, transitions: Iterable[Transition], now: float, *, notify: bool = True
    ) -> None:
        """Print the transitions; with `notify`, queue those that are not pending for receivers."""
        shown = [each for each in transitions if not each.is_heartbeat]
        notifications = [from_transition(each, self.external_url) for each in shown]
        for notification in notifications:
            self.outbox.note(notification)
        queued = [each for each in notifications if notify and each.state != "pending"]
        runs = {each.labels.get("run", "") for each in shown if each.incident}
        self._note_incidents(runs if queued else (), now)
        self.outbox.add_all(queued, self.receivers, now)
        for transition, notification in zip(shown, notifications, strict=True):
            silence = self.silences and self.silences.silenced(notification, now)
            mark = f"  [silenced by {plain(silence.by)}]" if silence else ""
            self.print_line(transition_line(transition) + mark)
        self._wake()

    def _note_incidents(self, runs: Collection[str], now: float) -> None:
        for name in runs if self.receivers else ():
            run, incidents = self.look(name)
            if run is not None:
                self.outbox.update_incidents(incidents, now, {name: run})

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
        found: list[tuple[Transition, bool]] = []
        over = 0
        for transition, news in passed:
            key, firing = fit(transition.key), transition.state == "firing"
            if transition.state == "pending":
                continue
            if not news:
                before[key] = transition
                over += not firing
                continue
            past = before.pop(key, None)
            if past is not None and past.state != "firing" and key in sent:
                found.append((past, True))
                sent.discard(key)
            if firing != (key in sent):
                found.append((transition, True))
                sent ^= {key}
            elif firing:
                found.append((transition, False))
        for key, past in before.items():
            if past.state == "firing":
                is_news = recent and past.alert != RUN_FINISHED
                found.append((past, is_news and key not in sent))
            elif key in sent:
                found.append((past, True))
        for notify, group in groupby(found, itemgetter(1)):
            self.dispatch([each for each, _ in group], now, notify=notify)
        if over:
            log.info("alerts in the files' past that have ended: %d (see replay)", over)

    def update_incidents(self, snapshot: Snapshot, now: float) -> None:
        """Update the sent messages of incidents that have changed since, and log new ones."""
        incidents = snapshot.incidents
        if self.incident_log is not None:
            self.incident_log.update(incidents, now)
        runs = {run.name: run for run in snapshot.runs}
        if self.receivers and self.outbox.update_incidents(incidents, now, runs):
            self._wake()
        self.outbox.forget_incidents({each.id for each in incidents})

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
