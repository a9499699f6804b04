"""How often the kernel's OOM killer killed processes of a training's control groups.

The kills are in `memory.events` (version 2, groups below included) or `memory.oom_control` (version
1, since Linux 4.13), the limit in `memory.max` or `memory.limit_in_bytes` (Linux,
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.base.records import Event
from ldlm_monitor.host.probe import host_events
from ldlm_monitor.host.probe.process import read_text
from ldlm_monitor.judge.run.verdict import ProbeCandidate

MOUNT = Path("/sys/fs/cgroup")  # as systemd and container runtimes mount it
_NO_LIMIT = 1 << 60
"""Bytes that no host has: version 1 shows a missing limit as 2^63 less one page, which is above."""

_OOM_KILLS = re.compile(r"^oom_kill (\d{1,19})$", re.MULTILINE)  # a 64-bit counter


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group's folder, kills so far, and limit in bytes (None: unlimited or unknown)."""

    path: Path
    oom_kills: int
    limit: int | None


@dataclass(slots=True)
class MemoryGroups:
    """`groups`: rank (None without ranks) to its folder; `kills`: folder to its last count."""

    groups: dict[int | None, Path] = field(default_factory=dict)
    kills: dict[Path, int] = field(default_factory=dict)

    def note(self, mount: Path, *, goes_on: bool) -> None:
        """Count the kills with which `events` compares; if not `goes_on`, of new groups only."""
        for group in {*self.groups.values()}:
            for around in upwards(group, mount):
                if (goes_on or around not in self.kills) and (seen := look(around)):
                    self.kills[around] = seen.oom_kills

    def events(
        self, case: ProbeCandidate, mount: Path, died: Collection[int | None]
    ) -> Iterator[Event]:
        """An event for each group with kills since `note`; `died`: the ranks that ended.

        A kill in a surrounding group may concern other jobs: it counts only if a rank died.
        """
        for group in {*self.groups.values()}:
            for folder in upwards(group, mount):
                now, before = look(folder), self.kills.get(folder)
                if now is None or before is None:  # the group was removed with its last process
                    continue
                if now.oom_kills > before and (folder == group or died):
                    self.kills[folder] = now.oom_kills
                    victims = [rank for rank in died if self.groups.get(rank) == group]
                    rank = victims[0] if len(victims) == 1 else None
                    yield _event(case, rank, now, now.oom_kills - before)
                break


def _event(case: ProbeCandidate, rank: int | None, group: MemoryGroup, kills: int) -> Event:
    killed = "a process" if kills == 1 else f"{kills} processes"
    limit = "" if group.limit is None else f" (limit {group.limit >> 20} MiB)"
    return host_events.event(
        case,
        "memory kill",
        f"the kernel killed {killed} of the control group {group.path.name}{limit} to free memory",
        rank=rank,
        cgroup=str(group.path),
        kills=kills,
        limit_bytes=group.limit,
    )


def group_of(membership: str, mount: Path = MOUNT) -> Path | None:
    """The folder of a process' memory group, if any; `membership`: text of its /proc/PID/cgroup."""
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
    """The group's folder; in a container, where the host's path is missing, the mount itself."""
    inner = mount.joinpath(*(part for part in Path(path).parts if part not in ("/", "..")))
    return inner if inner.is_dir() else mount


def look(folder: Path) -> MemoryGroup | None:
    """The group's present counters; None if it was removed or has none."""
    for counters, limit in (
        ("memory.events", "memory.max"),
        ("memory.oom_control", "memory.limit_in_bytes"),
    ):
        if (found := _OOM_KILLS.search(read_text(folder / counters))) is not None:
            text = read_text(folder / limit).strip()
            is_limit = text.isdecimal() and int(text) < _NO_LIMIT
            return MemoryGroup(folder, int(found[1]), int(text) if is_limit else None)
    return None


def upwards(folder: Path, mount: Path = MOUNT) -> Iterator[Path]:
    """The group and the groups that contain it, up to but without `mount`."""
    yield folder
    for parent in folder.parents:
        if parent in (mount, mount.parent) or not parent.is_relative_to(mount):
            return
        yield parent
