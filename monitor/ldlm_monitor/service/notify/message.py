"""The values that receivers get: a transition, an incident, and a message that contains both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ldlm_monitor.base.alert import RUN_ENDED, State, Transition
from ldlm_monitor.base.incident_view import IncidentView, RootView
from ldlm_monitor.base.names import RUN_FINISHED, severity_rank
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.base.text.sanitize import redact, run_path, shorten
from ldlm_monitor.judge.core.headlines import headline_of_incident
from ldlm_monitor.judge.incidents.folded_evidence import NONFINITE
from ldlm_monitor.judge.incidents.short_causes import short_cause

MAX_TEXT = 4000
"""Characters kept of a log line, an annotation and other long texts: more than Slack's longest text
(3000), so that a receiver's own limit decides."""
MAX_LABEL = MAX_ID = 256
"""Characters kept of a label's value and of an incident's id: a choice; usual ones are shorter."""
Step: TypeAlias = Literal["first", "follow-up", "repeat", "update", "correction"]
"""`first` posts a group's first message, `follow-up` the group's later news, `repeat` a reminder of
the alerts that still fire; `update` edits the first message, and where that cannot be edited, a
`correction` says that the incident names another rank."""

FLAPPING: Final = 2
"""Firings within an hour above which an alert is flapping: a run's restart may cause the second."""
_EXCERPT, _WHY = 6, 4
"""Log lines, and reasons for the cause, kept of an incident. A choice: more of them would move the
alerts and the action off a phone's screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One transition of an alert, its texts redacted for sending. Times are Unix seconds.

    `key` names the alert instance and is the same for all its transitions; with `state` and
    `started_at` (when the condition began to hold) it identifies the notification. `at` is the time
    of the transition, None if the log has no times. In other fields None means unknown.
    `line` is the log line that made the condition hold, at `path`, `line_number` (1-based) and
    `offset` (bytes). `incident` is the id of the alert's incident, and `cause` its first cause.
    `reason` says why the state changed, such as `no data`. `value` is that of the rule. `named`:
    `rank` is the incident's, and not of the rule's series. `health`: the run's, when it was made.
    `link`: the URL of the run's page ("": none). `headline`: what happened, in one line.
    `verdict`: what host and log show of a stalled run, in a word ("": nothing).
    """

    __pydantic_config__: ClassVar = ConfigDict(ser_json_inf_nan="strings")

    key: str
    alert: str
    state: State
    severity: str
    reason: str
    run: str
    rank: str | None
    step: int | None
    line: str | None
    path: str | None
    line_number: int | None
    offset: int | None = None
    summary: str
    description: str
    action: str
    labels: dict[str, str]
    value: float
    started_at: float
    at: float | None
    cause: str | None = None
    incident: str | None = None
    named: bool = False
    health: str = ""
    link: str = ""
    headline: str = ""
    verdict: str = ""

    @property
    def is_over_with_run(self) -> bool:
        """Whether the alert is over only because the series of its run are."""
        return self.state == "unknown" or self.reason == RUN_ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """An incident, its texts redacted for sending.

    `excerpt` holds (file:line, text) of the log lines that show the first cause. `cause` is
    empty if none is known; `why` are its reasons, and `confidence` is as in `IncidentView`. `rank`
    is the single rank that the incident names, if it does.
    `action`: the decision, and what to try. `headline`: what is known now, in one line.
    `shared`: the first cause in the words in which that of other runs may be equal ("": unknown).
    """

    id: str
    title: str
    cause: str
    confidence: str
    why: tuple[str, ...]
    excerpt: tuple[tuple[str, str], ...]
    action: str
    rank: str | None = None
    headline: str = ""
    shared: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One group of alerts, as one receiver gets it. `group` is its id, `opened_at` Unix seconds.

    `news` are the transitions that have not been sent yet, oldest first. `alerts` holds the
    latest transition of every alert of the group, those in `news` included. `place` is the
    receiver's reference to the first message; None before it, or if the receiver gives none.
    `shared`: the first cause that all runs of a message about several have ("": unknown).
    `identity` is the same at every attempt to send these news; with `unsure` an earlier attempt
    may have arrived. `worst_sent` is the worst severity sent before ("": none). `flaps` counts
    the firings of the group's most frequent alert within the last hour.
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
    shared: str = ""

    @property
    def lead(self) -> Notification:
        """The most important alert, by `weight`."""
        return min(self.alerts or self.news, key=weight)

    @property
    def firing(self) -> tuple[Notification, ...]:
        """The alerts that still fire; that a run has finished is said once."""
        going = (each for each in self.alerts if each.alert != RUN_FINISHED)
        return tuple(each for each in going if each.state == "firing")

    @property
    def is_of_many(self) -> bool:
        """Whether it is about the same alert of several runs."""
        return len({each.run for each in self.alerts}) > 1

    @property
    def is_outdated(self) -> bool:
        """Whether the incident names another rank than was sent with the most important alert."""
        lead, story = self.lead, self.story
        return bool(self.firing and story and lead.named and lead.rank != story.rank)

    @property
    def is_worse(self) -> bool:
        """Whether a new alert fires with a severity worse than any that was sent before."""
        news = [severity_rank(each.severity) for each in self.news if each.state == "firing"]
        return bool(news) and max(news) > severity_rank(self.worst_sent)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receiver's confirmation. `place`: the receiver's reference to the message, if it has any.

    `found`: the message was not sent again, as an earlier attempt had arrived. `then` adds a
    picture; the courier calls it once, after the arrival is committed.
    """

    place: str | None = None
    found: bool = False
    then: Callable[[], None] | None = None


def weight(each: Notification) -> tuple[bool, int, float]:
    """Sort key: firing alerts first, then the worst severity, then the earliest start."""
    return each.state != "firing", -severity_rank(each.severity), each.started_at


def from_transition(transition: Transition, external_url: str | None = None) -> Notification:
    """The notification of a transition: its texts cleaned, redacted and then bounded.

    `external_url`: where people reach the monitor's pages; None if that is unknown.
    """
    labels = {name: fit(value, MAX_LABEL) for name, value in transition.labels.items()}
    annotations = transition.annotations
    position = transition.position
    return Notification(
        key=fit(transition.key),
        alert=transition.alert,
        state=transition.state,
        severity=labels.get("severity", "none"),
        reason=transition.reason,
        run=labels.get("run", ""),
        rank=labels.get("rank"),
        step=transition.step,
        line=None if transition.line is None else fit(transition.line),
        path=None if position is None else fit(position.path),
        line_number=None if position is None else position.line,
        offset=None if position is None else position.offset,
        summary=fit(annotations.get("summary", "")),
        description=fit(annotations.get("description", "")),
        action=fit(annotations.get("action", "")),
        labels=labels,
        value=transition.value,
        started_at=transition.active_at,
        at=transition.time,
        cause=None if transition.cause is None else fit(transition.cause),
        incident=None if transition.incident is None else fit(transition.incident, MAX_ID),
        named=transition.wants_rank,
        health=transition.health,
        link=page_of(transition.labels, external_url) if external_url else "",
        verdict=fit(annotations.get("verdict", ""), MAX_LABEL),
        headline=shorten(transition.headline, MAX_LABEL),  # its parts are redacted already
    )


def page_of(labels: Mapping[str, str], url: str) -> str:
    """The page of an alert's run at the monitor that people reach under `url`, or `url` itself."""
    return url + run_path(labels["run"]) if url and labels.get("run") else url


