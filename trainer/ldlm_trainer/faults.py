"""Faults on purpose, for tests of what watches a training, and for demonstrations.

    LDLM_FAULTS="nan_loss@40:rank=1,hang@60:rank=1:kind=gil"

Every fault is a real one: a real signal, a real allocation that fails, a real full
device. `rank` (default: all), `for` (steps that it lasts, default 1) and `attempt` (of
torchrun, default 0, so that a restarted run gets through) say where; the rest:

    nan_loss inf_loss       the loss of that rank
    loss_spike:x=20         loss and gradient times x
    grad_explosion:x=1e4    the gradient alone times x
    hang:kind=sleep         or spin, gil (waits in C with the GIL held), or collective
                            (a collective that no other rank calls)
    slow:seconds=0.2        before the forward pass
    loader_stall:seconds=30 before the data are read
    kill segv exit raise    SIGKILL to itself, a bad address, exit code 1, an exception
    oom                     an allocation that no machine can satisfy
    disk_full               checkpoints are written to a full device
    sigterm                 SIGTERM to itself
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import torch
import torch.distributed as dist
from torch import Tensor

from ldlm_trainer.errors import TrainerError

BENT = {"nan_loss": math.nan, "inf_loss": math.inf, "loss_spike": 20.0}
KINDS = frozenset(
    {*BENT, "grad_explosion", "hang", "slow", "loader_stall", "kill", "segv", "exit", "raise"}
    | {"oom", "disk_full", "sigterm"}
)
HANGS = frozenset({"sleep", "spin", "gil", "collective"})
_OPTIONS = frozenset({"rank", "for", "attempt", "x", "kind", "seconds"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, from `step` on for `steps` steps."""

    kind: str
    step: int
    steps: int = 1
    rank: int | None = None
    attempt: int = 0
    options: dict[str, str] = field(default_factory=dict)

    def number(self, name: str, default: float) -> float:
        """An option as a number."""
        return float(self.options.get(name, default))


def parse(text: str) -> list[Fault]:
    """The faults of an `LDLM_FAULTS`; raises `TrainerError`."""
    return [_parse(part.strip()) for part in text.split(",") if part.strip()]


def _parse(text: str) -> Fault:
    head, *pairs = text.split(":")
    kind, at, step = head.partition("@")
    options = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    try:
        if kind not in KINDS or not at or len(options) != len(pairs) or set(options) - _OPTIONS:
            raise ValueError
        if options.get("kind", "sleep") not in HANGS:
            raise ValueError
        rank = options.pop("rank", None)
        fault = Fault(
            kind=kind,
            step=int(step),
            steps=int(options.pop("for", "1")),
            rank=None if rank is None else int(rank),
            attempt=int(options.pop("attempt", "0")),
            options=options,
        )
        fault.number("x", 1), fault.number("seconds", 1)
    except ValueError as error:
        raise TrainerError(
            f"{text!r} is no fault",
            where="LDLM_FAULTS",
            remedy=f"write KIND@STEP:rank=N, KIND one of {', '.join(sorted(KINDS))}",
        ) from error
    return fault


class Faults:
    """The faults of one process, at the places of the loop where they strike."""

    def __init__(self, faults: list[Fault], *, rank: int, attempt: int) -> None:
        self._mine = [f for f in faults if f.rank in (None, rank) and f.attempt == attempt]

    def _at(self, step: int, *kinds: str) -> list[Fault]:
        return [f for f in self._mine if f.kind in kinds and f.step <= step < f.step + f.steps]

    def before_read(self, step: int) -> None:
        """In the loader, before a micro-batch is read."""
        for fault in self._at(step, "loader_stall"):
            time.sleep(fault.number("seconds", 30))

    def before_forward(self, step: int, device: torch.device) -> None:
        """Where most things happen."""
        for fault in self._at(step, "slow"):
            time.sleep(fault.number("seconds", 0.2))
        for fault in self._at(step, "hang"):
            _hang(fault.options.get("kind", "sleep"), device)
        for fault in self._at(step, "kill", "sigterm", "segv", "exit", "raise", "oom"):
            _strike(fault.kind, step, device)

    def bend(self, step: int, loss: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the two sums that are its parts, as a broken batch would have them."""
        for fault in self._at(step, *BENT):
            factor = fault.number("x", BENT[fault.kind])
            loss = loss * factor
            sums = torch.cat((sums[:2] * factor, sums[2:]))
        for fault in self._at(step, "grad_explosion"):
            factor = fault.number("x", 1e4)
            loss = loss * factor - (loss * (factor - 1)).detach()
        return loss, sums

    def opened(self, path: Path) -> BinaryIO:
        """A file of a checkpoint; the step is part of its folder's name."""
        step = int(path.parent.name.rpartition("-")[2])
        if self._at(step, "disk_full"):
            return Path("/dev/full").open("wb")
        return path.open("wb")


def _hang(kind: str, device: torch.device) -> None:
    match kind:
        case "spin":
            while True:
                pass
        case "gil":
            mutex = ctypes.create_string_buffer(64)
            for _ in range(2):  # the second time for ever: no signal ends it
                ctypes.PyDLL(None).pthread_mutex_lock(mutex)
        case "collective":
            dist.all_reduce(torch.zeros(7, device=device))
        case _:
            while True:
                time.sleep(1)


def _strike(kind: str, step: int, device: torch.device) -> None:
    match kind:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sigterm":
            os.kill(os.getpid(), signal.SIGTERM)
        case "segv":
            ctypes.string_at(0)
        case "exit":
            sys.exit(1)
        case "raise":
            raise RuntimeError(f"a fault that was asked for, at step {step}")
        case "oom":
            torch.empty(1 << 50, dtype=torch.uint8, device=device)
