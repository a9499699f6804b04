"""What would go wrong later, said before anything starts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from ldlm_trainer import faults
from ldlm_trainer.data import Plan
from ldlm_trainer.errors import TrainerError
from ldlm_trainer.shards import open_split

if TYPE_CHECKING:
    from ldlm_trainer.config import Config

DAY = 86_400.0
LEAST_FREE = 1 << 30
_GIT_SECONDS = 10.0
"""More than a status takes on a disk that answers; nothing waits longer for advice."""
OFF = frozenset({"0", "n", "no", "f", "false", "off"})


def warnings_of(environment: Mapping[str, str]) -> Iterator[str]:
    """Settings of NCCL and torch that do not do what they seem to.

    From torch's ProcessGroupNCCL.hpp and the seeds' launch script.
    """
    get = environment.get
    if "NCCL_TIMEOUT" in environment:
        yield "NCCL_TIMEOUT is read by nobody: set run.step_timeout"
    for name in ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"):
        if get(name, "0").lower() not in OFF:
            yield f"{name}={get(name)} switches the handling of asynchronous errors off: unset it"
    for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"):
        if get(name) == "0":
            yield f"{name}=0: a collective that failed is waited for; unset it"
    monitored = get("TORCH_NCCL_ENABLE_MONITORING", "1").lower() not in OFF
    if not monitored:
        yield "TORCH_NCCL_ENABLE_MONITORING=0: a stuck watchdog of NCCL is not noticed; unset it"
    beat = get("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "0")
    if beat.isdigit() and int(beat) > DAY:
        days = int(beat) / DAY
        yield f"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC={beat} is {days:.0f} days; unset it (480 s)"


def uncommitted() -> Iterator[str]:
    """A line where the work tree differs from its commit: the run could not be repeated."""
    try:
        done = subprocess.run(
            ("git", "status", "--porcelain"), capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    changed = len(done.stdout.splitlines())
    if done.returncode == 0 and changed:
        files = "1 file" if changed == 1 else f"{changed:,} files"
        yield (
            f"{files} of this folder's git repository not committed: "
            "commit, so that the run can be repeated"
        )


def sends_bf16() -> bool:
    """Whether this torch lets gradients travel in bf16: its hook asks how torch was built."""
    return bool(torch.version.cuda or torch.version.hip) and torch.distributed.is_nccl_available()


def check(settings: Config, *, nodes: int, processes: int) -> Iterator[str]:
    """Lines to print; raises `TrainerError` for what cannot work."""
    world = nodes * processes
    faults.parse(settings.run.faults)
    for first, size, count in settings.stages(world):
        yield (
            f"from step {first}: {count} micro-batches of {size} on each of "
            f"{world} ranks, {count * size * world} samples a step"
        )
    for split in ("train", "validation"):
        samples = open_split(settings.data.folder, settings.data.format, split)
        yield f"{split}: {len(samples.lengths)} samples of {settings.data.folder}"
        if split == "train":
            Plan(settings, samples.lengths, samples.shape.length, world)
    gpus = torch.cuda.device_count()
    if settings.run.device != "cpu" and 0 < gpus < processes:
        raise TrainerError(
            f"{processes} processes for {gpus} GPUs",
            where="NPROC_PER_NODE",
            remedy=f"set it to {gpus}, or run.device=cpu",
        )
    if settings.ddp.compression == "bf16" and world > 1 and not sends_bf16():
        raise TrainerError(
            "this torch is built without CUDA and NCCL, and sends no gradients in bf16",
            where="ddp.compression",
            remedy="take fp16 or powersgd",
        )
    yield f"torch {torch.__version__}, {gpus} GPUs"
    settings.run.save_dir.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(settings.run.save_dir).free
    yield f"{free / 2**30:.1f} GiB free for {settings.folder}"
    if free < LEAST_FREE:
        yield "WARNING: less than 1 GiB is free for checkpoints"
    if settings.model.backend == "mmdit" and find_spec("mmdit") is None:
        raise TrainerError(
            "the package mmdit is not installed",
            where="model.backend",
            remedy="pip install 'ldlm-monitor[mmdit]', or take model.backend=own",
        )
    yield from (f"WARNING: {text}" for text in (*warnings_of(os.environ), *uncommitted()))
