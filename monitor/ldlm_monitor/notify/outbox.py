"""What is still to be sent, and what was: committed before anything goes out.

A crash loses nothing: what was added is found again. Only what a kill caught between the
receiver's answer and our commit is sent twice; it is counted as `repeated`.
"""

import math
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ldlm_monitor.config.policy import Policy, StreamPolicy
from ldlm_monitor.model.alert import State, Transition
from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.model.view import IncidentView
from ldlm_monitor.notify import deliveries, group_messages, groups
from ldlm_monitor.notify.deliveries import Outcome, Pending
from ldlm_monitor.notify.message import Receipt, story_of
from ldlm_monitor.notify.notification import Notification, fit, readable
from ldlm_monitor.notify.schema import SCHEMA
from ldlm_monitor.state.database import Database

KEPT_SECONDS: Final = 30 * 86400.0
"""A notification that is settled is remembered this long, and not sent again: longer than any run
is left alone and then read anew."""
FORGET_SECONDS: Final = 60.0
"""Between two deletions of what is older than that."""
_EVERYTHING: Final = StreamPolicy()


class Outbox:
    """The queue of every receiver, in one file; safe to use from several threads.

    `grouped` are the policies of the receivers that get groups, by their names, and `single` of
    those that get each notification by itself; a receiver that is in neither gets all, each by
    itself. A file that fails never stops the monitor: it is logged. Times are Unix seconds.
    """

    def __init__(
        self,
        path: Path,
        grouped: Mapping[str, Policy] = MappingProxyType({}),
        single: Mapping[str, StreamPolicy] = MappingProxyType({}),
    ) -> None:
        self._grouped = dict(grouped)
        self._policies = {**single, **grouped}
        self._stories: dict[str, str] = {}
        self._forgot_at = -math.inf
        self._active: set[str] = set()
        self._database = Database(path, SCHEMA)
        self._database.run(self._recover)

    def close(self) -> None:
        """Release the file. Stop the couriers first."""
        self._database.close()

    def register(self, receiver: str) -> None:
        """Count for `receiver` from 0, before anything is added for it."""
        self._database.run(lambda db: deliveries.register(db, receiver))

    def note(self, transition: Transition) -> None:
        """Note that an alert fires or ended, whether or not it is sent to anybody."""
        self._note(fit(transition.key), transition.state)

    def _note(self, key: str, state: State) -> None:
        if state == "firing":
            self._active.add(key)
        elif state != "pending":
            self._active.discard(key)

    def add(self, notification: Notification, receivers: Sequence[str], now: float) -> bool:
        """Queue it for those of `receivers` whose policy accepts it; committed on return.

        False if none of them is to get it, or all of them had it, by (key, state, started_at).
        """

        def work(db: sqlite3.Connection) -> bool:
            if not 0 <= now - self._forgot_at < FORGET_SECONDS:
                self._forgot_at = now
                deliveries.forget(db, now - KEPT_SECONDS)
            number = deliveries.store(db, notification, now)
            queued = [
                receiver
                for receiver in receivers
                if self._policy(receiver).accepts(notification.alert, notification.labels)
                and deliveries.queue(db, number, receiver, now)
            ]
            if not self._grouped.keys().isdisjoint(queued):
                # Once for all receivers: the end of an alert takes it out of its episode.
                episode = groups.episode_of(db, notification, now)
                for receiver in queued:
                    self._join(db, (number, receiver), notification, episode, now)
            return bool(queued)

        self._note(notification.key, notification.state)
        return bool(receivers) and self._database.run(work)

    def _policy(self, receiver: str) -> StreamPolicy:
        return self._policies.get(receiver) or _EVERYTHING

    def _recover(self, db: sqlite3.Connection) -> None:
        """Group what an earlier version queued without a group, then see `recover_in_flight`."""
        rows = db.execute(
            "SELECT notification, receiver, body, added_at FROM delivery"
            " JOIN notification ON id = notification LEFT JOIN group_member"
            " USING (notification, receiver)"
            " WHERE outcome IN ('pending', 'held') AND group_id IS NULL ORDER BY notification"
        ).fetchall()
        for number, receiver, body, added_at in rows:
            notification = readable(body)
            if receiver in self._grouped and notification is not None:
                episode = groups.episode_of(db, notification, added_at)
                self._join(db, (number, receiver), notification, episode, added_at)
        deliveries.recover_in_flight(db)

    def _join(
        self,
        db: sqlite3.Connection,
        delivery: tuple[int, str],
        notification: Notification,
        episode: str,
        now: float,
    ) -> None:
        if policy := self._grouped.get(delivery[1]):
            groups.join(db, delivery, notification, policy, episode=episode, now=now)

    def update_incidents(self, views: Sequence[IncidentView], now: float) -> bool:
        """Store the incidents that changed; whether any did, so that messages may be due."""
        changed = []
        for view in views:
            summary = f"{view.title} {view.confidence} {view.state} {view.events} {view.action}"
            if self._stories.get(view.id) != summary:
                self._stories[view.id] = summary
                changed.append(story_of(view))
        self._stories = {view.id: self._stories[view.id] for view in views}

        def work(db: sqlite3.Connection) -> None:
            for story in changed:
                group_messages.store_story(db, story, now)

        if changed and self._grouped:
            self._database.run(work)
        return bool(changed)

    def due(self, receiver: str, now: float, *, last: bool = False) -> Pending | None:
        """What to send to `receiver` now; call it again after settling that.

        A receiver that refused something is left alone until its next attempt. To a receiver
        of single notifications nothing overtakes one that waits. `last`: the monitor ends, so
        groups wait no longer.
        """

        def work(db: sqlite3.Connection) -> Pending | None:
            attempts, retry_at = deliveries.patience_with(db, receiver)
            # Further off than any pause: the clock was set back meanwhile.
            if now < retry_at <= now + deliveries.LONGEST_PAUSE:
                return None
            deliveries.apply_quiet_hours(db, self._policy(receiver), receiver, now)
            policy = self._grouped.get(receiver)
            if policy is None:
                return deliveries.next_single(db, receiver, attempts, now)
            return group_messages.next_message(
                db,
                policy,
                receiver,
                attempts=attempts,
                now=now,
                last=last,
                active=self._active,
            )

        return self._database.run(work)

    def next_attempt(self, receiver: str) -> float | None:
        """When something may be due for `receiver`; None where nothing waits.

        The end of quiet hours is not in it: a courier asks every minute anyway.
        """

        def work(db: sqlite3.Connection) -> float | None:
            moment = group_messages.next_moment(db, receiver)
            if (
                receiver not in self._grouped
                and db.execute(
                    "SELECT 1 FROM delivery WHERE receiver = ? AND outcome = 'pending' LIMIT 1",
                    (receiver,),
                ).fetchone()
            ):
                moment = 0.0
            if moment is None:
                return None
            return max(moment, deliveries.patience_with(db, receiver)[1])

        return self._database.run(work)

    def accepted(self, pending: Pending, now: float, receipt: Receipt | None = None) -> None:
        """The receiver has it."""
        place, found = (receipt.place, receipt.found) if receipt else (None, False)
        message = pending.message

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM receiver WHERE name = ?", (pending.receiver,))
            for number in (pending.id,) if message is None else pending.ids:
                if message is not None and message.unsure and not found:
                    deliveries.tally(db, pending.receiver, "repeated")
                deliveries.settle(db, (number, pending.receiver), "sent", now=now)
            if message is not None and pending.group is not None:
                policy = self._grouped[pending.receiver]
                group_messages.delivered(db, pending.group, message, policy, place=place, now=now)

        self._database.run(work)

    def failed(self, pending: Pending, error: DeliveryError, now: float) -> None:
        """The receiver did not accept it: try again later, or never if the error is permanent."""
        message = pending.message

        def work(db: sqlite3.Connection) -> None:
            if error.permanent:
                for number in (pending.id,) if message is None else pending.ids:
                    delivery = (number, pending.receiver)
                    deliveries.settle(db, delivery, "failed", now=now, error=str(error))
            else:
                next_at = now + deliveries.pause(pending, error.retry_after)
                deliveries.postpone(db, pending, next_at, error)
            if message is not None:
                group_messages.delivery_failed(db, message, permanent=error.permanent)

        self._database.run(work)

    def count(self, receiver: str, outcome: Outcome) -> None:
        """Count for a receiver that gets states and not transitions, so that nothing waits."""
        self._database.run(lambda db: deliveries.tally(db, receiver, outcome))

    def firing_keys(self) -> frozenset[str]:
        """Keys of the alerts whose last notification says that they fire."""
        return self._database.run(deliveries.firing_keys)

    def counts(self) -> dict[tuple[str, str], int]:
        """By (receiver, outcome).

        `sent`, `retried`, `failed` and `repeated` only ever grow, `pending` is how
        many wait now.
        """
        return self._database.run(deliveries.counts)
