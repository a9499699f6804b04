"""A training of four CPU ranks in which one fails as FAULT says: the logs beside it are of this.

With torch 2.13 and OMP_NUM_THREADS=1 PYTHONFAULTHANDLER=1, paths shortened afterwards:

    FAULT=raise torchrun --nproc-per-node 4 --tee 3 job.py > raise.log 2>&1

`shape` with TORCH_DISTRIBUTED_DEBUG=DETAIL; `*_plain` without --tee; `nodes_*` as two agents,
`--nnodes 2 --node-rank {0,1} --nproc-per-node 2 --rdzv-backend static`; `*_record` with
RECORD=1 LOGLEVEL=INFO. `segv_all`: DDP and DETAIL together crash torch 2.13 on every rank.
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel


def strike(fault: str, rank: int) -> None:
    """What happens to this rank at step 12."""
    match fault, rank:
        case ("raise", 1) | ("nodes_raise", 3):
            raise ValueError("bad batch at step 12")
        case ("kill", 1) | ("nodes_kill", 3):
            os.kill(os.getpid(), signal.SIGKILL)
        case ("segv", 2):
            os.kill(os.getpid(), signal.SIGSEGV)
        case ("hang", 2):
            time.sleep(600)
        case ("exit", 1):
            sys.exit(3)


def main() -> None:
    fault = os.environ["FAULT"]
    dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    rank = dist.get_rank()
    width = 3 if (fault, rank) == ("params", 0) else 2
    model: nn.Module = nn.Linear(2, width)
    if fault not in ("shape", "exit"):
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 40):
        if step == 12:
            strike(fault, rank)
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).square().sum()
        loss.backward()
        dist.all_reduce(torch.ones(5 if (fault, rank, step) == ("shape", 0, 12) else 4))
        optimizer.step()
        if rank == 0 or os.environ.get("ALL_PRINT"):
            print(f"step {step} loss {loss.item():.4f} lr 0.1", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    if os.environ.get("RECORD"):
        record(main)()
    else:
        main()
