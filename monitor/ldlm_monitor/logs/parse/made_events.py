"""Events that no pattern recognises: what readers of rows and bars, and looks at hosts, make.

The code that makes one says what was seen; its kind, family, severity and role are data
(`data/made.yml`), beside what the kinds mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from ldlm_monitor.base.names import Severity
from ldlm_monitor.base.text.yaml_loader import packaged_yaml

Seen: TypeAlias = Literal[
    "run begins",
    "settings",
    "skipping begins",  # a run that was resumed passes over the batches that it had
    "evaluation begins",
    "evaluation ends",
    "run completes",
    "run fails",
    "peer's failure",  # a run fails because of a signal, or of another rank
    "exit code",
    "error",  # a row with the level of an error
    "stacks",
    "silent processes",  # those of a run that takes no step
    "processes gone",
    "memory kill",  # the kernel killed processes of a control group
    "flight records",
    "ranks lost by NCCL",
    "no rank lost by NCCL",
]


@dataclass(frozen=True, slots=True)
class MadeEvent:
    """The kind, family, severity and role of an event."""

    kind: str
    family: str
    severity: Severity
    role: str


def made_event(seen: Seen) -> MadeEvent:
    """What the event of something seen is."""
    return _made_events()[seen]


@cache
def _made_events() -> Mapping[str, MadeEvent]:
    found: Mapping[str, Any] = packaged_yaml(__package__, "data/made.yml")["events"]
    return {seen: MadeEvent(**keys) for seen, keys in found.items()}
