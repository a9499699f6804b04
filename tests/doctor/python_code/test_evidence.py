"""What seems to be a fault, and is none: the evidence is of something else, or not certain."""

import pytest
from code_audits import ids

LOOP = """
import os
import shutil
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, other, loader, optimizer, second, n, width, args):
    model = DDP(model, gradient_as_bucket_view=True)
    for i, batch in enumerate(loader):
{turn}
"""


def found(turn: str) -> list[str]:
    lines = "".join(f"        {line}\n" for line in turn.splitlines())
    return ids(LOOP.format(turn=lines))


STEP = "optimizer.step()\noptimizer.zero_grad()"


@pytest.mark.parametrize(
    ("turn", "accumulates"),
    [
        (f"model(batch).backward()\nif (i + 1) % n != 0:\n    continue\n{STEP}", True),
        (f"model(batch).backward()\nif width % 2:\n    continue\n{STEP}", False),
        (f"if i % n:\n    continue\nmodel(batch).backward()\n{STEP}", False),
        (
            "if i % n == 0:\n    model(batch).backward()\n    optimizer.step()",
            False,
        ),
    ],
    ids=["counted", "of a picture", "before backward", "around backward"],
)
def test_a_remainder_accumulates_only_where_backward_runs_more_often(
    turn: str, accumulates: bool
) -> None:
    assert ("accumulation-without-no-sync" in found(turn)) is accumulates


def test_gradients_are_computed_again_in_a_loop_within_the_turn() -> None:
    turn = (
        "model(batch).backward()\noptimizer.step()\noptimizer.zero_grad()\n"
        "for _ in range(2):\n    second.zero_grad()\n    other(batch).backward()\n    second.step()"
    )
    assert "zero-grad-before-step" not in found(turn)


@pytest.mark.parametrize(("copied", "expected"), [("", True), ("shutil.copy('a.pt', old)", False)])
def test_of_a_checkpoint_that_is_copied_at_once_one_is_whole(copied: str, expected: bool) -> None:
    saved = "torch.save({'optimizer': optimizer.state_dict()}, 'a.pt')"
    turn = f"model(batch).backward()\n{STEP}\n{saved}\n{copied}"
    assert ("checkpoint-not-atomic" in found(turn)) is expected


def test_an_evaluation_in_one_process_shares_nothing() -> None:
    shared = """
import torch
from torch.utils.data import DataLoader, DistributedSampler

def evaluate(model, val_loader):
    loss = 0.0
    with torch.no_grad():
        for batch in val_loader:
            loss += model(batch)
    return loss / len(val_loader)

def decode(text):
    return text
"""
    start = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
from scoring import {name}

torch.distributed.init_process_group("nccl")
val_sampler = DistributedSampler(val_set)
val_loader = DataLoader(val_set, sampler=val_sampler)
{name}(model, val_loader)
"""
    for name, expected in (("evaluate", True), ("decode", False)):
        files = {"scoring.py": shared, "start.py": start.format(name=name)}
        assert ("evaluation-of-one-rank" in ids(files)) is expected, name


@pytest.mark.parametrize(("clipped", "expected"), [("scaled", True), ("plain", False)])
def test_a_clip_concerns_the_backward_of_its_own_branch(clipped: str, expected: bool) -> None:
    clip = "\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    turn = (
        f"if args.half:\n    second.scale(model(batch)).backward()"
        f"{clip if clipped == 'scaled' else ''}\n    scaler.step(optimizer)\n"
        f"else:\n    model(batch).backward(){clip if clipped == 'plain' else ''}\n"
        "    optimizer.step()\noptimizer.zero_grad()"
    )
    assert ("clip-before-unscale" in found(turn)) is expected
