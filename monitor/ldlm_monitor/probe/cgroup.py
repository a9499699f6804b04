"""How often the kernel killed a process of a control group for its memory.

Version 2: `memory.events` (oom, oom_kill; both include the groups below), `memory.max`,
`memory.current`. Version 1: `memory.oom_control` (oom_kill, since Linux 4.13),
`memory.limit_in_bytes`, `memory.usage_in_bytes` (Linux, Documentation/admin-guide/cgroup-v2.rst
and cgroup-v1/memory.rst).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.model.records import Event
from ldlm_monitor.probe import host_events
from ldlm_monitor.probe.process import read_text
from ldlm_monitor.run.verdict import ProbeCandidate

MOUNT = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 writes the largest multiple of a page, above 2^60, where there is no limit."""


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group's memory. None: not readable, or no limit. Sizes in bytes."""

    path: Path
    oom_kills: int
    limit: int | None
    used: int | None


@dataclass(slots=True)
class MemoryGroups:
    """The memory groups of a run's ranks, and how often each had killed when it was last noted."""

    groups: dict[int | None, Path] = field(default_factory=dict)
    kills: dict[Path, int] = field(default_factory=dict)

    def note(self, mount: Path, *, goes_on: bool) -> None:
        """Count the kills so far; while a run `goes_on`, what was is survived."""
        for group in {*self.groups.values()}:
            for around in upwards(group, mount):
                if (goes_on or around not in self.kills) and (seen := look(around)):
                    self.kills[around] = seen.oom_kills

    def events(
        self, case: ProbeCandidate, mount: Path, died: Collection[int | None]
    ) -> Iterator[Event]:
        """A group in which the kernel killed since; one around it only with a death."""
        for group in {*self.groups.values()}:
            for folder in upwards(group, mount):
                now, before = look(folder), self.kills.get(folder)
                if now is None or before is None:  # gone, with all that ran in it
                    continue
                if now.oom_kills > before and (folder == group or died):
                    self.kills[folder] = now.oom_kills
                    victims = [rank for rank in died if self.groups.get(rank) == group]
                    rank = victims[0] if len(victims) == 1 else None
                    yield _event(case, rank, now, now.oom_kills - before)
                break


def _event(case: ProbeCandidate, rank: int | None, group: MemoryGroup, kills: int) -> Event:
    limit = "" if group.limit is None else f" with a limit of {group.limit >> 20} MiB"
    return host_events.event(
        case,
        "host_oom_kill",
        "critical",
        f"the kernel killed {kills} of the control group {group.path.name}{limit} for memory",
        family="host",
        role="root",
        rank=rank,
        cgroup=str(group.path),
        kills=kills,
        limit_bytes=group.limit,
        used_bytes=group.used,
    )


def group_of(membership: str, mount: Path = MOUNT) -> Path | None:
    """The folder of a process' memory group, by the text of its /proc/PID/cgroup."""
    hierarchies = [line.split(":", 2) for line in membership.splitlines() if line.count(":") >= 2]
    for _, controllers, path in hierarchies:
        if "memory" in controllers.split(","):
            return _below(mount / "memory", path)
    for _, controllers, path in hierarchies:
        if not controllers:
            unified = mount / "unified"
            return _below(unified if unified.is_dir() else mount, path)
    return None


def _below(mount: Path, path: str) -> Path:
    """In a container the path may be the host's and not exist: the container's own is the mount."""
    inner = mount.joinpath(*(part for part in Path(path).parts if part not in ("/", "..")))
    return inner if inner.is_dir() else mount


def look(folder: Path) -> MemoryGroup | None:
    """The group now; None where it is gone or has no counters."""
    for counters, limit, used in (
        ("memory.events", "memory.max", "memory.current"),
        ("memory.oom_control", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        kills = _counter(folder / counters, "oom_kill")
        if kills is not None:
            most = _number(folder / limit)
            most = None if most is not None and most >= _NO_LIMIT else most
            return MemoryGroup(folder, kills, most, _number(folder / used))
    return None


def upwards(folder: Path, mount: Path = MOUNT) -> Iterator[Path]:
    """The group and those around it, up to the mount point of its hierarchy."""
    yield folder
    for parent in folder.parents:
        if parent in (mount, mount.parent) or not parent.is_relative_to(mount):
            return
        yield parent


def _counter(file: Path, name: str) -> int | None:
    for line in read_text(file).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return None


def _number(file: Path) -> int | None:
    text = read_text(file).strip()
    return int(text) if text.isdecimal() else None
