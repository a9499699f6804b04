"""Events of what a host shows of a run; their kinds are those of logs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ldlm_monitor.model.records import Event, FieldValue, Scalar, Severity
from ldlm_monitor.run.verdict import ProbeCandidate

MAX_SHOWN = 64
"""Processes in an event."""
MAX_RANKS = 4096
"""Ranks in one field: an event stays below a few tens of KiB."""
MAX_MESSAGE = 1000
"""Characters; a message is one line of an alert."""


def folders(case: ProbeCandidate) -> set[Path]:
    """Where heartbeats may lie: beside the rows of the callback or of the trainer."""
    return {Path(file).parent for file in case.files if file.endswith(".jsonl")}


def event(
    case: ProbeCandidate,
    kind: str,
    severity: Severity,
    message: str,
    *,
    family: str,
    role: str = "evidence",
    rank: int | None = None,
    **fields: FieldValue,
) -> Event:
    """An event of what was found of the run, at the position of its last step."""
    return Event(
        kind=kind,
        severity=severity,
        run=case.run,
        rank=rank,
        message=message[:MAX_MESSAGE],
        fields={**fields, "probe": True, "family": family, "role": role},
        position=case.position,
    )


def listed(ranks: Iterable[int]) -> list[Scalar]:
    """Ranks as a field of an event."""
    return [*sorted(ranks)[:MAX_RANKS]]
