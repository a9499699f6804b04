"""What is still to be sent, and what was: committed before anything goes out.

A crash loses nothing: what was added is found again. Sent twice is only what a
kill caught between the receiver's answer and our commit; it is counted as
`repeated`.
"""

import math
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from ldlm_monitor.model.alert import State, Transition
from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.model.view import IncidentView
from ldlm_monitor.notify import deliveries, episodes, group_messages, groups, selection, turns
from ldlm_monitor.notify.deliveries import Pending
from ldlm_monitor.notify.message import Message, Receipt, story_of
from ldlm_monitor.notify.notification import Notification, fit
from ldlm_monitor.notify.routing import Placement, Routing
from ldlm_monitor.notify.tables import SCHEMA, Outcome
from ldlm_monitor.state.database import Database

KEPT_SECONDS = 30 * 86400.0
"""So long a notification that was dealt with is remembered, and not sent again."""
FORGET_SECONDS = 60.0


class Outbox:
    """The queue of every receiver, in one file; safe to use from several threads.

    `routing` decides who is told of what; without it everybody is, of each alert by itself.
    `grouped` are the receivers that are told in groups. A file that fails never stops the
    monitor: see `take_notices`. Times are Unix seconds.
    """

    def __init__(
        self, path: Path, routing: Routing | None = None, grouped: Collection[str] = ()
    ) -> None:
        self._database = Database(path, SCHEMA)
        self._routing = routing
        self._grouped = frozenset(grouped)
        self._stories: dict[str, str] = {}
        self._looked_at: dict[str, float] = {}
        self._forgot_at = -math.inf
        self._active: set[str] = set()
        self._adopted: set[str] = set()
        self._database.run(deliveries.recount_in_flight)

    def take_notices(self) -> list[str]:
        """Lines for the user: the file was damaged, or cannot be written. Each comes once."""
        return self._database.take_notices()

    def close(self) -> None:
        """Release the file. Stop the couriers first."""
        self._database.close()

    def register(self, receiver: str) -> None:
        """Count for `receiver` from 0, before anything is added for it."""
        self._database.run(lambda db: deliveries.register(db, receiver))

    def note(self, transition: Transition) -> None:
        """An alert fires or ended, whether anybody is told of it or not."""
        if self._routing is not None:
            self._routing.note(transition)
            self._note(fit(transition.key), transition.state)

    def _note(self, key: str, state: State) -> None:
        if state == "firing":
            self._active.add(key)
        elif state != "pending":
            self._active.discard(key)

    def add(self, notification: Notification, receivers: Sequence[str], now: float) -> bool:
        """Queue it for those of `receivers` that it is routed to; committed when this returns.

        False if every one of them had it already, by (key, state, started_at); with a routing,
        if it was added before at all.
        """

        def work(db: sqlite3.Connection) -> bool:
            if not 0 <= now - self._forgot_at < FORGET_SECONDS:
                self._forgot_at = now
                deliveries.forget(db, now - KEPT_SECONDS)
            number, is_new = deliveries.number_of(db, notification, now)
            if self._routing is None:
                added = [deliveries.queue(db, number, receiver, now) for receiver in receivers]
                return any(added)
            if not is_new:
                return False
            self._note(notification.key, notification.state)
            wanted = self._routed(db, self._routing, notification, now)
            return self._place(db, number, notification, wanted, receivers=receivers, now=now)

        return bool(receivers) and self._database.run(work)

    def _routed(
        self, db: sqlite3.Connection, routing: Routing, told: Notification, now: float
    ) -> list[Placement]:
        episode = episodes.episode_of(db, told, now)
        return routing.placements(told.alert, told.labels, episode)

    def _place(
        self,
        db: sqlite3.Connection,
        number: int,
        told: Notification,
        wanted: Iterable[Placement],
        *,
        receivers: Sequence[str],
        now: float,
    ) -> bool:
        """Queue it for each receiver once, by the first route that leads there."""
        added = False
        for placement in wanted:
            if placement.receiver not in receivers:
                continue
            if not deliveries.queue(db, number, placement.receiver, now):
                continue
            added = True
            if placement.receiver in self._grouped:
                groups.join(db, number, told, placement, now)
            else:
                groups.stand_alone(db, number, placement)
        return added

    def tell_incidents(self, views: Sequence[IncidentView], now: float) -> bool:
        """Keep what is known of incidents; whether any message is to be brought up to date."""
        news = []
        for view in views:
            told = f"{view.title} {view.confidence} {view.state} {view.events} {view.action}"
            if self._stories.get(view.id) != told:
                self._stories[view.id] = told
                news.append(story_of(view))
        self._stories = {view.id: self._stories[view.id] for view in views}

        def work(db: sqlite3.Connection) -> None:
            for story in news:
                group_messages.keep_story(db, story, now)

        if news and self._grouped:
            self._database.run(work)
        return bool(news)

    def due(self, receiver: str, now: float, *, last: bool = False) -> Pending | None:
        """What is to be told to `receiver` now; ask again after settling it.

        A receiver that did not take something is left alone until its time comes. To a receiver
        of single notifications nothing overtakes one that waits. `last`: the monitor ends, so
        groups wait for nothing any more.
        """
        return self._database.run(lambda db: self._take_due(db, receiver, now, last=last))

    def _take_due(
        self, db: sqlite3.Connection, receiver: str, now: float, *, last: bool
    ) -> Pending | None:
        attempts, retry_at = deliveries.patience_with(db, receiver)
        # Further off than any pause: the clock was set back meanwhile.
        if now < retry_at <= now + deliveries.LONGEST_PAUSE:
            return None
        if self._routing is not None and receiver in self._grouped:
            if receiver not in self._adopted:
                # What an earlier version queued for it is in no group.
                alone = selection.next_single(db, None, receiver, attempts, now)
                if alone is not None:
                    return alone
                self._adopted.add(receiver)
            return selection.next_message(
                db,
                self._routing,
                receiver,
                attempts=attempts,
                now=now,
                last=last,
                active=self._active,
            )
        if self._routing is not None:
            looked_at = self._looked_at.get(receiver, -math.inf)
            if not looked_at <= now < looked_at + groups.HELD_SECONDS:
                self._looked_at[receiver] = now
                selection.release(db, self._routing, receiver, now)
        return selection.next_single(db, self._routing, receiver, attempts, now)

    def next_attempt(self, receiver: str) -> float | None:
        """When something may be due for `receiver`; None where nothing waits."""

        def work(db: sqlite3.Connection) -> float | None:
            moments = [turns.next_moment(db, receiver)]
            outcomes = {
                str(row[0])
                for row in db.execute(
                    "SELECT DISTINCT outcome FROM delivery LEFT JOIN member"
                    " USING (notification, receiver) WHERE delivery.receiver = ?"
                    " AND outcome IN ('pending', 'held') AND alert_group IS NULL",
                    (receiver,),
                )
            }
            if "pending" in outcomes:
                moments.append(0.0)
            elif "held" in outcomes:
                moments.append(self._looked_at.get(receiver, 0.0) + groups.HELD_SECONDS)
            known = [moment for moment in moments if moment is not None]
            return max(min(known), deliveries.patience_with(db, receiver)[1]) if known else None

        return self._database.run(work)

    def accepted(self, pending: Pending, now: float, receipt: Receipt | None = None) -> None:
        """The receiver has it."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM receiver WHERE name = ?", (pending.receiver,))
            if pending.message is None:
                deliveries.settle(db, (pending.id, pending.receiver), "sent", now=now)
            else:
                self._arrived(db, pending, pending.message, receipt or Receipt(), now)

        self._database.run(work)

    def _arrived(
        self,
        db: sqlite3.Connection,
        pending: Pending,
        message: Message,
        receipt: Receipt,
        now: float,
    ) -> None:
        for number in pending.ids:
            if message.unsure and not receipt.found:
                deliveries.tally(db, pending.receiver, "repeated")
            deliveries.settle(db, (number, pending.receiver), "sent", now=now)
        if message.step == "update" and pending.row is not None:
            group_messages.updated(db, pending.row, now)
        elif pending.row is not None and self._routing is not None:
            node = self._routing.node(pending.row.route)
            group_messages.settle(db, message, node, receipt.place, now)

    def failed(self, pending: Pending, error: DeliveryError, now: float) -> None:
        """The receiver did not take it: try again later, or never if the error is permanent."""

        def work(db: sqlite3.Connection) -> None:
            if pending.message is not None and pending.message.step == "picture":
                group_messages.stumbled(db, pending.message.group, for_good=error.permanent)
            if error.permanent:
                for number in (pending.id,) if pending.message is None else pending.ids:
                    delivery = (number, pending.receiver)
                    deliveries.settle(db, delivery, "failed", now=now, error=str(error))
                if pending.message is not None:
                    group_messages.given_up(db, pending.message)
            else:
                deliveries.postpone(
                    db, pending, now + deliveries.pause(pending, error.retry_after), error
                )

        self._database.run(work)

    def count(self, receiver: str, outcome: Outcome) -> None:
        """Count for a receiver that is told of what stands, so that nothing waits for it."""
        self._database.run(lambda db: deliveries.tally(db, receiver, outcome))

    def standing(self) -> frozenset[str]:
        """Keys of the alerts that were told to be firing, and not to have ended."""
        return self._database.run(deliveries.standing)

    def counts(self) -> dict[tuple[str, str], int]:
        """By (receiver, outcome).

        `sent`, `retried`, `failed` and `repeated` only ever grow, `pending` is how
        many wait now.
        """
        return self._database.run(deliveries.counts)
