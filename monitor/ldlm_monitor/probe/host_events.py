"""Makes events of the findings on a host; their kinds are those of log events."""

from collections.abc import Iterable
from pathlib import Path

from ldlm_monitor.model.records import Event, FieldValue, Scalar, Severity
from ldlm_monitor.run.verdict import ProbeCandidate

MAX_SHOWN = 64  # processes in an event: more than a host has ranks, and some KiB
MAX_RANKS = 4096  # ranks in one field, so that an event stays below a few tens of KiB
MAX_MESSAGE = 1000
"""Characters of an event's message: a sentence of a finding with ranks and a frame is shorter."""


def folders(case: ProbeCandidate) -> set[Path]:
    """Folders that may have heartbeats: those of JSON lines, beside which the callback writes."""
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
    """An event at the run's last step; `role`: root, evidence or context; `family`: as `nccl`."""
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
    """The sorted ranks, the first `MAX_RANKS` of them, as a field of an event."""
    return [*sorted(ranks)[:MAX_RANKS]]
