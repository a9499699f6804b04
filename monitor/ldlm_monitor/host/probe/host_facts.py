"""Reads what a run uses of this host: memory, the disk of its checkpoints, GPUs. Read-only."""

import os
import re
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ldlm_monitor.base.snapshot import DiskView, GpuView, HostView, ProcessView
from ldlm_monitor.host.probe import process
from ldlm_monitor.host.probe.gpu import GpuReader
from ldlm_monitor.host.probe.process import Family, Scan
from ldlm_monitor.judge.run.verdict import ProbeCandidate

MAX_PROCESSES = 64  # in a view: more than a host has ranks
_INTERVALS = 3
"""Intervals between checkpoints that give their pace. A choice: a trainer that keeps the last one
to three deletes as much as it saves by then, so that a disk which will not fill raises no alarm."""

_KIB = re.compile(r"^(\w+): +(\d{1,15}) kB", re.MULTILINE)  # of /proc/meminfo


@dataclass(slots=True)
class _Fill:
    """A disk's free bytes after each of the last checkpoints, as (Unix seconds, bytes)."""

    saved: int
    free: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_INTERVALS + 1))

    def full_at(self, saved: int, now: float, free: int) -> float | None:
        """When the disk is full; `saved`: how many checkpoints the run has saved."""
        if saved != self.saved:
            self.saved = saved
            self.free.append((now, free))
        drops = [before[1] - after[1] for before, after in pairwise(self.free)]
        if len(drops) < _INTERVALS or min(drops) <= 0:
            return None
        return now + free * (self.free[-1][0] - self.free[0][0]) / sum(drops)


class HostFacts:
    """Makes the `HostView` of runs. Calls may block on a dead mount."""

    def __init__(self, proc: Path, gpus: GpuReader) -> None:
        self._proc = proc
        self._gpus = gpus
        self._fills: dict[str, _Fill] = {}

    def look(
        self, cases: Sequence[tuple[ProbeCandidate, Family]], seen: Scan, now: float
    ) -> dict[str, HostView]:
        """The views by run, of those that have processes on this host."""
        here = [(case, family) for case, family in cases if family.members]
        self._fills = {case.run: self._fills.get(case.run) or _Fill(case.saved) for case, _ in here}
        gpus = self._gpus.look() if any(not case.reports_gpus for case, _ in here) else ()
        return {case.run: self._view(case, family, seen, gpus, now) for case, family in here}

    def _view(
        self, case: ProbeCandidate, family: Family, seen: Scan, gpus: Sequence[GpuView], now: float
    ) -> HostView:
        total, available = _memory(self._proc)
        own = () if case.reports_gpus else self._gpus.of(family.members, gpus)
        return HostView(
            at=now,
            host=socket.gethostname(),
            processes=tuple(self._processes(family, seen, now)),
            memory_total_bytes=total,
            memory_available_bytes=available,
            disk=self._disk(case, family, now),
            gpus=own,
            without_gpus="" if own or case.reports_gpus else self._gpus.problem,
        )

    def _processes(self, family: Family, seen: Scan, now: float) -> list[ProcessView]:
        ordered = sorted(family.ranks.items(), key=lambda each: -1 if each[0] is None else each[0])
        return [
            ProcessView(
                rank=rank,
                pid=main.pid,
                state=main.state,
                cores=main.ticks / process.TICKS / max(now - seen.started_at(main.pid), 1.0),
                resident_bytes=sum(
                    process.resident(pid, self._proc)
                    for pid in process.descendants([main.pid], seen)
                ),
            )
            for rank, main in ordered[:MAX_PROCESSES]
            if main.pid in seen.table
        ]

    def _disk(self, case: ProbeCandidate, family: Family, now: float) -> DiskView | None:
        """The disk of the last saved checkpoint, else that of the log; None if neither is here."""
        folders = [process.link(self._proc / str(pid) / "cwd") for pid in family.members]
        base = next(filter(None, folders), "")
        for path in filter(None, (case.saved_to, *case.files[:1])):
            folder = Path(base, path).parent
            while not folder.is_dir() and folder != folder.parent:
                folder = folder.parent
            try:
                found = os.statvfs(folder)
            except OSError:
                continue
            free = found.f_bavail * found.f_frsize
            full_at = (
                self._fills[case.run].full_at(case.saved, now, free) if case.saved_to else None
            )
            total = found.f_blocks * found.f_frsize
            return DiskView(folder=str(folder), free_bytes=free, total_bytes=total, full_at=full_at)
        return None


def _memory(proc: Path) -> tuple[int, int]:
    """Bytes of this host's memory, and those available to new processes; 0 if unknown."""
    found = dict(_KIB.findall(process.read_text(proc / "meminfo")))
    total, available = (int(found.get(name, 0)) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total, available
