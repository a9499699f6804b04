"""A rank's identity, and the heartbeat page with its position, readable also after `kill -9`.

The page is a file of 4 KiB. The loop writes into it at each step and phase, by a system call: what
the kernel has then stays readable when the process is killed, or hangs in a library that holds the
interpreter's lock. No memory is mapped, because who empties a mapped file ends the process. All
numbers are little-endian, like the processors that train. The page contains `IDENTITY`, of which
`heeds_stop` alone changes after the start, and at byte 1024 `BEAT`.

`BEAT` begins and ends with a sequence number (u64), which its only writer counts up where it
writes the whole of it; of a step in the same phase it writes number and time alone. It is copied
from front to back, so a reader that finds two different numbers, or none, has read during a write,
and reads again. A page that is the same in two reads was stable. The monitor's
`probe/heartbeat.py` reads the page.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from ldlm_callback.rows import whole

SIZE = 4096  # bytes: a block of most disks
MAGIC = b"ldlmhb02"  # the last digits count layouts of the page
BEAT_AT = 1024  # bytes: far behind `IDENTITY`, which may grow
IDENTITY = struct.Struct("<8sIIQQi64s64s108sI")  # magic, then the fields of `Identity`
BEAT = struct.Struct("<Qqdd32s16sQ")  # sequence, the fields of `Beat`, sequence
STEP_AT = BEAT_AT + 8  # bytes: of the step and the time behind it
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "ramfs", "overlay", "f2fs"})
"""File systems where writing into a page that is there changes this host's memory, and waits for
nothing; those that copy on write (btrfs, zfs) and those of a network are left out."""
SLOW_SECONDS = 0.25
"""Seconds of a write after which the loop leaves the next ones to the thread, until the thread's
are faster. A choice: a busy processor takes less, a disk that hangs more."""
_TRIES = 100
"""Most writes of the thread until none of the loop's came between. A choice: one is usual."""
# Variables of torchrun, Slurm, Open MPI and MPICH for a rank, the number of ranks, the rank on its
# host, and the run; the first that is set counts.
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_RUN = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


@dataclass(frozen=True, slots=True)
class Launch:
    """A rank of a run. `out`: its folder. `attempt`: earlier restarts. `world_size` -1: unknown.

    `launch`: what `ldlm-monitor run` calls this launch, which is the name of its log; None: it
    did not start it.
    `mesh`: its coordinate in each dimension of parallelism, as `{"dp": 0, "pp": 3}`.
    """

    run: str
    out: Path
    rank: int
    world_size: int
    local_rank: int
    attempt: int
    host: str
    mesh: Mapping[str, int]
    launch: str | None = None

    @classmethod
    def detect(
        cls,
        run: str | None,
        out: str | os.PathLike[str] | None,
        rank: int | None,
        world_size: int | None,
        mesh: Any = None,
    ) -> Launch:
        """Take missing values from the process group if there is one, or from the environment."""
        found_rank, found_world = _process_group()
        name = run or (Path(out).resolve().name if out is not None else _text(_RUN)) or "run"
        number = _first(rank, found_rank, _number(RANK_VARIABLES), 0)
        return cls(
            run=str(name)[:256],  # characters: longer ones fill rows and screens
            out=Path("saved", name) if out is None else Path(out),
            rank=number,
            world_size=_first(world_size, found_world, _number(_WORLD), -1),
            local_rank=_first(_number(_LOCAL_RANK), number),
            attempt=_first(_number(("TORCHELASTIC_RESTART_COUNT",)), 0),
            host=socket.gethostname(),
            mesh=_coordinates(mesh),
            launch=os.environ.get("LDLM_RUN"),
        )


@dataclass(slots=True)
class Beat:
    """A rank's position, in Unix seconds. `step` -1: none. `status`: running, finished, failed."""

    step: int = -1
    time: float = 0.0
    phase_since: float = 0.0
    phase: bytes = b"init"
    status: bytes = b"running"


class Identity(NamedTuple):
    """The process that writes the page.

    `stack_signal`: 0 for none. `started`: clock ticks after boot, field 22 of /proc/PID/stat.
    `pid_namespace`: its inode. Both are 0 if unknown. `stack_file`: the name of a file beside the
    page. `recorder_socket`: the path of the flight recorder's socket. Both are empty for none.
    `heeds_stop`: 1 once the loop stops where the monitor asks it to (`stop_request`), else 0.
    """

    pid: int
    stack_signal: int
    started: int
    pid_namespace: int
    rank: int
    host: bytes
    stack_file: bytes
    recorder_socket: bytes
    heeds_stop: int = 0

    @classmethod
    def of(cls, launch: Launch, stack_signal: int, stack_file: str, recorder: str) -> Identity:
        """The identity of the current process."""
        return cls(
            pid=os.getpid(),
            stack_signal=stack_signal,
            started=start_ticks(),
            pid_namespace=pid_namespace(),
            rank=launch.rank,
            host=launch.host.encode()[:64],  # bytes: Linux's limit of host names
            stack_file=stack_file.encode() if stack_signal else b"",
            recorder_socket=recorder.encode(),
        )


