"""Defects that a loop can have in many spellings: each is found in eight of them."""

import pytest

from tests.doctor.python_code.code_audits import findings

LOOP = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

{above}
def train(args, cfg, model, loader, accum):
    dist.init_process_group("nccl")
    {make}
    scaler = torch.amp.GradScaler()
    for i, batch in enumerate(loader):
        {step}
        optimizer.zero_grad()
"""
STEP = "model(batch).backward()\n        optimizer.step()"
ADAMW = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)"
HALF = {
    "method": f"model = model.bfloat16()\n    {ADAMW}",
    "to": f"model = model.to(torch.bfloat16)\n    {ADAMW}",
    "device and type": f"model = model.to('cuda', dtype=torch.bfloat16)\n    {ADAMW}",
    "in place": f"model.to(torch.bfloat16)\n    {ADAMW}",
    "half, then wrapped": f"model = model.cuda().half()\n    model = DDP(model)\n    {ADAMW}",
    "a name for it": f"half = torch.bfloat16\n    model = model.to(dtype=half)\n    {ADAMW}",
    "made and cast": f"net = nn.Linear(2, 2).to(torch.bfloat16)\n    model = DDP(net)\n    {ADAMW}",
    "groups": "model = model.bfloat16()\n    groups = [{'params': model.parameters()}]\n"
    "    optimizer = torch.optim.AdamW(groups, lr=1e-4)",
}


def found(check: str, above: str = "", make: str = "pass", step: str = STEP) -> int:
    code = LOOP.format(above=above, make=make, step=step)
    return sum(f.check_id == check for f in findings({"train.py": code}))


@pytest.mark.parametrize("style", HALF)
def test_weights_in_half_precision_under_adamw(style: str) -> None:
    assert found("weights-in-half-precision", make=HALF[style]) == 1


@pytest.mark.parametrize(
    "make",
    [
        f"model = model.to('cuda')\n    {ADAMW}",
        f"vae = vae.to(torch.bfloat16)\n    {ADAMW}",
        "model = model.bfloat16()\n    optimizer = Master(model.parameters())",
    ],
)
def test_weights_in_full_precision(make: str) -> None:
    assert found("weights-in-half-precision", make=make) == 0


MAKE = f"model = DDP(model)\n    {ADAMW}"
BACKWARD = "\n        loss.backward()\n        optimizer.step()"
BYPASSES = {
    "called": "loss = model.module(batch)",
    "forward": "loss = model.module.forward(batch)",
    "with a loss": "loss = nn.functional.mse_loss(model.module(batch), batch)",
    "two results": "loss, logits = model.module(batch, labels=batch)",
    "under autocast": "with torch.autocast('cuda'):\n            loss = model.module(batch)",
    "a method that computes the loss": "loss = model.module.compute_loss(batch)",
    "a name": "inner = model.module\n        loss = inner(batch)",
    "forward of the wrapper": "out = model.module(batch)['loss']\n        loss = out.mean()",
}


@pytest.mark.parametrize("style", BYPASSES)
def test_a_step_beside_ddp(style: str) -> None:
    assert found("ddp-bypassed", make=MAKE, step=BYPASSES[style] + BACKWARD) == 1


@pytest.mark.parametrize(
    "step",
    [
        "loss = model(batch)",
        "loss = model(batch) + model.module.penalty()",
        "loss = model(batch)\n        with torch.no_grad():\n            model.module(batch)",
    ],
)
def test_a_step_through_ddp(step: str) -> None:
    assert found("ddp-bypassed", make=MAKE, step=step + BACKWARD) == 0


CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
STEPPED = "scaler.step(optimizer)\n            scaler.update()"
UNSCALED = {
    "remainder": f"scaler.unscale_(optimizer)\n        {CLIP}\n        if (i + 1) % accum == 0:\n"
    f"            {STEPPED}",
    "setting": f"scaler.unscale_(optimizer)\n        {CLIP}\n"
    f"        if (i + 1) % args.accum_steps == 0:\n            {STEPPED}",
    "a name for it": f"last = (i + 1) % accum == 0\n        scaler.unscale_(optimizer)\n"
    f"        {CLIP}\n        if last:\n            {STEPPED}",
    "not yet": f"scaler.unscale_(optimizer)\n        {CLIP}\n        if (i + 1) % accum != 0:\n"
    f"            continue\n        scaler.step(optimizer)\n        scaler.update()",
    "under a switch": f"if args.clip:\n            scaler.unscale_(optimizer)\n            {CLIP}\n"
    f"        if not (i + 1) % accum:\n            {STEPPED}",
    "end of the epoch": f"scaler.unscale_(optimizer)\n        {CLIP}\n"
    f"        if (i + 1) % accum == 0 or i + 1 == len(loader):\n            {STEPPED}",
    "bit": f"scaler.unscale_(optimizer)\n        {CLIP}\n        if i % accum == accum - 1:\n"
    f"            {STEPPED}",
    "modulo of a counter": f"scaler.unscale_(optimizer)\n        {CLIP}\n        args.micro += 1\n"
    f"        if args.micro % accum == 0:\n            {STEPPED}",
}


@pytest.mark.parametrize("style", UNSCALED)
def test_gradients_that_every_micro_batch_unscales(style: str) -> None:
    step = "scaler.scale(model(batch)).backward()\n        " + UNSCALED[style]
    assert found("unscale-every-micro-batch", make=ADAMW, step=step) == 1


def test_gradients_that_are_unscaled_before_the_step() -> None:
    step = (
        "scaler.scale(model(batch)).backward()\n        if (i + 1) % accum == 0:\n"
        f"            scaler.unscale_(optimizer)\n            {CLIP}\n            {STEPPED}"
    )
    assert found("unscale-every-micro-batch", make=ADAMW, step=step) == 0


TRAINER = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

class Trainer:
    def __init__(self, model, accum):
        dist.init_process_group("nccl")
        self.model, self.accum = DDP(model), accum
        self.inner = self.model.module
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.scaler = torch.amp.GradScaler()

    def micro_batch(self, batch):
        loss = {loss}
        self.scaler.scale(loss).backward()
        {behind}

    def train(self, loader):
        for number, batch in enumerate(loader, 1):
            self.micro_batch(batch)
            if number % self.accum:
                continue
            {ahead}
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
"""
UNSCALE = "self.scaler.unscale_(self.optimizer)"


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({}, []),
        ({"loss": "self.inner(batch)"}, ["ddp-bypassed"]),
        ({"loss": "self.model(batch) + self.inner(batch)"}, []),
        ({"behind": UNSCALE, "ahead": "pass"}, ["unscale-every-micro-batch"]),
    ],
    ids=["right", "the inner model", "both", "unscaled at once"],
)
def test_a_step_in_the_methods_of_a_trainer(places: dict[str, str], expected: list[str]) -> None:
    right = {"loss": "self.model(batch)", "behind": "", "ahead": UNSCALE}
    code = TRAINER.format_map(right | places)
    found = [f.check_id for f in findings({"train.py": code})]
    assert [check for check in found if check in ("ddp-bypassed", "unscale-every-micro-batch")] == (
        expected
    )
