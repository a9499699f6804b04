"""Who is told of what, and when: Alertmanager's words, in TOML.

https://prometheus.io/docs/alerting/latest/configuration/: `route`, `inhibit_rules`,
`time_intervals`. What Alertmanager does not have is said at its field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from ldlm_monitor.config.receivers import Section
from ldlm_monitor.config.time_intervals import TimeInterval
from ldlm_monitor.model.errors import ConfigError
from ldlm_monitor.model.matchers import LabelMatcher, parse_matcher

INCIDENT = "incident"
"""What alerts are grouped by: the incident of their run that they belong to."""
ALL_LABELS = "..."
EVERYBODY = "all"
NOBODY = "none"

_DURATION = re.compile(
    r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_UNITS = (604800.0, 86400.0, 3600.0, 60.0, 1.0, 0.001)


def _seconds(value: object) -> object:
    """`1h30m`, as Prometheus writes durations, or a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, str):
        if isinstance(value, bool):
            raise ValueError("should be a duration such as 30s, 5m or 4h")
        return value
    found = _DURATION.fullmatch(value.strip())
    if value.strip() == "0":
        return 0.0
    if found is None or not any(found.groups()):
        raise ValueError("should be a duration such as 30s, 5m or 4h")
    counts = (int(count or 0) for count in found.groups())
    return sum(count * unit for count, unit in zip(counts, _UNITS, strict=True))


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _split_commas(value: object) -> object:
    """A variable parts names by commas."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


def _from_json(value: object) -> object:
    """A variable holds tables as JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("should be a list of tables; in a variable, as JSON") from None


def _matcher(value: object) -> object:
    return parse_matcher(value) if isinstance(value, str) else value


def _label(value: str) -> str:
    if value != ALL_LABELS and not _LABEL.fullmatch(value):
        raise ValueError('should be the name of a label, or "..." for all')
    return value


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("should be longer than nothing, such as 5m")
    return value


Duration: TypeAlias = Annotated[
    float, BeforeValidator(_seconds), Field(ge=0, le=366 * 86400, allow_inf_nan=False)
]
Interval: TypeAlias = Annotated[Duration, AfterValidator(_positive)]
Matchers: TypeAlias = Annotated[
    tuple[Annotated[LabelMatcher, BeforeValidator(_matcher)], ...], BeforeValidator(_one_or_more)
]
Labels: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_label)], ...],
    BeforeValidator(_split_commas),
]
Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_split_commas)]


class SubRoute(Section):
    """A node of the route tree; what it leaves out it has from its parent, as in Alertmanager."""

    receiver: str | None = None
    matchers: Matchers = ()
    group_by: Labels | None = None
    group_wait: Duration | None = None
    group_interval: Interval | None = None
    repeat_interval: Interval | None = None
    continue_: bool = Field(False, alias="continue")
    mute_time_intervals: Names = ()
    active_time_intervals: Names = ()
    routes: tuple[SubRoute, ...] = ()


class Route(Section):
    """The root of the route tree: it takes every alert that no route below takes."""

    receiver: str = Field(
        default=EVERYBODY,
        description="Who is told: `slack`, `slack:CHANNEL` (with a bot's token), `webhook`, "
        "`apprise` (or one of its services, `apprise discord`), `all` or `none`.",
        examples=["slack"],
    )
    group_by: Labels = Field(
        default=(INCIDENT,),
        description="Labels whose alerts are told together; `incident` is the failure of a run "
        'that an alert belongs to, `["..."]` keeps every alert apart, `[]` puts all together.',
        examples=[["alertname", "run"]],
    )
    group_wait: Duration = Field(
        default=0,
        description="How long a group's first message waits for more.",
        examples=["30s"],
    )
    group_interval: Interval = Field(
        default=30,
        description="How long a group's next message waits after the one before.",
        examples=["5m"],
    )
    repeat_interval: Interval = Field(
        default=4 * 3600,
        description="After so long what fires still is told again.",
        examples=["12h"],
    )
    digest_interval: Duration = Field(
        default=3600,
        description="Alerts of severity info that no route below takes are told together, this "
        "often. 0: like all others.",
        examples=["1d"],
    )
    mute_time_intervals: Names = Field(
        default=(),
        description="Quiet hours of what no route below takes, by their names.",
        examples=[["nights"]],
    )
    active_time_intervals: Names = Field(
        default=(),
        description="The only times at which it is told, by their names.",
        examples=[["office"]],
    )
    routes: Annotated[tuple[SubRoute, ...], BeforeValidator(_from_json)] = Field(
        default=(),
        description="Routes below; an alert goes to the first whose matchers hold.",
        examples=[[{"matchers": ['severity="critical"'], "receiver": "slack"}]],
    )


class InhibitRule(Section):
    """Targets are not told while a source fires whose labels `equal` theirs."""

    source_matchers: Matchers = Field(min_length=1)
    target_matchers: Matchers = Field(min_length=1)
    equal: Labels = ()


InhibitRules: TypeAlias = Annotated[tuple[InhibitRule, ...], BeforeValidator(_from_json)]
TimeIntervals: TypeAlias = Annotated[tuple[TimeInterval, ...], BeforeValidator(_from_json)]


def every_route(route: Route) -> Iterator[tuple[str, Route | SubRoute]]:
    """All, with the key that leads to each."""
    yield "route", route
    below = [(f"route.routes[{number}]", each) for number, each in enumerate(route.routes)]
    while below:
        key, each = below.pop(0)
        yield key, each
        below += [(f"{key}.routes[{number}]", sub) for number, sub in enumerate(each.routes)]


def check_routing(route: Route, intervals: tuple[TimeInterval, ...], source: str) -> None:
    """Raises ConfigError for a time interval that is defined twice, or used and not defined.

    `source` is the file's name, for the message.
    """
    names = [interval.name for interval in intervals]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(
            f'two are named "{twice}"', where=f"{source}time_intervals", remedy="rename one"
        )
    for key, each in every_route(route):
        for field in ("mute_time_intervals", "active_time_intervals"):
            for name in getattr(each, field):
                if name not in names:
                    raise ConfigError(
                        f'no time interval is named "{name}"',
                        where=f"{source}{key}.{field}",
                        remedy=f"defined: {', '.join(names)}"
                        if names
                        else "define it below [[time_intervals]]",
                    )
