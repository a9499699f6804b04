"""The processes of a training on this host: who they are, and what they do.

Found by open files, never by name: the writers of the followed log, the writers of the
pipe that such a writer (`tee`) reads, and their children. Everything is
read from /proc (proc(5)).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.callback.rank import RANK_VARIABLES

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
"""Units of CPU time, and of a start time, in a second."""
_MAX_FDS = 4096
"""Descriptors read of one process; trainers with thousands of loaders' pipes stay below."""
_MAX_ENVIRONMENT = 256 * 1024
"""Bytes of an environment; Linux permits 128 KiB in one variable."""
_HOPS = 4
"""Pipes between the training and its log, e.g. `train | sed | tee`."""
_STATUS_FIELD = 49
"""Index of exit_code in /proc/PID/stat behind the name (proc(5), field 52)."""
_LISTENING = "0A"
_BOOTED = re.compile(r"^btime (\d{1,19})$", re.MULTILINE)
_FLAGS = re.compile(r"^flags:\s*([0-7]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Process:
    """A process as it stands.

    `started` (ticks after boot) distinguishes it from a later one with its pid. `state` is
    the kernel's letter. `ticks` of CPU it used. `status` is a zombie's wait status, if it
    may be read: a signal in the low seven bits, an exit code above.
    """

    pid: int
    parent: int
    started: int
    state: str
    ticks: int
    status: int | None = None


@dataclass(slots=True)
class Family:
    """The processes of a training; `ranks` are its main processes by global rank.

    A training without ranks has one main process, the one that used most CPU time.
    """

    members: dict[int, Process] = field(default_factory=dict)
    ranks: dict[int | None, Process] = field(default_factory=dict)


@dataclass(slots=True)
class Scan:
    """The processes of a host at one time.

    `openers`: by the last part of a file's name, who has such a one open, on which
    descriptor, under which name. `pipes`: who holds a pipe other than as standard input, on
    which descriptor; `inputs` who has one as that.
    """

    proc: Path
    table: dict[int, Process]
    children: dict[int, list[int]] = field(default_factory=dict)
    openers: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    pipes: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    inputs: dict[int, str] = field(default_factory=dict)
    booted_at: float = 0.0

    def started_at(self, pid: int) -> float:
        """When a process of the table was started, Unix seconds."""
        return self.booted_at + self.table[pid].started / TICKS


def look(pid: int, proc: Path = PROC) -> Process | None:
    """A process as it stands; None: there is none."""
    text = read_text(proc / str(pid) / "stat")
    _, bracket, rest = text.rpartition(")")
    fields = rest.split()
    if not bracket or len(fields) <= _STATUS_FIELD:
        return None
    state = fields[0]
    return Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        state=state,
        ticks=int(fields[11]) + int(fields[12]),
        status=int(fields[_STATUS_FIELD]) if state in "ZX" else None,
    )


def waits_in(pid: int, proc: Path = PROC) -> str | None:
    """The kernel function that a process sleeps in, where one may know."""
    symbol = read_text(proc / str(pid) / "wchan").strip()
    return symbol if symbol not in ("", "0") else None


def environment(pid: int, names: Collection[str], proc: Path = PROC) -> dict[str, str]:
    """These variables of a process, as it was started with; the others are not kept."""
    text = read_text(proc / str(pid) / "environ", _MAX_ENVIRONMENT)
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in pairs if name in names}


def table(proc: Path = PROC) -> dict[int, Process]:
    """Every process of this host by its number; empty on a system that shows them elsewhere."""
    pids = [int(name) for name in _names(proc) if name.isdecimal()]
    return {pid: found for pid in pids if (found := look(pid, proc)) is not None}


def scan(proc: Path = PROC) -> Scan:
    """Every process of this host but this one, with the open files that may be inspected."""
    seen = Scan(proc, table(proc))
    seen.table.pop(os.getpid(), None)
    if booted := _BOOTED.search(read_text(proc / "stat", 4 * 1024 * 1024)):
        seen.booted_at = float(booted[1])
    for pid, each in seen.table.items():
        seen.children.setdefault(each.parent, []).append(pid)
        for descriptor, target in _descriptors(pid, proc):
            if not target.startswith("pipe:"):
                name = os.path.basename(target)
                seen.openers.setdefault(name, []).append((pid, descriptor, target))
            elif descriptor == "0":
                seen.inputs[pid] = target
            else:
                seen.pipes.setdefault(target, []).append((pid, descriptor))
    return seen


def family(
    logs: Collection[str], named: Mapping[int | None, int] | None = None, seen: Scan | None = None
) -> Family:
    """Who writes these files (real paths), and `named` processes by rank."""
    seen = seen or scan()
    writers, filters = _writers(logs, seen)
    found = writers | ({*(named or {}).values()} & seen.table.keys())
    members = {pid: seen.table[pid] for pid in descendants(found, seen)}
    ranks = {rank: members[pid] for rank, pid in (named or {}).items() if pid in members}
    return Family(members, ranks or _main_processes(members, filters, seen.proc))


