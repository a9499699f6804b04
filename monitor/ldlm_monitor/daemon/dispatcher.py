"""Transitions go to people: a line on stdout, and the outbox of every receiver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.view import IncidentView
from ldlm_monitor.notify import Courier, Outbox, Silences, Withheld, from_transition
from ldlm_monitor.text.lines import transition_line
from ldlm_monitor.text.sanitize import plain

log = logging.getLogger(__name__)


class Dispatcher:
    """Hands transitions on, each once, unless a silence holds them back."""

    def __init__(
        self,
        outbox: Outbox,
        receivers: Collection[str],
        silences: Silences | None,
        couriers: Sequence[Courier] = (),
        *,
        prints: bool = True,
    ) -> None:
        """`couriers` are woken when something was queued. `prints`: each also to stdout."""
        self.withheld = Withheld(silences)
        self._couriers = couriers
        self._outbox = outbox
        self._receivers = list(receivers)
        self._prints = prints

    def dispatch(
        self, transitions: Iterable[Transition], now: float, *, notify: bool = True
    ) -> None:
        """Print each; with `notify`, what fires or ended goes to the receivers."""
        for transition in transitions:
            if transition.is_heartbeat:
                continue
            self._outbox.note(transition)
            silence = self.withheld.judge(transition, now, hold=notify)
            mark = f"  [silenced by {plain(silence.by)}]" if silence else ""
            if notify and silence is None and transition.state != "pending":
                self._send(transition, now)
            self._print(transition_line(transition) + mark)
        self._wake()

    def send_unsilenced(
        self, passed: list[Transition], active: Callable[[], Collection[str]], now: float
    ) -> None:
        """Send what a silence held back once it is over, if the alert is still `active`."""
        if self.withheld.waits:
            for transition in self.withheld.release(passed, active(), now):
                log.info("%s: its silence is over", plain(transition.key))
                self._send(transition, now)
                self._wake()
        self.withheld.save()

    def dispatch_history(
        self, passed: list[tuple[Transition, bool]], now: float, *, recent: bool
    ) -> None:
        """Send news, and of history what still holds, unless it was sent before a restart."""
        sent = set(self._outbox.firing_keys())
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
                wanted = recent or key in self.withheld
                self.dispatch([past], now, notify=wanted and key not in sent)
            elif key in sent:
                self.dispatch([past], now)
        if over:
            log.info("alerts in what the files already held that are over: %d (see replay)", over)

    def update_incidents(self, incidents: Sequence[IncidentView], now: float) -> None:
        """Bring messages that were sent up to date with their incident."""
        if self._receivers and self._outbox.update_incidents(incidents, now):
            self._wake()

    def _wake(self) -> None:
        for courier in self._couriers:
            courier.wake()

    def _print(self, line: str) -> None:
        """Stdout may be closed, or its disk full: the receivers get it all the same."""
        if self._prints:
            try:
                print(line, flush=True)
            except OSError as error:
                self._prints = False
                log.error("stdout: cannot be written (%s); alerts go on without it", error.strerror)

    def _send(self, transition: Transition, now: float) -> None:
        self._outbox.add(from_transition(transition), self._receivers, now)
