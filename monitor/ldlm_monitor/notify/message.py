"""The message that a receiver gets about a group of alerts, and the story of its incident."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

from pydantic import TypeAdapter

from ldlm_monitor.config.policy import severity_rank
from ldlm_monitor.model.view import IncidentView
from ldlm_monitor.notify.notification import MAX_ID, Notification, fit

Step: TypeAlias = Literal["first", "follow-up", "repeat", "update", "picture"]
"""`first` begins a message, `follow-up` adds what is new, `repeat` says that it still fires;
`update` edits the first message, `picture` adds one to it."""

FLAPPING: Final = 2
"""An alert that fires oftener than this within an hour is flapping: once is a start, twice may be a
restart."""
_EXCERPT = 6
_WHY = 4
"""Lines of the log, and reasons, that fit a message beside its alerts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """An incident in text that may leave the machine. Times are Unix seconds.

    `excerpt` are (file:line, text) of the lines that show the first cause. `cause` is empty
    where it is unknown.
    """

    id: str
    title: str
    cause: str
    confidence: str
    why: tuple[str, ...]
    excerpt: tuple[tuple[str, str], ...]
    action: str
    events: int
    opened_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One group of alerts, as one receiver gets it.

    `news` are the transitions that were not sent yet, oldest first; `alerts` is the latest
    transition of every alert of the group, those included. `place` is what the receiver returned
    for the first message. `identity` stays the same when the same news are sent again; `unsure`:
    they may have arrived already. `worst_sent` is the worst severity sent before, `flaps` how
    often one alert of the group fired within the last hour.
    """

    step: Step
    group: int
    identity: str
    news: tuple[Notification, ...]
    alerts: tuple[Notification, ...]
    opened_at: float
    story: Story | None = None
    place: str | None = None
    unsure: bool = False
    worst_sent: str = ""
    flaps: int = 0

    @property
    def lead(self) -> Notification:
        """The alert that matters most: the worst that fires, else the worst; then the first."""
        return min(self.alerts or self.news, key=weight)

    @property
    def firing(self) -> tuple[Notification, ...]:
        """The alerts that still fire."""
        return tuple(each for each in self.alerts if each.state == "firing")

    @property
    def is_flapping(self) -> bool:
        """Whether an alert of it comes and goes."""
        return self.flaps > FLAPPING

    @property
    def is_worse(self) -> bool:
        """Whether its news fire with a severity worse than any sent before."""
        news = [severity_rank(each.severity) for each in self.news if each.state == "firing"]
        return bool(news) and min(news) < severity_rank(self.worst_sent)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receiver's answer: where the message is, and whether it was there already."""

    place: str | None = None
    found: bool = False


def weight(each: Notification) -> tuple[bool, int, float]:
    """Sorts what fires, then what is worst, then what began first to the front."""
    return each.state != "firing", severity_rank(each.severity), each.started_at


def story_of(view: IncidentView) -> Story:
    """An incident's texts cleaned, redacted and then bounded."""
    root = view.root
    known = view.confidence != "none"
    return Story(
        id=fit(view.id, MAX_ID),
        title=fit(view.title, 500),
        cause=fit(root.message, 500) if known else "",
        confidence=view.confidence,
        why=tuple(fit(text, 300) for text in root.why[:_WHY]),
        excerpt=tuple(
            (fit(f"{each.position.path}:{each.position.line}", 300), fit(each.text, 500))
            for each in view.excerpt[:_EXCERPT]
        ),
        action=fit(view.action, 2000),
        events=view.events,
        opened_at=view.opened_at,
        ended_at=view.ended_at,
    )


@cache
def _adapter() -> TypeAdapter[Story]:
    return TypeAdapter(Story)


def story_to_json(story: Story) -> str:
    """One JSON object."""
    return _adapter().dump_json(story).decode()


def story_from_json(text: str) -> Story:
    """What `story_to_json` wrote. Raises `pydantic.ValidationError`."""
    return _adapter().validate_json(text)
