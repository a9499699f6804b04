"""Runs that take no step, or soon will have taken none for too long: what to ask a host of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_monitor.model.records import Position
from ldlm_monitor.run.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Suspect:
    """A run whose host may be asked why no step comes; times in Unix seconds.

    `stalls_at`: when it will count as stalled, None once it ended. `pids` by rank, with
    the host that they are on, and `dumps` of flight recorders are what its logs tell.
    """

    run: str
    state: str
    last_progress_at: float
    stalls_at: float | None
    ended_at: float | None
    files: tuple[str, ...]
    pids: dict[int | None, tuple[str, int]]
    dumps: tuple[str, ...]
    world_size: int | None
    position: Position


def find_suspects(
    runs: Fleet, until: float, ended_since: float, since: float = -math.inf
) -> Iterator[Suspect]:
    """The runs that stall by `until` (Unix seconds), that did, or that ended of late.

    None whose step advanced last before `since`.
    """
    for run in runs.nearing(until, ended_since):
        life = run.life
        if life.last_progress_at < since:
            continue
        yield Suspect(
            run=run.name,
            state=life.state,
            last_progress_at=life.last_progress_at,
            stalls_at=None if life.ended else life.last_progress_at + life.stall_limit,
            ended_at=life.ended_at,
            files=tuple(run.files),
            pids=dict(run.findings.pids),
            dumps=tuple(run.findings.dumps.values()),
            world_size=run.told.world_size,
            position=life.progress_position,
        )
