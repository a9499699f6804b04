"""Makes events of the findings on a host; their kinds are those of log events."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from ldlm_monitor.base.records import Event, FieldValue, Position, Scalar
from ldlm_monitor.host.probe.process import TICKS, Scan, link
from ldlm_monitor.judge.run.verdict import RELAY_CORES, ProbeCandidate
from ldlm_monitor.logs.parse.made_events import Seen, made_event
from ldlm_monitor.logs.source.file_system import read_mounts

MAX_SHOWN = 64  # processes in an event: more than a host has ranks, and some KiB
MAX_RANKS = 4096  # ranks in one field, so that an event stays below a few tens of KiB
MAX_MESSAGE = 1000
"""Characters of an event's message: a sentence of a finding with ranks and a frame is shorter."""


def folders(case: ProbeCandidate) -> set[Path]:
    """Folders that may have heartbeats: those of JSON lines, beside which the callback writes."""
    return {Path(file).parent for file in case.files if file.endswith(".jsonl")}


class Standing(Protocol):
    """A run that takes no step, and the place of its last one."""

    @property
    def run(self) -> str:
        """The run's name."""

    @property
    def position(self) -> Position:
        """Where its last step is logged."""


def event(
    case: Standing,
    seen: Seen,
    message: str,
    rank: int | None = None,
    **fields: FieldValue,
) -> Event:
    """The event of something seen, at the run's last step."""
    known = made_event(seen)
    return Event(
        kind=known.kind,
        severity=known.severity,
        run=case.run,
        rank=rank,
        message=message[:MAX_MESSAGE],
        fields={**fields, "probe": True, "family": known.family, "role": known.role},
        position=case.position,
    )


def listed(ranks: Iterable[int]) -> list[Scalar]:
    """The sorted ranks, the first `MAX_RANKS` of them, as a field of an event."""
    return [*sorted(ranks)[:MAX_RANKS]]


_ALL_PIDS = "pid:[4026531836]"
"""The table of all processes, not a container's (Linux, PROC_PID_INIT_INO in proc_ns.h)."""


def nobody_writes(case: ProbeCandidate, seen: Scan) -> Event | None:
    """An event if no process of this host can write the run's logs, which none has open.

    Some writers open a log for each line: of its owner's processes that were there at the last
    step, none has computed. Nothing is known of a log that was copied here (its times are set, or
    it is renamed), that lies on a network, or whose writer may be hidden from this process.
    """
    mounts, owners = read_mounts(), set[int]()
    if not case.files or case.pids or link(seen.proc / "self/ns/pid") != _ALL_PIDS:
        return None
    for log in case.files:
        try:
            status = None if mounts.of(Path(log)).remote else os.stat(log)
        except OSError:
            return None
        if status is None or status.st_mtime_ns != status.st_ctime_ns:
            return None
        owners.add(status.st_uid)
    if os.geteuid() and owners != {os.geteuid()}:
        return None
    for pid, each in seen.table.items():
        age = case.last_progress_at - seen.started_at(pid)
        computed = age >= 0.0 and each.ticks / TICKS >= RELAY_CORES * age
        if computed and each.status is None and _owner(pid, seen) in owners:
            return None
    what = "no process of this host writes its log"
    return event(case, "processes gone", what, alive=0)


def _owner(pid: int, seen: Scan) -> int | None:
    try:
        return (seen.proc / str(pid)).stat().st_uid
    except OSError:  # it has ended since
        return None
