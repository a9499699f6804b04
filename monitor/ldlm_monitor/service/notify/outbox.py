"""The queue of notifications to send and the record of those sent, committed before sending.

A crash loses no notification. A message may be sent twice if the process was killed between its
acceptance and our commit, or if its answer was lost; its news are then counted as `repeated`.
"""

import math
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.base.histogram import Histogram
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.service.notify import deliveries, group_messages, groups
from ldlm_monitor.service.notify.deliveries import Holds, Outcome
from ldlm_monitor.service.notify.group_messages import Pending
from ldlm_monitor.service.notify.message import Notification, Receipt, story_of
from ldlm_monitor.service.notify.policy import Policy, StreamPolicy
from ldlm_monitor.service.notify.silences import Silences
from ldlm_monitor.service.state.database import Database

_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0)  # bounds of the buckets of deliveries. A choice
KEPT_SECONDS: Final = 30 * 86400.0
"""Seconds for which a settled notification is stored: until then, reading the logs again does not
send it again. A choice: a longer time would need more disk."""
FORGET_SECONDS: Final = 60.0
"""Seconds between two deletions of old rows: a choice; each delays an alert, rarer ones more."""
_LAST_FIRING: Final = (
    "SELECT key FROM notification AS one WHERE state = 'firing' "
    "AND id = (SELECT max(id) FROM notification WHERE key = one.key)"
)
_EVERYTHING: Final = StreamPolicy()  # for a receiver without a policy: every transition by itself


