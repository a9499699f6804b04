"""A run to examine on its host, and the events of what is found; their kinds are those of logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ldlm_monitor.model.records import Event, FieldValue, Position, Scalar, Severity

MAX_SHOWN = 64
"""Processes in an event."""
MAX_RANKS = 4096
"""Ranks in one field: an event stays below a few tens of KiB."""
MAX_MESSAGE = 1000
"""Characters; a message is one line of an alert."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run to examine, as its logs describe it.

    `pids` by rank are of this host. `dumps` are files that the log names. `since` (Unix
    seconds) is the last step. Events get `position`.
    """

    run: str
    logs: tuple[str, ...]
    pids: dict[int | None, int]
    dumps: tuple[str, ...]
    world_size: int | None
    since: float
    position: Position

    @property
    def folders(self) -> set[Path]:
        """Where heartbeats may lie: beside the rows of the callback or of the trainer."""
        return {Path(file).parent for file in self.logs if file.endswith(".jsonl")}

    def event(
        self,
        kind: str,
        severity: Severity,
        message: str,
        *,
        family: str,
        role: str = "evidence",
        rank: int | None = None,
        **fields: FieldValue,
    ) -> Event:
        """An event of what was found of the run."""
        return Event(
            kind=kind,
            severity=severity,
            run=self.run,
            rank=rank,
            message=message[:MAX_MESSAGE],
            fields={**fields, "probe": True, "family": family, "role": role},
            position=self.position,
        )


def listed(ranks: Iterable[int]) -> list[Scalar]:
    """Ranks as a field of an event."""
    return [*sorted(ranks)[:MAX_RANKS]]
