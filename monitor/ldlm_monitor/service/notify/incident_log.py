"""Queues each incident twice, at its opening and at its end, for receivers that write a log."""

from collections.abc import Sequence
from typing import Final

from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.names import severity_rank
from ldlm_monitor.judge.core.packaged_rules import packaged_alerts
from ldlm_monitor.service.notify.message import MAX_LABEL, Notification, fit, page_of, story_of
from ldlm_monitor.service.notify.outbox import Outbox

NEWS_SECONDS: Final = 3600.0
"""Seconds for which an incident is news after it was opened, and after its end: as for alerts."""


class IncidentLog:
    """Puts incidents into the outbox for `receivers`, which keeps each state only once.

    An incident of a log's history that is no news is not queued, but for the end of one whose
    opening was. `external_url`: as in the settings.
    """

    def __init__(
        self, outbox: Outbox, receivers: Sequence[str], external_url: str | None = None
    ) -> None:
        self._outbox = outbox
        self._receivers = receivers
        self._url = external_url
        self._seen: set[tuple[str, bool]] = set()

    def update(self, views: Sequence[IncidentView], now: float) -> bool:
        """Queue what is new of the incidents; whether anything was. `now`: Unix seconds."""
        new = [view for view in views if (view.id, view.ended_at is None) not in self._seen]
        open_before = self._outbox.firing_keys() if new else frozenset()
        was_queued = False
        self._seen = {(view.id, view.ended_at is None) for view in views}
        for view in new:
            opening = incident_notification(view, self._url, ended=False)
            is_news = now - (view.ended_at or view.opened_at) <= NEWS_SECONDS
            if is_news or opening.key in open_before:
                was_queued |= self._outbox.add(opening, self._receivers, now)
                if view.ended_at is not None:
                    end = incident_notification(view, self._url, ended=True)
                    was_queued |= self._outbox.add(end, self._receivers, now)
        return was_queued


def incident_notification(
    view: IncidentView, external_url: str | None, *, ended: bool
) -> Notification:
    """An incident's opening, or its end, redacted and bounded; its severity is its worst alert's,
    or `error` without an alert."""
    story, position = story_of(view), view.root.position
    labels = {"run": fit(view.run, MAX_LABEL), "attempt": str(view.attempt)}
    severities = packaged_alerts()
    known = (severities[name] for name in view.alerts if name in severities)
    return Notification(
        key=f"incident {story.id}",
        alert="Incident",
        state=("resolved" if view.state == "recovered" else "ended") if ended else "firing",
        severity=max(known, key=severity_rank, default="error"),
        reason=view.ended_reason if ended else "",
        run=labels["run"],
        rank=story.rank,
        step=view.last_step,
        line=story.excerpt[0][1] if story.excerpt else None,
        path=None if position is None else fit(position.path),
        line_number=None if position is None else position.line,
        summary=story.title,
        description="; ".join(story.why),
        action=story.action,
        labels={**labels, "confidence": story.confidence, "events": str(view.events)},
        value=view.events,
        started_at=view.opened_at,
        at=view.ended_at if ended else view.opened_at,
        cause=story.cause or None,
        incident=story.id,
        link=page_of({"run": view.run}, external_url) if external_url else "",
    )
