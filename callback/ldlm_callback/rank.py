"""A rank's identity, and the heartbeat page with its position, readable also after `kill -9`.

The page is a file of 4 KiB that is mapped into memory, so that a beat is a store and no system
call. All numbers are little-endian, like the processors that train. The page contains
`IDENTITY`, which is written once at the start, and at byte 1024 `BEAT`, which the loop writes at
each step and phase: of a step its number and time alone.

`BEAT` begins and ends with a sequence number (u64), which its only writer counts up where it
stores the whole of it: it clears it and writes from front to back, so a reader that finds two
different numbers, or none, has read during a store, and reads again. A page that is the same in
two reads was stable, also on processors that make stores visible out of order. The monitor's
`probe/heartbeat.py` reads the page.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ldlm_callback.rows import whole

SIZE = 4096  # bytes, a page of memory: the smallest unit that is mapped
MAGIC = b"ldlmhb02"  # the last digits count layouts of the page
BEAT_AT = 1024  # bytes: far behind `IDENTITY`, which may grow
IDENTITY = struct.Struct("<8sIIQQi64s64s108s")  # magic, then the fields of `Identity`
BEAT = struct.Struct("<Qqdd32s16sQ")  # sequence, the fields of `Beat`, sequence
STEP, TIME = 1, 2  # their indices in `BEAT`, counted in cells of 8 bytes
_SAFE_TO_MAP = frozenset({"ext2", "ext3", "ext4", "xfs", "tmpfs", "ramfs", "overlay", "f2fs"})
"""File systems where an allocated page stays allocated, so that no store to it ends in SIGBUS on a
full disk; those that copy on write (btrfs, zfs) and those of a network are left out."""
# Variables of torchrun, Slurm, Open MPI and MPICH for a rank, the number of ranks, the rank on its
# host, and the run; the first that is set counts.
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_RUN = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


@dataclass(frozen=True, slots=True)
class Launch:
    """A rank of a run. `out`: its folder. `attempt`: earlier restarts. `world_size` -1: unknown.

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
            local_rank=_first(_number(_LOCAL), number),
            attempt=_first(_number(("TORCHELASTIC_RESTART_COUNT",)), 0),
            host=socket.gethostname(),
            mesh=_coordinates(mesh),
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
    """

    pid: int
    stack_signal: int
    started: int
    pid_namespace: int
    rank: int
    host: bytes
    stack_file: bytes
    recorder_socket: bytes

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


class Cells:
    """`BEAT` in a buffer. `whole` and `real`: its cells of 8 bytes, as integers and as floats.

    A step stores `STEP` and `TIME` alone, each in one store: a reader never sees half of one.
    """

    def __init__(self, buffer: bytearray | memoryview) -> None:
        self._block = memoryview(buffer)
        self.whole, self.real = self._block.cast("q"), self._block.cast("d")
        self._beats = 0

    def beat(self, beat: Beat) -> None:
        """Store the rank's whole position. Called by the loop's thread alone."""
        self._beats = number = self._beats + 1
        position = (beat.step, beat.time, beat.phase_since, beat.phase, beat.status)
        BEAT.pack_into(self._block, 0, number, *position, number)


class HeartbeatPage(Cells):
    """The page of one rank. Raises `OSError` where the file cannot be made."""

    def __init__(self, path: Path, identity: Identity) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        self._fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            page = IDENTITY.pack(MAGIC, *identity).ljust(SIZE, b"\0")
            _fill(self._fd, page)
            self.is_mapped = _may_map(self._fd)
            self._page: mmap.mmap | bytearray = (
                mmap.mmap(self._fd, SIZE) if self.is_mapped else bytearray(page)
            )
            super().__init__(memoryview(self._page)[BEAT_AT : BEAT_AT + BEAT.size])
            # A reader that has the old page open keeps it: no mapping is ever truncated.
            os.replace(temporary, path)
        except OSError:
            os.close(self._fd)
            temporary.unlink(missing_ok=True)
            raise

    def sync(self) -> None:
        """Write the page if it is not mapped. It may block, so the loop does not call it."""
        if not self.is_mapped:
            os.pwrite(self._fd, bytes(self._page), 0)


def _fill(fd: int, page: bytes) -> None:
    """Write the page and allocate its block. Raises `OSError`, as on a full disk."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, SIZE)
    if os.pwrite(fd, page, 0) != SIZE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _may_map(fd: int) -> bool:
    """Whether the file system keeps a mapped page coherent, and no store to it can fail."""
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
    return bool(kinds) and kinds <= _SAFE_TO_MAP


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
