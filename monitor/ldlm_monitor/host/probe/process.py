"""Finds the processes of a training on this host, and reads their state from /proc (proc(5)).

Processes are found by open files, never by name: the writers of the followed log, the writers of
the pipe that such a writer (`tee`) reads, and all their descendants.
"""

import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_callback.rank import RANK_VARIABLES

PROC = Path("/proc")  # proc(5)
TICKS = os.sysconf("SC_CLK_TCK")  # the kernel's units of CPU time and of start times, per second
_MAX_FDS = 4096  # read of one process; trainers with thousands of loaders' pipes stay below
_MAX_ENVIRONMENT = 262_144  # bytes: twice the 128 KiB that Linux permits in one variable
_MAX_TABLE = 4_000_000
"""Bytes read of /proc/stat and /proc/net/tcp: about 27,000 sockets of 150 bytes each."""
_MAX_TEXT = 16_000  # bytes read of other files in /proc and /sys, which have a few KiB at most
_OUTPUTS = ("1", "2")  # descriptors of standard output and error
_HOPS = 4  # pipes between the training and its log. `train | sed | tee` has two; more are rare
_STATUS_FIELD = 49  # index of exit_code in /proc/PID/stat after the name (proc(5), field 52)
_LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp (Linux, include/net/tcp_states.h)
_BOOTED = re.compile(r"^btime (\d{1,19})$", re.MULTILINE)  # of /proc/stat, Unix seconds
_PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes, the unit of /proc/PID/statm
_FLAGS = re.compile(r"^flags:\s*([0-7]+)", re.MULTILINE)  # of fdinfo: those of open(2), octal


@dataclass(frozen=True, slots=True)
class Process:
    """A process at the time it was read.

    `started` (ticks after boot) distinguishes it from a later process with its pid. `state`: the
    kernel's letter. `ticks`: CPU time used, in 1/TICKS seconds. `status`: a zombie's wait status
    (signal in the low seven bits, exit code from bit 8), None for living processes.
    """

    pid: int
    parent: int
    started: int
    state: str
    ticks: int
    status: int | None = None


@dataclass(slots=True)
class Family:
    """The processes of a training, `members` by pid; `ranks` are the main ones by global rank.

    A training without ranks has one main process under None: the one with most CPU time.
    `openers`: pids with starts of processes that only opened a log for a descendant which writes
    it. They are no members, and may keep it open when the writer has gone.
    """

    members: dict[int, Process] = field(default_factory=dict)
    ranks: dict[int | None, Process] = field(default_factory=dict)
    openers: frozenset[tuple[int, int]] = frozenset()


@dataclass(slots=True)
class Scan:
    """The processes of a host at one time: `table` by pid, `children` by their parent's pid.

    `openers`: base name of a file to (pid, descriptor, full name) of each process that has it
    open. `pipes`: pipe to (pid, descriptor) of its holders, except as standard input. `inputs`:
    pid to the pipe that is its standard input. `booted_at`: Unix seconds, 0 if unknown.
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
    """The present state of a process; None if there is none of this pid."""
    text = read_text(proc / str(pid) / "stat")
    _, bracket, rest = text.rpartition(")")
    fields = rest.split()
    if not bracket or len(fields) <= _STATUS_FIELD:
        return None
    state = fields[0]
    return Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),  # proc(5)'s field 22: it counts from 1, pid and name are cut off
        state=state,
        ticks=int(fields[11]) + int(fields[12]),  # utime and stime
        status=int(fields[_STATUS_FIELD]) if state in "ZX" else None,
    )


def waits_in(pid: int, proc: Path = PROC) -> str | None:
    """The kernel function in which a process sleeps; None if it does not, or is not readable."""
    symbol = read_text(proc / str(pid) / "wchan").strip()
    return symbol if symbol not in ("", "0") else None


def resident(pid: int, proc: Path = PROC) -> int:
    """Bytes of a process in memory, those that it shares included; 0 if it is gone."""
    fields = read_text(proc / str(pid) / "statm").split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def environment(pid: int, names: Collection[str], proc: Path = PROC) -> dict[str, str]:
    """The variables `names` of a process' environment at its start."""
    text = read_text(proc / str(pid) / "environ", _MAX_ENVIRONMENT)
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in pairs if name in names}


def pids(proc: Path = PROC) -> list[int]:
    """The pid of every process of this host; empty on a system without /proc."""
    return [int(name) for name in names(proc) if name.isdecimal()]


def among(pids: Iterable[int], proc: Path = PROC) -> Scan:
    """Those of the processes `pids` that live, without children and open files."""
    seen = Scan(proc, {pid: found for pid in pids if (found := look(pid, proc)) is not None})
    if booted := _BOOTED.search(read_text(proc / "stat", _MAX_TABLE)):
        seen.booted_at = float(booted[1])
    return seen


