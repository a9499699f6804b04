"""A training of two ranks on gloo, with the callback; rank 1 fails as the first argument says.

It takes up to 2,000 steps, and fails in the step after the file `strike` is there.
"""

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from ldlm_callback import HealthCallback

FAULT, RANK = sys.argv[1], int(os.environ["RANK"])
STRIKE = Path("strike")
WIDTH, BATCH = 8, 4


class Noise(Dataset[torch.Tensor]):
    """Rows for 2,000 steps, 20 a second; in a faulty loader, a row that never comes."""

    def __len__(self) -> int:
        return 2_000 * BATCH

    def __getitem__(self, at: int) -> torch.Tensor:
        if FAULT == "loader" and RANK == 1 and STRIKE.exists():
            time.sleep(7200)
        time.sleep(0.05 / BATCH)
        return torch.randn(WIDTH)


class Sleeper(torch.autograd.Function):
    """A backward that never ends."""

    @staticmethod
    def forward(_: Any, loss: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        time.sleep(3600)
        return gradient


def hold_the_gil() -> None:
    """Wait for a lock that this thread holds itself, in C."""
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


def fail(batch: torch.Tensor) -> torch.Tensor:
    """What the fault does before the forward of its step; the batch to go on with."""
    if FAULT == "kill":
        os.kill(os.getpid(), 9)
    if FAULT == "raise":
        raise TypeError("forward() takes 2 positional arguments but 3 were given")
    if FAULT == "gil":
        hold_the_gil()
    return batch * float("nan") if FAULT == "nan" else batch


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(RANK)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with HealthCallback(run="pair", out="saved/pair", gpu=False) as health:
        for step, rows in enumerate(DataLoader(Noise(), batch_size=BATCH, num_workers=1)):
            batch, strikes = rows, RANK == 1 and STRIKE.exists()
            if strikes:
                batch = fail(batch)
            loss = model(batch).pow(2).mean()
            if strikes and FAULT == "backward":
                loss = Sleeper.apply(loss)  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            # NaN in both would be two alerts: in one message, whose first line counts them.
            shown = None if FAULT == "nan" else norm
            health.on_step(step, loss=loss, grad_norm=shown, lr=0.01)
            if strikes and FAULT == "nan":
                time.sleep(1800)  # or the other rank's next loss is NaN, too, maybe read before
            if RANK == 0:
                print(f"step {step}/2000 loss {loss.item():.4f} lr 0.01", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