class Outbox:
    """The queue of every receiver, in one file; safe to use from several threads.

    `policies` are by receiver name; a receiver without one gets every transition by itself.
    Alerts that `silences` (None: none) hold back wait until the silence is over. A file that fails
    is logged and never stops the monitor. Times are Unix seconds.
    """

    def __init__(
        self,
        path: Path,
        policies: Mapping[str, StreamPolicy] = MappingProxyType({}),
        silences: Silences | None = None,
    ) -> None:
        self._policies = policies
        self._silences = silences
        self._incidents: dict[str, IncidentView] = {}
        self._forgot_at = -math.inf
        self._active: set[str] = set()
        self._failures: dict[str, tuple[int, float]] = {}
        """By receiver: attempts that failed since the last success, and when the next is due."""
        self.durations: dict[str, Histogram] = {}
        self._database = Database(path, deliveries.SCHEMA + groups.SCHEMA)
        # What was on its way when the last process ended may have arrived: it is sent again
        # unchanged, so that the receiver can recognise it.
        recover = f"UPDATE delivery SET in_flight = {deliveries.UNSURE} WHERE in_flight = 1"
        self._database.load(lambda db: db.execute(recover))

    def close(self) -> None:
        """Release the file. Stop the couriers first."""
        self._database.close()

    def register(self, receiver: str) -> None:
        """Create the counts and `durations` (of attempts) of `receiver`, at 0."""
        self.durations.setdefault(receiver, Histogram(_SECONDS))
        self._database.run(lambda db: deliveries.register(db, receiver))

    def note(self, notification: Notification) -> None:
        """Remember that an alert fires or has ended, whether or not any receiver gets it."""
        if notification.state == "firing":
            self._active.add(notification.key)
        elif notification.state != "pending":
            self._active.discard(notification.key)

    def add(self, notification: Notification, receivers: Sequence[str], now: float) -> bool:
        """`add_all` for one notification."""
        return self.add_all((notification,), receivers, now)

    def add_all(
        self, notifications: Sequence[Notification], receivers: Sequence[str], now: float
    ) -> bool:
        """Queue notifications for those of `receivers` whose policy accepts them; then commit.

        False if none was queued: each was refused by each policy, or queued before (the same key,
        state and start).
        """

        def work(db: sqlite3.Connection) -> bool:
            if not 0 <= now - self._forgot_at < FORGET_SECONDS:
                self._forgot_at = now
                groups.forget(db, now - KEPT_SECONDS)
            queued = [self._queue(db, each, receivers, now) for each in notifications]
            return any(queued)

        for notification in notifications:
            self.note(notification)
        return bool(receivers and notifications) and self._database.run(work)

    def _queue(
        self,
        db: sqlite3.Connection,
        notification: Notification,
        receivers: Sequence[str],
        now: float,
    ) -> bool:
        number, was_queued = deliveries.store(db, notification, now), False
        for receiver in receivers:
            policy, name = self._policy(receiver), notification.alert
            is_accepted = policy.accepts(name, notification.labels)
            if isinstance(policy, Policy):
                is_old = notification.is_over_with_run or not (
                    notification.state == "firing" or groups.fired_in(db, notification, receiver)
                )
                is_accepted = is_accepted and not policy.leaves_out(
                    name, notification.value, is_old=is_old
                )
            if is_accepted and deliveries.queue(db, number, receiver):
                groups.join(db, (number, receiver), notification, policy, now)
                was_queued = True
        return was_queued

    def _policy(self, receiver: str) -> StreamPolicy:
        return self._policies.get(receiver, _EVERYTHING)

    def _holds(self, receiver: str, now: float) -> Holds | None:
        """A function that returns whether a notification is held back; None if none can be."""
        policy, silences = self._policy(receiver), self._silences
        quiet = policy.is_quiet(now)
        if not quiet and not (silences and silences.any):
            return None

        def holds(each: Notification) -> bool:
            if quiet and policy.waits_in_quiet_hours(each.severity):
                return True
            # A silence holds no ends: otherwise an alert sent before would seem to fire for ever.
            return bool(each.state == "firing" and silences and silences.silenced(each, now))

        return holds

    def update_incidents(
        self,
        views: Sequence[IncidentView],
        now: float,
        runs: Mapping[str, RunView] = MappingProxyType({}),
    ) -> bool:
        """Store the incidents that changed; True if any did, since messages may then be due.

        `runs`: those of the incidents, by name.
        """
        news = [view for view in views if self._incidents.get(view.id) != view]
        stories = [story_of(view, runs.get(view.run)) for view in news]
        self._incidents.update({view.id: view for view in news})

        def work(db: sqlite3.Connection) -> None:
            for story in stories:
                group_messages.store_story(db, story, now)

        if stories:
            self._database.run(work)
        return bool(stories)

    def forget_incidents(self, kept: Collection[str]) -> None:
        """Drop the incidents but those whose ids are `kept`."""
        self._incidents = {name: self._incidents[name] for name in self._incidents if name in kept}

    def due(self, receiver: str, now: float, *, last: bool = False) -> Pending | None:
        """The message to send to `receiver` now; None if there is none.

        Call `accepted` or `failed` before the next call. After a failure no message is due until
        the pause is over. `last`: the monitor ends, so news are due at once.
        """

        def work(db: sqlite3.Connection) -> Pending | None:
            attempts, retry_at = self._failures.get(receiver, (0, 0.0))
            # A time further ahead than any pause was set before the clock was set back.
            if now < retry_at <= now + deliveries.LONGEST_PAUSE:
                return None
            holds = self._holds(receiver, now)
            deliveries.apply_holds(db, receiver, holds, self._active)

            def repeats(each: Notification) -> bool:
                is_firing = each.state == "firing" and each.key in self._active
                return is_firing and not (holds and holds(each))

            return group_messages.next_message(db, receiver, attempts, repeats, now=now, last=last)

        return self._database.run(work)

    def accepted(self, pending: Pending, now: float, receipt: Receipt) -> None:
        """Record that the receiver has accepted the message."""
        receiver = pending.receiver

        def work(db: sqlite3.Connection) -> None:
            if pending.message.unsure and not receipt.found:
                deliveries.tally(db, receiver, "repeated", len(pending.ids))
            deliveries.settle(db, pending.ids, receiver, "sent")
            group_messages.delivered(db, pending, self._policy(receiver), receipt.place, now)

        self._failures.pop(receiver, None)
        self._database.run(work)

    def failed(self, pending: Pending, error: DeliveryError, now: float) -> None:
        """Record a failed attempt. The message is retried unless the error is permanent."""
        receiver, ids = pending.receiver, pending.ids

        def work(db: sqlite3.Connection) -> None:
            if error.permanent:
                deliveries.settle(db, ids, receiver, "failed")
                group_messages.refused(db, pending, now)
            else:
                unsure = error.unsure or pending.message.unsure
                deliveries.mark_in_flight(db, ids, receiver, deliveries.UNSURE if unsure else 0)
                deliveries.tally(db, receiver, "retried")

        if not error.permanent:
            pause = deliveries.pause(pending.attempts, error.retry_after)
            self._failures[receiver] = pending.attempts + 1, now + pause
        self._database.run(work)

    def count(self, receiver: str, outcome: Outcome) -> None:
        """Add 1 to an outcome's count, for a receiver of states, which are never queued."""
        self._database.run(lambda db: deliveries.tally(db, receiver, outcome))

    def firing_keys(self) -> frozenset[str]:
        """Keys of the alerts whose last notification says that they fire."""
        return frozenset(key for (key,) in self._database.rows(_LAST_FIRING))

    def counts(self) -> dict[tuple[str, str], int]:
        """Totals by (receiver, outcome); `pending`: notifications that wait and are not held."""
        known = (
            "SELECT receiver, outcome, count FROM tally"
            " UNION ALL SELECT DISTINCT receiver, 'pending', (SELECT count(*) FROM delivery"
            " WHERE receiver = tally.receiver AND outcome = 'pending') FROM tally"
        )
        rows = self._database.rows(known)
        return {(receiver, outcome): count for receiver, outcome, count in rows}