def scan(proc: Path = PROC) -> Scan:
    """Every process of this host except this one, with its open files as far as readable."""
    seen = among(pids(proc), proc)
    seen.table.pop(os.getpid(), None)
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
    logs: Collection[str],
    named: Mapping[int | None, int] | None = None,
    seen: Scan | None = None,
    openers: Collection[tuple[int, int]] = (),
) -> Family:
    """The processes that write `logs` (real paths), those of `named` (by rank), and descendants.

    `openers`: those of earlier looks.
    """
    seen = seen or scan()
    writers, filters, opened = _writers(logs, seen, openers)
    found = writers | ({*(named or {}).values()} & seen.table.keys())
    members = {pid: seen.table[pid] for pid in descendants(found, seen)}
    ranks = {rank: members[pid] for rank, pid in (named or {}).items() if pid in members}
    return Family(members, ranks or _main_processes(members, filters, seen.proc), opened)


def listens(pids: Collection[int], port: int, proc: Path = PROC) -> bool:
    """Whether one of `pids` listens on a TCP port; if unreadable, whether any process does."""
    sockets = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in read_text(proc / table, _MAX_TABLE).splitlines()[1:]:
            fields = line.split()
            local = fields[1].rpartition(":")[2] if len(fields) > 9 else ""  # 9: the inode
            if local and int(local, 16) == port and fields[3] == _LISTENING:
                sockets.add(f"socket:[{fields[9]}]")
    held = [target for pid in pids for _, target in _descriptors(pid, proc)]
    return bool(sockets) and (not held or any(target in sockets for target in held))


def _writers(
    logs: Collection[str], seen: Scan, openers: Collection[tuple[int, int]]
) -> tuple[set[int], set[int], frozenset[tuple[int, int]]]:
    """The processes that write the logs, also through pipes; the filters between (`tee`); and who
    only opened a log, of `openers` those that live.
    """
    proc = seen.proc
    found: set[int] = set()
    printing: set[int] = set()  # a log is their output
    filters: set[int] = set()
    for path in logs:
        for pid, descriptor, target in seen.openers.get(os.path.basename(path), ()):
            same = target == path or _is_same(proc / str(pid) / "fd" / descriptor, path)
            if same and _writes(pid, descriptor, proc):
                found.add(pid)
                printing |= {pid} if descriptor in _OUTPUTS else set()
    opened = {
        pid
        for pid in found - printing
        if (pid, seen.table[pid].started) in openers or printing & descendants([pid], seen)
    }
    found -= opened
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
    return found, filters, frozenset((pid, seen.table[pid].started) for pid in opened)


def _is_filter(pid: int, proc: Path) -> bool:
    """Whether a process waits for its standard input, as `tee` does; True if unknown."""
    call = read_text(proc / str(pid) / "syscall").split()
    if len(call) > 1 and call[0].isdecimal() and int(call[1], 16) != 0:
        return False
    place = waits_in(pid, proc)
    return place is None or "pipe" in place


def _main_processes(
    members: Mapping[int, Process], filters: Collection[int], proc: Path
) -> dict[int | None, Process]:
    """Rank (None without one) to its busiest process, rather than a shell that waits for it."""
    environments = {pid: environment(pid, RANK_VARIABLES, proc) for pid in members}
    ranks: dict[int | None, list[Process]] = {}
    for name in RANK_VARIABLES:
        for pid, variables in environments.items():
            if variables.get(name, "").isdecimal():
                ranks.setdefault(int(variables[name]), []).append(members[pid])
        if ranks:  # a Slurm script has Slurm's rank, but torchrun's processes in it have RANK
            break
    else:
        ranks = {None: [*members.values()]} if members else {}
    return {rank: _eldest_like_busiest(found, filters, proc) for rank, found in ranks.items()}


def _eldest_like_busiest(found: list[Process], filters: Collection[int], proc: Path) -> Process:
    """The busiest process' eldest ancestor of the same program: its loaders are children."""
    main = max(found, key=lambda each: (each.ticks, each.pid not in filters, -each.started))
    known = {each.pid: each for each in found}
    program = link(proc / str(main.pid) / "exe")
    while (parent := known.get(main.parent)) is not None:
        if link(proc / str(parent.pid) / "exe") != program:
            break
        main = parent
    return main


def descendants(roots: Collection[int], seen: Scan) -> set[int]:
    """The pids of `roots` that are in `seen`, and of all their descendants."""
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
    links = [(name, link(folder / name)) for name in names(folder)[:_MAX_FDS]]
    return [(name, target) for name, target in links if target is not None]


def _writes(pid: int, descriptor: str, proc: Path) -> bool:
    flags = _FLAGS.search(read_text(proc / str(pid) / "fdinfo" / descriptor))
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _is_same(descriptor: Path, path: str) -> bool:
    """Whether both are the same file, also under other names, as in containers and mounts."""
    try:
        return os.path.samestat(os.stat(descriptor), os.stat(path))
    except OSError:
        return False


def names(folder: Path) -> list[str]:
    """The names in a folder; none if it is another user's, or was removed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def link(path: Path) -> str | None:
    """The target of a link in /proc; None if it is another user's, is no link, or was removed."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def read_text(path: Path, most: int = _MAX_TEXT) -> str:
    """The first `most` bytes of a file in /proc or /sys, as text; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def open_regular(path: Path) -> int:
    """A descriptor of a regular file. Raises `OSError` for other files and for symbolic links.

    Anyone may have made the file: a link may lead to a secret, and a FIFO would block.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file")
