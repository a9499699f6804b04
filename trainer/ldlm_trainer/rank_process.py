"""This process among the others: its place, its device, and what all ranks do together."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

# DDP imports this when it is first made. Its functions have the process group of that moment as a
# default, which would keep gloo's threads beyond `destroy_process_group`; a thread that asks for
# Python's lock while the interpreter ends aborts the process (torch 2.13). So: before any group.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ldlm_trainer.errors import TrainerError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket

    from ldlm_trainer.config import Ddp, Run

_EXACT_STEPS = 10
"""Steps before PowerSGD begins: DDP orders its buckets anew in the first ones, and the hook needs
the final order. torch's own default is 1,000, for long trainings."""
_LEAST_NORM = 1e-8
"""Added to norms that PowerSGD divides by, as torch advises: gradients of zero became NaN."""


@dataclass(frozen=True, slots=True)
class Process:
    """One rank. `attempt` counts the restarts by torchrun."""

    rank: int
    world: int
    local_rank: int
    device: torch.device
    attempt: int = 0

    def total(self, vector: Tensor) -> Tensor:
        """The sum over all ranks."""
        if self.world > 1:
            dist.all_reduce(vector)
        return vector

    def from_all(self, value: object) -> list[object]:
        """What each rank gives, in their order. Slow: not for every step."""
        if self.world == 1:
            return [value]
        values: list[object] = [None] * self.world
        dist.all_gather_object(values, value)
        return values


@contextmanager
def joined(settings: Run) -> Iterator[Process]:
    """Join the other ranks that torchrun started; alone where it started none.

    The backend is NCCL on GPUs and gloo elsewhere. Waiting for the others may take
    `init_timeout` seconds, in the first step too.
    """
    device = _device(settings.device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    process = Process(
        rank=int(os.environ.get("RANK", "0")),
        world=world,
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        device=device,
        attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
    )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world == 1:
        yield process
        return
    patience = timedelta(seconds=settings.init_timeout)
    store, _, _ = next(rendezvous("env://", timeout=patience))
    # A restart by torchrun may meet in the store of the attempt before, where the
    # addresses of dead ranks still stand.
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore(f"attempt_{process.attempt}", store),
        rank=process.rank,
        world_size=world,
        timeout=patience,
        device_id=device if device.type == "cuda" else None,
    )
    yield process
    # Not after an error: other ranks may never answer, and torchrun ends this one anyway.
    dist.destroy_process_group()


def _device(wanted: str) -> torch.device:
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise TrainerError(
            f"local rank {local_rank} has no GPU, there are {count}",
            where="NPROC_PER_NODE",
            remedy="start fewer processes, or set run.device=cpu",
        )
    return torch.device("cuda", local_rank)


def expect_prompt_steps(settings: Run, process: Process) -> None:
    """From now on a collective may take `step_timeout` seconds: start-up is over."""
    group = dist.group.WORLD
    if process.world > 1 and group is not None:
        group.set_timeout(timedelta(seconds=settings.step_timeout))


def sharded(model: nn.Module, settings: Ddp, process: Process) -> None:
    """Leave each rank its part of the model, if that is wanted: block by block, then the rest.

    Before the optimizer is made, because the parameters become others.
    """
    if settings.shard and process.world > 1:
        for block in getattr(model.backbone, "blocks", ()):
            fully_shard(block)
        fully_shard(model)


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which each rank has a part (DTensor), put together; others as they are."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def in_parallel(model: nn.Module, settings: Ddp, process: Process) -> nn.Module:
    """The model with gradients that are averaged over all ranks."""
    if process.world == 1 or isinstance(model, FSDPModule):
        return model
    # torch 2.13 calls it forward_sync_buffers, and warns of the old name.
    names = inspect.signature(DistributedDataParallel).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
    options: dict[str, Any] = {buffers: settings.sync_buffers}
    parallel = DistributedDataParallel(
        model,
        device_ids=[process.device] if process.device.type == "cuda" else None,
        find_unused_parameters=settings.find_unused_parameters,
        static_graph=settings.static_graph,
        gradient_as_bucket_view=settings.gradient_as_bucket_view,
        **options,
    )
    _compress(parallel, settings)
    return parallel


def _compress(model: DistributedDataParallel, settings: Ddp) -> None:
    """Let gradients travel smaller; what PowerSGD left out of them is not kept over a restart."""
    match settings.compression:
        case "fp16":
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        case "bf16":
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        case "powersgd":
            state = powerSGD_hook.PowerSGDState(
                None, matrix_approximation_rank=settings.powersgd_rank,
                start_powerSGD_iter=_EXACT_STEPS, orthogonalization_epsilon=_LEAST_NORM,
            )  # fmt: skip
            # DDP compares annotations with its types; here they are text, a lambda has none.
            model.register_comm_hook(
                state,
                lambda state, bucket: _power_sgd(state, bucket),  # noqa: PLW0108
            )
            model.kept = state  # type: ignore[assignment] # for `forget_gradients`


def _power_sgd(
    state: powerSGD_hook.PowerSGDState, bucket: GradBucket
) -> torch.futures.Future[Tensor]:
    """PowerSGD, over gloo one bucket after the other.

    The hook starts the second and third collective of a bucket where the one before ends. Over
    gloo that is in its threads, at another time on each rank, so those of two buckets would come
    in different orders and meet each other. NCCL's are enqueued at once, in the order of buckets.
    """
    averaged = powerSGD_hook.powerSGD_hook(state, bucket)
    if bucket.buffer().is_cpu:
        averaged.wait()
    return averaged


def forget_gradients(model: nn.Module) -> None:
    """Forget what PowerSGD keeps of earlier gradients, after one that was not finite.

    It is added to the next one, so each would be NaN for ever. Every rank does it at the same step.
    """
    state = getattr(model, "kept", None)
    if isinstance(state, powerSGD_hook.PowerSGDState):
        for kept in (state.error_dict, state.p_memory_dict, state.q_memory_dict):
            kept.clear()


@contextmanager
def stopped_by(*numbers: signal.Signals) -> Iterator[Event]:
    """An event that these signals set, instead of ending the process."""
    asked = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def freeze_unused(model: nn.Module, loss: Tensor, process: Process) -> list[str]:
    """Freeze every parameter that `loss` gives no gradient; their names.

    DDP waits for the gradient of every parameter that is not frozen when it wraps the
    model, so this comes before. Raises RuntimeError where ranks disagree: they would
    wait for each other for ever.
    """
    loss.backward()
    unused = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if any(names != unused for names in process.from_all(unused)):
        raise RuntimeError("ranks disagree which parameters the mode trains")
    for name in unused:
        model.get_parameter(name).requires_grad_(False)
    model.zero_grad(set_to_none=True)
    return unused
