"""A training of two ranks on gloo, with checkpoints, that fails as its first argument says.

Attempts after the first resume from the newest checkpoint, or where `LDLM_RESUME_STEP` says, and
leave the batches of `LDLM_SKIP_STEPS` out.
"""

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAULT, AT, STEPS, PACE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
RANK, ATTEMPT = int(os.environ["RANK"]), int(os.environ["LDLM_ATTEMPT"])
FOLDER = Path(sys.argv[5] if len(sys.argv) > 5 else ".")


class Sleeper(torch.autograd.Function):
    """A backward that never ends."""

    @staticmethod
    def forward(_: Any, loss: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        time.sleep(3600)
        return gradient


def evaluate(seconds: float) -> None:
    """Compute for so long without a word, on rank 0; the others wait in the next step."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        torch.randn(200, 200) @ torch.randn(200, 200)


def fail(loss: torch.Tensor) -> torch.Tensor:
    """What the fault does in the step where it comes, on rank 1."""
    if FAULT == "hang":
        return Sleeper.apply(loss)  # type: ignore[no-any-return,no-untyped-call]
    if FAULT == "kill":
        os.kill(os.getpid(), 9)
    if FAULT == "timeout":  # the reduction that the other rank waits in has a deadline of 3 s
        time.sleep(20)
    if FAULT == "deadline":
        subprocess.run(["sleep", "60"], timeout=0.02, check=True)
    if FAULT == "raise":
        raise TypeError("forward() takes 2 positional arguments but 3 were given")
    return loss


def save(model: nn.Module, step: int) -> None:
    print(f"Saving checkpoint at iteration {step}", flush=True)
    torch.save(model.state_dict(), FOLDER / f"step_{step}.pt")
    print(f"successfully saved checkpoint at iteration {step}", flush=True)


is_short = FAULT == "timeout" and ATTEMPT == 1  # a later one may start slowly
dist.init_process_group("gloo", timeout=timedelta(seconds=3 if is_short else 1800))
torch.manual_seed(RANK)
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Linear(8, 4096 if FAULT == "disk" else 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
first, skipped = 1, range(0)
saved = [int(path.stem[5:]) for path in FOLDER.glob("step_*.pt")]
if ATTEMPT > 1 and saved:
    resumed = int(os.environ.get("LDLM_RESUME_STEP", max(saved)))
    model.module.load_state_dict(torch.load(FOLDER / f"step_{resumed}.pt"))
    first = resumed + 1
if part := os.environ.get("LDLM_SKIP_STEPS"):
    begin, end = map(int, part.split("-"))
    skipped = range(begin, end + 1)
for step in range(first, STEPS + 1):
    if step in skipped:
        continue
    began = time.monotonic()
    batch = torch.randn(16, 8)
    if FAULT == "nan" and step == AT:
        batch *= float("nan")
    loss = model(batch).pow(2).mean()
    if step == AT and ATTEMPT == 1 and RANK == 1:
        loss = fail(loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if RANK == 0:
        with Path("times.txt").open("a", encoding="utf-8") as times:
            print(ATTEMPT, step, time.time(), file=times)
        print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
        if step % 5 == 0:
            save(model.module, step)
        if FAULT == "evaluation" and step % AT == 0:
            evaluate(40.0)
    time.sleep(max(0.0, PACE - (time.monotonic() - began)))
dist.destroy_process_group()
