"""The typed records, under their public name (contract, section 7)."""

from ldlm_monitor.base.names import Severity
from ldlm_monitor.base.records import (
    Event,
    Heartbeat,
    Position,
    Record,
    Sample,
    SampleBlock,
    adapter,
    from_json,
    to_json,
)

__all__ = [
    "Event",
    "Heartbeat",
    "Position",
    "Record",
    "Sample",
    "SampleBlock",
    "Severity",
    "adapter",
    "from_json",
    "to_json",
]