def listens(pids: Collection[int], port: int, proc: Path = PROC) -> bool:
    """Whether one of these processes listens on a TCP port; where that cannot be read, True."""
    sockets = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in read_text(proc / table, 4 * 1024 * 1024).splitlines()[1:]:
            fields = line.split()
            local = fields[1].rpartition(":")[2] if len(fields) > 9 else ""
            if local and int(local, 16) == port and fields[3] == _LISTENING:
                sockets.add(f"socket:[{fields[9]}]")
    held = [target for pid in pids for _, target in _descriptors(pid, proc)]
    return bool(sockets) and (not held or any(target in sockets for target in held))


def _writers(logs: Collection[str], seen: Scan) -> tuple[set[int], set[int]]:
    """Who writes the logs, directly or through others; and these others, such as `tee`."""
    proc = seen.proc
    found: set[int] = set()
    filters: set[int] = set()
    for path in logs:
        for pid, descriptor, target in seen.openers.get(os.path.basename(path), ()):
            same = target == path or _is_same(proc / str(pid) / "fd" / descriptor, path)
            if same and _writes(pid, descriptor, proc):
                found.add(pid)
    for _ in range(_HOPS):
        sources = {
            seen.inputs[pid] for pid in found if pid in seen.inputs and _is_filter(pid, proc)
        }
        holders = [each for pipe in sources for each in seen.pipes.get(pipe, ())]
        behind = {pid for pid, descriptor in holders if _writes(pid, descriptor, proc)}
        if behind <= found:
            break
        filters |= {pid for pid in found if seen.inputs.get(pid) in sources}
        found |= behind
    return found, filters


def _is_filter(pid: int, proc: Path) -> bool:
    """Whether a process waits for its standard input, as `tee` does; True where unknown."""
    call = read_text(proc / str(pid) / "syscall").split()
    if len(call) > 1 and call[0].isdecimal() and int(call[1], 16) != 0:
        return False
    place = waits_in(pid, proc)
    return place is None or "pipe" in place


def _main_processes(
    members: Mapping[int, Process], filters: Collection[int], proc: Path
) -> dict[int | None, Process]:
    """By rank, if their environment names one; the busiest, not a shell that waits for it."""
    environments = {pid: environment(pid, RANK_VARIABLES, proc) for pid in members}
    ranks: dict[int | None, list[Process]] = {}
    for name in RANK_VARIABLES:
        for pid, variables in environments.items():
            if variables.get(name, "").isdecimal():
                ranks.setdefault(int(variables[name]), []).append(members[pid])
        if ranks:  # a batch script has Slurm's rank, and what torchrun starts in it has RANK
            break
    else:
        ranks = {None: [*members.values()]} if members else {}
    return {rank: _eldest_like_busiest(found, filters, proc) for rank, found in ranks.items()}


def _eldest_like_busiest(found: list[Process], filters: Collection[int], proc: Path) -> Process:
    """A process and its loaders run the same program; what started them another."""
    main = max(found, key=lambda each: (each.ticks, each.pid not in filters, -each.started))
    known = {each.pid: each for each in found}
    program = link(proc / str(main.pid) / "exe")
    while (parent := known.get(main.parent)) is not None:
        if link(proc / str(parent.pid) / "exe") != program:
            break
        main = parent
    return main


def descendants(roots: Collection[int], seen: Scan) -> set[int]:
    """These processes and all that they started, directly or not."""
    found: set[int] = set()
    ahead = [pid for pid in roots if pid in seen.table]
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead += seen.children.get(pid, [])
    return found


def _descriptors(pid: int, proc: Path) -> list[tuple[str, str]]:
    folder = proc / str(pid) / "fd"
    links = [(name, link(folder / name)) for name in _names(folder)[:_MAX_FDS]]
    return [(name, target) for name, target in links if target is not None]


def _writes(pid: int, descriptor: str, proc: Path) -> bool:
    flags = _FLAGS.search(read_text(proc / str(pid) / "fdinfo" / descriptor))
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _is_same(descriptor: Path, path: str) -> bool:
    """The same file under another name, as containers and mounts make them."""
    try:
        return os.path.samestat(os.stat(descriptor), os.stat(path))
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    """What lies in a folder of /proc; nothing where it is another user's, or gone."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def link(path: Path) -> str | None:
    """Where a link in /proc leads; None: another user's, or gone."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def read_text(path: Path, most: int = 16_384) -> str:
    """The first `most` bytes of a file in /proc or /sys; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def open_regular(path: Path) -> int:
    """A descriptor of a regular file, never of what a link leads to. Raises `OSError`.

    Anyone may have put it there; a FIFO must not block us.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file")
