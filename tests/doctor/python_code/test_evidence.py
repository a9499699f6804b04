"""What seems to be a fault, and is none: the evidence is of something else, or not certain."""

import pytest

from tests.doctor.python_code.code_audits import ids

LOOP = """
import os
import shutil
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, other, loader, optimizer, second, n, width, args, rank):
    model = DDP(model, gradient_as_bucket_view=True)
    for i, batch in enumerate(loader):
{turn}
"""


def indented(turn: str) -> str:
    return "".join(f"        {line}\n" for line in turn.splitlines())


def found(turn: str) -> list[str]:
    return ids(LOOP.format(turn=indented(turn)))


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


@pytest.mark.parametrize(("user", "expected"), [("own", True), ("other", False)])
def test_what_another_program_passes_to_a_library_is_its_own(user: str, expected: bool) -> None:
    library = "import torch\n\ndef fix_seed(seed):\n    torch.manual_seed(seed)\n"
    start = """
import torch
import torch.distributed as dist
from library import fix_seed
from torch.utils.data import random_split

def main(data, loader, model, optimizer):
    dist.init_process_group("nccl")
    fix_seed({seed})
    {split}
"""
    split = "return random_split(data, [8, 2])"
    by_rank = "7 + dist.get_rank()"
    files = {
        "library.py": library,
        "own.py": start.format(seed=by_rank if user == "own" else "7", split=split),
        "other.py": start.format(seed=by_rank, split="return data"),
    }
    assert ("split-differs-between-ranks" in ids(files)) is expected


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


def test_what_all_ranks_call_in_both_branches_is_together() -> None:
    turn = "if multi and rank {sign} 0:\n    dist.gather_object({what}, dst=0)\nelse:\n    {other}"
    both = turn.format(
        sign="!=", what="loss", other="if multi:\n        dist.gather_object(loss, all)"
    )
    alone = turn.format(sign="==", what="loss", other="pass")
    assert "collective-on-one-rank" not in found(both)
    assert "collective-on-one-rank" in found(alone)


@pytest.mark.parametrize(("rank", "expected"), [("0", True), ("-1", False)])
def test_where_there_is_one_process_no_other_waits(rank: str, expected: bool) -> None:
    late = f"if rank in (-1, 0) and rank == {rank} and late:\n    break"
    turn = f"model(batch).backward()\n{STEP}\n{late}"
    assert ("loop-left-by-one-rank" in found(turn)) is expected


@pytest.mark.parametrize(("world", "expected"), [("1", False), ("args.world", True)])
def test_a_process_group_of_one_is_no_distributed_training(world: str, expected: bool) -> None:
    turn = f"loss = model(batch)\nif torch.isnan(loss):\n    continue\nloss.backward()\n{STEP}"
    started = f"torch.distributed.init_process_group('nccl', world_size={world}, rank=0)\n"
    code = LOOP.format(turn=indented(turn)) + started
    assert ("nan-skip-on-one-rank" in ids(code)) is expected


@pytest.mark.parametrize(("called", "expected"), [("model.train()", False), ("train(model)", True)])
def test_a_method_is_no_function_of_the_same_name(called: str, expected: bool) -> None:
    code = f"""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model):
    for p in model.text.parameters():
        p.requires_grad = False

def run(model, loader, optimizer):
    model = DDP(model, gradient_as_bucket_view=True)
    for batch in loader:
        {called}
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
    assert ("ddp-modes-freeze-parameters" in ids(code)) is expected


@pytest.mark.parametrize(
    ("when", "name", "expected"),
    [
        ("step % 100 == 0", "a{step}.pt", True),
        ("step in args.saves or step == n - 1", "a{step}.pt", False),
        ("step % 100 == 0", "a_{args.epochs}.pt", False),
    ],
)
def test_only_what_is_saved_again_and_again_fills_a_disk(
    when: str, name: str, expected: bool
) -> None:
    saved = f"if {when}:\n    torch.save({{'optimizer': optimizer.state_dict()}}, f'{name}')"
    turn = f"model(batch).backward()\n{STEP}\n{saved}"
    assert ("checkpoint-no-rotation" in found(turn)) is expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("torch.randn_like(x)", True),
        ("torch.rand(()).item()", False),
        ("Rounded.apply(x)", False),
    ],
)
@pytest.mark.parametrize("function", ["train", "_test_noise"])
def test_equal_noise_is_that_of_a_training_step(step: str, function: str, expected: bool) -> None:
    code = f"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.rand_like(x)

def {function}(model, loader, optimizer):
    dist.init_process_group("nccl")
    torch.manual_seed(7)
    model = DDP(model, gradient_as_bucket_view=True)
    for x in loader:
        model(x, {step}).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
    assert ("noise-equal-on-ranks" in ids(code)) is (expected and function == "train")


def test_what_other_ranks_do_elsewhere_may_be_the_collective() -> None:
    turn = "if rank == 0:\n    dist.broadcast(stop, src=0)\nelif rank > 0:\n    {others}"
    assert "collective-on-one-rank" in found(turn.format(others="print('no')"))
    assert "collective-on-one-rank" not in found(turn.format(others="model.follow()"))


@pytest.mark.parametrize(("ranks", "expected"), [("DDP(model)", True), ("model", False)])
def test_a_loss_of_ones_own_ends_the_loop_of_others_where_there_are_some(
    ranks: str, expected: bool
) -> None:
    turn = f"loss = model(batch)\nif loss < width:\n    break\nloss.backward()\n{STEP}"
    code = LOOP.format(turn=indented(turn)).replace("import os\n", "import accelerate\n")
    code = code.replace("DDP(model, gradient_as_bucket_view=True)", ranks)
    assert ("loop-left-by-one-rank" in ids(code)) is expected


AVERAGED = """self.kept = average_across_group(loss)

    def on_validation_epoch_end(self):
        self.log('val_loss', self.kept.mean())"""


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        ("self.log('val_loss', loss)", True),
        ("self.log('global_step', step)", False),
        ("dist.broadcast(loss, 0)\n        self.log('val_loss', loss)", False),
        ("self.module.log('val_loss', loss)", False),
        (AVERAGED, False),
    ],
)
def test_what_lightning_logs_is_one_ranks_result(logged: str, expected: bool) -> None:
    code = f"""
import lightning
import torch.distributed as dist

trainer = lightning.Trainer(strategy="ddp")

class Net(lightning.LightningModule):
    def validation_step(self, batch):
        loss, step = self(batch), 1
        {logged}
"""
    assert ("evaluation-of-one-rank" in ids(code)) is expected


@pytest.mark.parametrize(("checked", "expected"), [("", True), ("keep", False), ("lr", True)])
def test_a_number_to_keep_that_a_loop_over_names_bounds(checked: str, expected: bool) -> None:
    code = f"""
import shutil

def check(args):
    for name in ("{checked}", "steps"):
        if getattr(args, name) < 1:
            raise ValueError(name)

def rotate(folder, args):
    args.keep = read()["keep"]
    for path in sorted(folder.glob("step_*"))[: -args.keep]:
        shutil.rmtree(path)
"""
    assert ("rotation-keep-zero" in ids(code)) is expected