def fit(text: str, limit: int = MAX_TEXT) -> str:
    """`text` redacted and only then cut to `limit` characters: half a secret is not recognised."""
    return shorten(clean(text), limit)


def clean(text: str) -> str:
    """`text` without escape sequences and secrets; line ends are kept."""
    return redact(text).strip()


def message_of(each: Notification) -> Message:
    """A message of one alert alone, as `notify test` sends it."""
    one, at = (each,), each.started_at
    return Message(step="first", group=0, identity=each.key, news=one, alerts=one, opened_at=at)


def story_of(view: IncidentView, run: RunView | None = None) -> Story:
    """The story of an incident of a run: its texts redacted and cut."""
    # Limits in characters, a choice: a text fills a few lines of a phone, the action a screen.
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
        action=fit(view.advice, 2500),
        rank=None if root.rank is None or not known else str(root.rank),
        headline=headline_of_incident(view, run).line(),
        shared=_shared(root) if known else "",
    )


def _shared(root: RootView) -> str:
    """The cause without its step, which a line about a NaN has."""
    return root.kind if root.kind == NONFINITE else fit(short_cause(root), MAX_LABEL)


Stored = TypeVar("Stored", Notification, Story)


@cache
def _adapters() -> dict[type[Any], TypeAdapter[Any]]:
    return {kind: TypeAdapter(kind) for kind in (Notification, Story)}


def to_json(stored: Notification | Story) -> str:
    """`stored` as one JSON object; non-finite numbers become strings."""
    return _adapters()[type(stored)].dump_json(stored).decode()


def from_json(kind: type[Stored], body: str) -> Stored | None:
    """The value that `to_json` wrote; None if `body` is damaged or of another version."""
    try:
        return cast("Stored", _adapters()[kind].validate_json(body))
    except ValidationError:
        return None