class HeartbeatPage:
    """The page of one rank. Raises `OSError` where the file cannot be made.

    The loop calls `beat`, the writer's thread `sync`. `is_direct`: the loop writes its beats
    itself, which is so where that waits for nothing; otherwise `sync` does.
    """

    def __init__(self, path: Path, identity: Identity) -> None:
        self._path = path
        self._page = bytearray(IDENTITY.pack(MAGIC, *identity).ljust(SIZE, b"\0"))
        self._block = memoryview(self._page)[BEAT_AT : BEAT_AT + BEAT.size]
        self._two = memoryview(self._page)[STEP_AT : STEP_AT + 16]
        self._numbers, self._times = self._two.cast("q"), self._two.cast("d")
        self._beats = self._stores = 0
        self._fd = self._new_file()
        self._is_local = _is_local(self._fd)
        self.is_direct = self._may_be_direct()

    def beat(self, beat: Beat) -> None:
        """Store the rank's position. Called by the loop's thread alone; raises nothing."""
        self._beats = number = self._beats + 1
        position = (beat.step, beat.time, beat.phase_since, beat.phase, beat.status)
        BEAT.pack_into(self._page, BEAT_AT, number, *position, number)
        self._store(self._block, BEAT_AT)

    def step(self, number: int, time: float) -> None:
        """Store a step in the same phase: two numbers, as packing all costs as much as writing.

        A reader between the two has the step with the time of the one before: accepted.
        """
        self._numbers[0], self._times[1] = number, time
        self._store(self._two, STEP_AT)

    def _store(self, part: memoryview, at: int) -> None:
        self._stores += 1
        if self.is_direct:
            began = monotonic()
            try:
                os.pwrite(self._fd, part, at)
            except OSError:
                self.is_direct = False
            if monotonic() - began > SLOW_SECONDS:
                self.is_direct = False

    def heed_stop(self) -> None:
        """Have the next `sync` write that the loop stops where the monitor asks it to."""
        struct.pack_into("<I", self._page, IDENTITY.size - 4, 1)

    def sync(self) -> None:
        """Make the file whole where somebody cut or removed it, and write what the loop did not.

        It may block, so the loop does not call it. Raises `OSError`.
        """
        if self._is_damaged():
            self.is_direct = False
            fd = self._new_file()
            os.dup2(fd, self._fd, inheritable=False)  # the loop may be writing to this number
            os.close(fd)
        if self.is_direct:
            return
        for _ in range(_TRIES):
            self.is_direct, number, began = False, self._stores, monotonic()
            os.pwrite(self._fd, bytes(self._page), 0)
            self.is_direct = monotonic() - began < SLOW_SECONDS and self._may_be_direct()
            if number == self._stores:  # else this may have come after the loop's newer beat
                return
        self.is_direct = False

    def _may_be_direct(self) -> bool:
        """Whether a write waits for no server, and a limit of file sizes does not end the process.

        Python ignores SIGXFSZ; where the program no longer does, the thread blocks it.
        """
        return self._is_local and signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN

    def _new_file(self) -> int:
        """Put a new file with the page in the place of whatever is there; its descriptor.

        A reader that has the old page open keeps it, and no link is followed.
        """
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            if os.pwrite(fd, bytes(self._page), 0) != SIZE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.replace(temporary, self._path)
        except OSError:
            os.close(fd)
            temporary.unlink(missing_ok=True)
            raise
        return fd

    def _is_damaged(self) -> bool:
        """Whether the path has no longer our page, nor that of a process that came after us."""
        ours = os.fstat(self._fd)
        try:
            there = os.lstat(self._path)
        except FileNotFoundError:
            return True
        if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
            head = os.pread(self._fd, BEAT_AT, 0)
            return ours.st_size != SIZE or head != self._page[:BEAT_AT]
        if not stat.S_ISREG(there.st_mode) or there.st_size != SIZE:
            return True
        fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            head = os.pread(fd, IDENTITY.size, 0)
        finally:
            os.close(fd)
        return not head.startswith(MAGIC) or head == self._page[: IDENTITY.size]


def _is_local(fd: int) -> bool:
    """Whether the file system has its pages in the memory of this host."""
    device = os.fstat(fd).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    kinds = set()
    for line in lines:  # proc(5): ID, parent, major:minor, ..., " - ", type, ...
        left, _, right = line.partition(" - ")
        if left.split()[2:3] == [wanted]:
            kinds.add(right.split()[0])
    return bool(kinds) and kinds <= _LOCAL


def start_ticks() -> int:
    """When this process began, in clock ticks after boot: unlike a pid, not reused. 0: unknown."""
    try:
        text = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])  # field 22 (proc(5)): 19 after the name
    except (OSError, ValueError, IndexError):
        return 0


def pid_namespace() -> int:
    """The inode of the namespace in which our pid is valid; 0 if the system has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _process_group() -> tuple[int | None, int | None]:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None, None
    return distributed.get_rank(), distributed.get_world_size()


def _coordinates(mesh: Any) -> dict[str, int]:
    """Coordinates of a mapping, or of PyTorch's `DeviceMesh`, which has its own at hand."""
    if mesh is not None and not isinstance(mesh, Mapping):
        mesh = dict(zip(mesh.mesh_dim_names or (), mesh.get_coordinate() or (), strict=False))
    read = {str(name): whole(number, -1) for name, number in (mesh or {}).items()}
    return {name: number for name, number in read.items() if number >= 0}


def _first(*candidates: int | None) -> int:
    return int(next(each for each in candidates if each is not None))


def _number(names: tuple[str, ...]) -> int | None:
    found = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in found if text.isdigit()), None)


def _text(names: tuple[str, ...]) -> str | None:
    found = (os.environ.get(name) for name in names)
    return next((text for text in found if text not in (None, "", "none")), None)
