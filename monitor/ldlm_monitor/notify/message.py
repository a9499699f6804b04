"""What a receiver of groups is told at one go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

from pydantic import TypeAdapter

from ldlm_monitor.model.view import IncidentView
from ldlm_monitor.notify.notification import MAX_ID, Notification, fit

Step: TypeAlias = Literal["first", "follow-up", "repeat", "update", "picture"]
"""`first` begins a message, `follow-up` tells what is new since, `repeat` that it fires still;
`update` asks that what stands there be brought up to date, `picture` that one be added."""

SEVERITIES: Final = ("critical", "error", "warning", "info")
FLAPPING: Final = 2
"""Oftener than this an alert may fire within an hour before it counts as flapping."""
_EXCERPT = 6
_WHY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """An incident in words that may leave the machine. Times are Unix seconds.

    `excerpt` are (file:line, text) of the lines that tell of the first cause. `cause` is empty
    where it is not known.
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
    """One group of alerts, as one receiver is to hear of it.

    `news` are transitions that it was not told, oldest first; `standing` is the last word on
    every alert of the group, those included. `place` is what the receiver gave back for the
    first message. `identity` is the same where the same news are sent again; `unsure`: they may
    have arrived already. `worst_told` is the worst severity that was told before, `flaps` how
    often one alert of it fired within the last hour.
    """

    step: Step
    group: int
    identity: str
    news: tuple[Notification, ...]
    standing: tuple[Notification, ...]
    opened_at: float
    story: Story | None = None
    place: str | None = None
    unsure: bool = False
    worst_told: str = ""
    flaps: int = 0

    @property
    def lead(self) -> Notification:
        """The alert that says most: the worst that fires, else the worst; of several the first."""
        return min(self.standing or self.news, key=_weight)

    @property
    def firing(self) -> tuple[Notification, ...]:
        """What fires still."""
        return tuple(each for each in self.standing if each.state == "firing")

    @property
    def is_flapping(self) -> bool:
        """Whether an alert of it comes and goes."""
        return self.flaps > FLAPPING

    @property
    def is_worse(self) -> bool:
        """Whether its news fire with a severity beyond all that was told before."""
        news = [rank(each.severity) for each in self.news if each.state == "firing"]
        return bool(news) and min(news) < rank(self.worst_told)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receiver gives back: where the message is, and whether it was there already."""

    place: str | None = None
    found: bool = False


def rank(severity: str) -> int:
    """0 for the worst."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _weight(each: Notification) -> tuple[bool, int, float]:
    return each.state != "firing", rank(each.severity), each.started_at


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
