"""How often the kernel killed a process of a control group for its memory.

Version 2: `memory.events` (oom, oom_kill; both include the groups below), `memory.max`,
`memory.current`. Version 1: `memory.oom_control` (oom_kill, since Linux 4.13),
`memory.limit_in_bytes`, `memory.usage_in_bytes` (Linux, Documentation/admin-guide/cgroup-v2.rst
and cgroup-v1/memory.rst).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ldlm_monitor.probe.process import read_text

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
