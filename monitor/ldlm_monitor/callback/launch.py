"""Rank, world size and run: from the caller, else PyTorch, else the launcher's variables."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_RUN = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


@dataclass(frozen=True, slots=True)
class Launch:
    """A rank of a run. `attempt` counts torchrun's restarts from 0; `world_size` -1: unknown."""

    run: str
    out: Path
    rank: int
    world_size: int
    local_rank: int
    attempt: int
    host: str

    @classmethod
    def detect(
        cls,
        run: str | None,
        out: str | os.PathLike[str] | None,
        rank: int | None,
        world_size: int | None,
    ) -> Launch:
        """Takes what is not given from the process group, if there is one, then the environment."""
        found_rank, found_world = _process_group()
        name = run or (Path(out).resolve().name if out is not None else _text(_RUN)) or "run"
        candidates = [rank, found_rank, _number(_RANK), 0]
        world = [world_size, found_world, _number(_WORLD), -1]
        number = next(each for each in candidates if each is not None)
        local = _number(_LOCAL)
        return cls(
            run=str(name)[:256],
            out=Path("saved", name) if out is None else Path(out),
            rank=int(number),
            world_size=int(next(each for each in world if each is not None)),
            local_rank=number if local is None else local,
            attempt=_number(("TORCHELASTIC_RESTART_COUNT",)) or 0,
            host=socket.gethostname(),
        )


def start_ticks() -> int:
    """When this process began, in clock ticks after boot: with the pid it names one process."""
    try:
        text = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def pid_namespace() -> int:
    """The inode of the namespace in which our pid means us; 0 where there is none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _process_group() -> tuple[int | None, int | None]:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None, None
    return distributed.get_rank(), distributed.get_world_size()


def _number(names: tuple[str, ...]) -> int | None:
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


def _text(names: tuple[str, ...]) -> str | None:
    found = (os.environ.get(name) for name in names)
    return next((text for text in found if text not in (None, "", "none")), None)
