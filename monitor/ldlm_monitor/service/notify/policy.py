"""The notification policy: which alerts a receiver gets, and when.

Each receiver has one policy. Routing trees, inhibition and named time intervals are not built: an
Alertmanager has them (https://prometheus.io/docs/alerting/latest/configuration/).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field

from ldlm_monitor.base.alert import LabelMatcher, parse_matcher
from ldlm_monitor.base.names import RUN_FINISHED, Severity, severity_rank
from ldlm_monitor.base.setting_types import (
    Seconds,
    SecondsFromZero,
    Section,
    from_text,
    split_commas,
)

DIGESTS_A_REPEAT: Final = 24
"""Digest intervals until a digest is sent again: a choice; fewer repeat more, more remind later."""
DAY_MINUTES: Final = 24 * 60  # minutes after which quiet hours repeat
_CLOCK = r"([01]\d|2[0-3]):([0-5]\d)"  # hour, minute
_QUIET = re.compile(rf"{_CLOCK}-{_CLOCK}(?: +(\S+))?")  # start, end, time zone


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A daily period from `start` to before `end`: minutes after midnight in the zone `zone`."""

    start: int
    end: int
    zone: str = "UTC"

    def contain(self, now: float) -> bool:
        """Whether `now` (Unix seconds) is in the period, which may span midnight."""
        moment = datetime.fromtimestamp(now, _zone(self.zone))
        since_start = 60 * moment.hour + moment.minute - self.start
        return since_start % DAY_MINUTES < (self.end - self.start) % DAY_MINUTES


def parse_quiet_hours(value: object) -> object:
    """`QuietHours` of a text as `22:00-07:00 Europe/Berlin` (no zone: UTC). Raises ValueError."""
    if isinstance(value, QuietHours):
        return value
    found = _QUIET.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found.group(1, 2) == found.group(3, 4):
        raise ValueError("should be two different times and a zone, as 22:00-07:00 Europe/Berlin")
    start, end = (60 * int(found[hour]) + int(found[hour + 1]) for hour in (1, 3))
    zone = found[5] or "UTC"
    _zone(zone)
    return QuietHours(start, end, zone)


@lru_cache(maxsize=16)  # zones: each receiver has at most one, and few settings name more
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("should end in a time zone such as Europe/Berlin or UTC") from None


Matchers: TypeAlias = Annotated[
    tuple[Annotated[LabelMatcher, from_text(parse_matcher)], ...], from_text(split_commas)
]


class StreamPolicy(Section):
    """The policy of a receiver of single transitions, such as a webhook, without digests."""

    matchers: Matchers = Field(default=(), examples=[['run!~"debug.*"']])
    """Only alerts whose labels (and `alertname`) satisfy all of these are sent to this receiver."""
    min_severity: Severity = "info"
    """The least severity that is sent to this receiver."""
    quiet_hours: Annotated[QuietHours | None, BeforeValidator(parse_quiet_hours)] = Field(
        default=None, examples=["22:00-07:00 Europe/Berlin"]
    )
    """Each day from the first time to the second (in UTC unless a zone follows) alerts wait; those
    that still fire at the second are sent then."""
    quiet_max_severity: Severity = "error"  # a choice: only critical alerts wake people
    """The worst severity that waits in quiet hours; `critical`: everything waits."""

    def accepts(self, alert: str, labels: Mapping[str, str]) -> bool:
        """Whether the receiver gets this alert, by its severity and labels, now or later."""
        # An unknown severity counts as info here, so that the default lets it through.
        severity = max(severity_rank(labels.get("severity", "")), severity_rank("info"))
        if severity < severity_rank(self.min_severity):
            return False
        named = {**labels, "alertname": alert}
        return all(matcher.holds(named) for matcher in self.matchers)

    def is_quiet(self, now: float) -> bool:
        """Whether `now` (Unix seconds) is within the quiet hours."""
        return self.quiet_hours is not None and self.quiet_hours.contain(now)

    def waits_in_quiet_hours(self, severity: str) -> bool:
        """Whether an alert of that severity waits until the quiet hours end."""
        return severity_rank(severity) <= severity_rank(self.quiet_max_severity)


class Policy(StreamPolicy):
    """The policy of a receiver that people read: one message per incident, and a digest."""

    # The alerts of one failure fire within seconds of each other. People who have read the first
    # message can wait half a minute for the rest, and get one message instead of many.
    follow_up_seconds: Seconds = 30
    """Least seconds between two messages about one incident."""
    # The default of Alertmanager's `repeat_interval`.
    repeat_interval_seconds: Seconds = 4 * 3600
    """Seconds after which an incident that still fires is sent again."""
    # A choice: shorter makes more messages, longer delays them; alerts of severity info can wait.
    digest_seconds: SecondsFromZero = 3600
    """Alerts of severity info are collected and sent together, this many seconds after the first.
    0: at once, as all others."""

    # A choice: who waits for a run of minutes sees its end; longer ones end while people do else.
    finished_after_seconds: SecondsFromZero = 600
    """RunFinished is sent of a run that lasted for at least so long: at once, and in no digest."""

    def leaves_out(self, alert: str, value: float, *, is_old: bool) -> bool:
        """Whether a change is none for people: the end of a short run, or that one `is_old`."""
        is_short = not value >= self.finished_after_seconds
        return alert == RUN_FINISHED and (is_short or is_old)

    def repeat_seconds(self, *, digest: bool) -> float:
        """Seconds after which an unchanged message is sent again; `digest`: it is a digest."""
        if digest:
            return max(self.repeat_interval_seconds, DIGESTS_A_REPEAT * self.digest_seconds)
        return self.repeat_interval_seconds
