"""Alerts and their transitions, which rules produce and which views and receivers read.

Also matchers of alert labels, with Alertmanager's semantics and notation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ldlm_monitor.base.records import Position
from ldlm_promrules.alert_change import State

__all__ = [
    "MAX_NAME",
    "MAX_VALUE",
    "RUN_ENDED",
    "LabelMatcher",
    "State",
    "Transition",
    "Value",
    "alert_key",
    "check_pattern",
    "parse_matcher",
]

RUN_ENDED = "run ended"
"""The reason of an alert that is over because its run, and with it its series, has ended."""
MAX_VALUE = 1024
"""Most characters of a matcher's value. A choice, far above real label values: silences are stored
on disk, so a client must not make them arbitrarily large."""
MAX_NAME = 128
"""Most characters of a label's name, and of a person's in a silence. A choice as `MAX_VALUE` is."""

_PATTERN_MEMORY = 1 << 20
"""Most bytes of one compiled pattern (1 MiB). A choice: `_compiled` keeps 1024 patterns, for which
RE2's default of 8 MiB would allow 8 GiB."""
# A matcher as Alertmanager writes it: name, operator, value.
_WRITTEN = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)  # a value in quotes
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)  # an escape in such a value
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}  # character after the backslash -> its meaning

# Label names have the form that Prometheus' data model prescribes.
LabelName = Annotated[str, Field(max_length=MAX_NAME, pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
Value = Annotated[str, Field(max_length=MAX_VALUE)]  # of a matcher


class LabelMatcher(BaseModel):
    """A condition on one label's value; a missing label has the value ""."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, populate_by_name=True, defer_build=True
    )

    name: LabelName
    value: Value
    is_regex: bool = Field(False, alias="isRegex")
    is_equal: bool = Field(True, alias="isEqual")

    @model_validator(mode="after")
    def _compiles(self) -> LabelMatcher:
        if self.is_regex:
            check_pattern(self.value)
        return self

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the label equals `value`, or matches it whole; the opposite if not `is_equal`."""
        value = labels.get(self.name, "")
        if self.is_regex:
            found = _compiled(self.value).fullmatch(value.encode("utf-8", "replace")) is not None
        else:
            found = value == self.value
        return found is self.is_equal


def parse_matcher(text: str) -> LabelMatcher:
    r"""Parses `severity="critical"`, `alertname=~"Nccl.*"`, `run!=a` or `run!~"a|b"`.

    In quotes, `\"`, `\\` and `\n` are escapes; other backslashes stay. Raises ValueError if the
    text has another form, a name or value too long, or an invalid regular expression.
    """
    written = _WRITTEN.fullmatch(text)
    if written is None:
        raise ValueError('should be a matcher such as severity="critical"')
    name, operator, value = written.groups()
    if quoted := _QUOTED.fullmatch(value):
        # Other escapes stay as they are: they belong to the regular expression.
        value = _ESCAPED.sub(lambda escape: _ESCAPES.get(escape[1], escape[0]), quoted[1])
    elif '"' in value or "," in value or "{" in value:
        raise ValueError('should have its value in quotes, such as severity="critical"')
    return LabelMatcher(name=name, value=value, isRegex="~" in operator, isEqual=operator[0] != "!")


def check_pattern(pattern: str) -> None:
    """Raises ValueError if `pattern` is no regular expression that RE2 accepts."""
    import re2

    try:
        _compiled(pattern)
    except re2.error as error:
        reason = error.args[0]
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ValueError(f"is no regular expression of RE2: {said}") from None


@lru_cache(maxsize=1024)  # a choice: a fleet's silences have fewer patterns; each costs memory
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    options.dot_nl = True
    return re2.compile(pattern.encode("utf-8", "replace"), options)


def alert_key(name: str, labels: Mapping[str, str]) -> str:
    """The identity of one alert instance, the same in all its states: `name{label=value,...}`."""
    inner = ",".join(f"{label}={value}" for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A change of an alert's state.

    Times are Unix seconds; `time` is None if the log has no times. `active_at` is when the
    expression first held. `reason` is a phrase such as `no data`. If a single log line made
    the expression hold, `position`, `line` and `step` are its place, text and training step.
    If the alert belongs to an incident, `incident` is its id (`IncidentView.id`) and `cause`
    its first cause as text (kind, rank, host, confidence). If the rule gives no rank, the label
    `rank` is the one that the incident names; `identity` is then the key without that label.
    `health`: the run's level, of `snapshot.Health`. `headline`: the change in one line.
    """

    time: float | None
    alert: str
    state: State
    previous: Literal["inactive", "pending", "firing"]
    reason: str
    labels: dict[str, str]
    annotations: dict[str, str] = field(default_factory=dict)
    value: float
    position: Position | None = None
    active_at: float
    step: int | None = None
    line: str | None = None
    cause: str | None = None
    incident: str | None = None
    identity: str = ""
    health: str = ""
    headline: str = ""

    @property
    def key(self) -> str:
        """The identity of the alert instance, the same for all its transitions."""
        return self.identity or alert_key(self.alert, self.labels)

    @property
    def wants_rank(self) -> bool:
        """Whether the alert is of an incident, critical, and its rule gives no rank."""
        own = "rank" in self.labels and not self.identity
        return self.incident is not None and self.labels.get("severity") == "critical" and not own

    @property
    def is_heartbeat(self) -> bool:
        """Whether the alert fires only to prove that alerting works (for a dead man's switch)."""
        return self.labels.get("severity") == "none"
