"""What an evaluation of rules yields: changes of the states of alerts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

State: TypeAlias = Literal["pending", "firing", "resolved", "ended", "unknown"]
"""The state after a change. A firing alert is over because its condition is false (`resolved`, the
only end that Prometheus has), what it watches has ended (`ended`), or its series are gone
(`unknown`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChange:
    """A change of an alert's state at `time`; `rule` is the name of its rule.

    Times are Unix seconds; `active_at` is when the expression first held. `reason` is a phrase such
    as `no data`. `value`: that of the expression when it last held.
    """

    time: float
    rule: str
    state: State
    previous: Literal["inactive", "pending", "firing"]
    reason: str
    labels: dict[str, str]
    annotations: dict[str, str] = field(default_factory=dict)
    value: float
    active_at: float
