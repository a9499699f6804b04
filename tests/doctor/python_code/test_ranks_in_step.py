"""What ranks must do alike, or each for itself: in eight styles, and right code beside it."""

import pytest

from tests.doctor.python_code.code_audits import findings, ids

FIRST = "import torch.distributed as dist\nfrom contextlib import contextmanager\n\n"
BARRIERS = {
    "two branches": FIRST
    + """
@contextmanager
def main_process_first():
    if dist.get_rank() == 0:
        yield
        dist.barrier()
    else:
        dist.barrier()
        yield
""",
    "two conditions": FIRST
    + """
@contextmanager
def torch_distributed_zero_first(local_rank):
    if local_rank not in [-1, 0]:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()
""",
    "a name for the rank": FIRST
    + """
import os
@contextmanager
def first(group=None):
    is_main = int(os.environ.get("LOCAL_RANK", 0)) == 0
    if is_main:
        yield
    dist.barrier(group)
    if not is_main:
        yield
""",
    "a barrier of its own": FIRST
    + """
def safe_barrier():
    if dist.is_initialized():
        dist.barrier()

@contextmanager
def first():
    if dist.get_rank() == 0:
        yield
        safe_barrier()
    else:
        safe_barrier()
        yield
""",
    "a method": FIRST
    + """
import contextlib
class Launcher:
    @contextlib.contextmanager
    def main_first(self):
        if self.rank != 0:
            dist.barrier()
        yield
        if self.rank == 0:
            dist.barrier()
""",
    "Accelerate": """
from contextlib import contextmanager
@contextmanager
def prepared_once(accelerator):
    if not accelerator.is_main_process:
        accelerator.wait_for_everyone()
    yield
    if accelerator.is_main_process:
        accelerator.wait_for_everyone()
""",
    "an error that is caught": FIRST
    + """
def save(model, path):
    try:
        if dist.get_rank() == 0:
            write(model, path)
        dist.barrier()
    except Exception as error:
        print("not saved", error)
""",
    "DeepSpeed, any error": """
from deepspeed import comm as dist
def export(engine, folder):
    for name in engine.parts:
        try:
            engine.write(name, folder)
            dist.barrier()
        except:
            continue
""",
}


def found(files: dict[str, str] | str, check: str) -> list[str]:
    held = {"train.py": files} if isinstance(files, str) else files
    return [f.evidence for f in findings(held) if f.check_id == check]


@pytest.mark.parametrize("style", BARRIERS)
def test_a_barrier_that_an_error_leaves_out(style: str) -> None:
    (line,) = found(BARRIERS[style], "barrier-not-in-finally")
    assert "barrier" in line or "wait_for" in line


@pytest.mark.parametrize(
    "code",
    [
        """
@contextmanager
def first():
    if dist.get_rank() != 0:
        dist.barrier()
    try:
        yield
    finally:
        if dist.get_rank() == 0:
            dist.barrier()
""",
        """
@contextmanager
def written_by_all(folder):
    dist.barrier()
    yield folder
    dist.barrier()
""",
        """
def end():
    try:
        dist.barrier()
        dist.destroy_process_group()
    except Exception:
        pass
""",
        """
def end():
    try:
        log.info("the last barrier")
        dist.barrier()
    except Exception as error:
        log.warning(error)
""",
        """
def save(model):
    try:
        write(model)
        dist.barrier()
    except RuntimeError:
        print("not saved")
        raise
""",
    ],
)
def test_a_barrier_that_is_reached_or_ends_the_rank(code: str) -> None:
    assert found(FIRST + code, "barrier-not-in-finally") == []


LOADED = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

{code}
def train(args, model, dataset, optimizer):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DDP(model)
    for epoch in range(args.epochs):
        for batch in DataLoader(dataset, sampler=sampler_of(args, dataset)):
            model(batch).backward()
            optimizer.step()
            optimizer.zero_grad()
"""
SAMPLERS = {
    "argument": "seed=args.seed + dist.get_rank()",
    "name": "seed=own",
    "environment": 'seed=int(os.environ["RANK"])',
    "local rank": "seed=args.seed * 100 + args.local_rank",
    "by position": "None, None, True, args.seed + dist.get_rank()",
    "mapping": '**{"seed": args.seed + dist.get_rank()}',
    "stored": "seed=args.seed",
    "parameter": "seed=seed",
}


def sampled(style: str) -> str:
    before = {
        "name": "    rank = dist.get_rank()\n    own = args.seed + rank\n",
        "stored": "    args.seed += args.rank\n",
    }.get(style, "")
    code = (
        f"def sampler_of(args, dataset):\n{before}"
        f"    return DistributedSampler(dataset, {SAMPLERS[style]})\n"
    )
    if style == "parameter":
        code = (
            "def made(dataset, seed):\n    return DistributedSampler(dataset, seed=seed)\n\n"
            "def sampler_of(args, dataset):\n"
            "    return made(dataset, args.seed + dist.get_rank())\n"
        )
    return LOADED.format(code=code)


@pytest.mark.parametrize("style", SAMPLERS)
def test_a_sampler_with_a_seed_of_its_own_on_each_rank(style: str) -> None:
    (line,) = found(sampled(style), "sampler-seed-by-rank")
    assert "DistributedSampler" in line


@pytest.mark.parametrize("seed", ["seed=args.seed", "seed=42", "shuffle=True", "seed=args.world"])
def test_a_sampler_with_one_seed(seed: str) -> None:
    code = f"def sampler_of(args, dataset):\n    return DistributedSampler(dataset, {seed})\n"
    assert found(LOADED.format(code=code), "sampler-seed-by-rank") == []


NOISY = """
import argparse
import os
import random
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

{code}
def train(args, model, loader, optimizer):
    dist.init_process_group("nccl")
    {seeding}
    model = DDP(model)
    for x in loader:
        {step}
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
"""
MASKED = """
class Masked(torch.nn.Module):
    def forward(self, x):
        return self.blocks(x * self.mask(x))

    def mask(self, x):
        return torch.rand(x.shape, device=x.device) > 0.75
"""
SEEDED = """
def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
"""
DIFFUSED = """
def loss_of(model, x):
    t = torch.randint(0, 1000, (x.size(0),), device=x.device)
    return model(x, t)
"""
PLAIN = "loss = model(x + torch.randn_like(x))"
NOISES = {
    "constant": ("", "torch.manual_seed(1337)", PLAIN),
    "option": ("", "torch.manual_seed(args.seed)", PLAIN),
    "on the device": ("", "torch.cuda.manual_seed_all(42)", PLAIN),
    "function": (SEEDED, "set_seed(args.seed)", PLAIN),
    "forward": (MASKED, "torch.manual_seed(args.seed)", "loss = model(x)"),
    "loss": (DIFFUSED, "torch.manual_seed(args.seed)", "loss = loss_of(model, x)"),
    "name": ("SEED = 7\n", "torch.manual_seed(SEED)", "loss = model(x, torch.rand(x.shape[0]))"),
    "all libraries": (
        "import numpy as np\n",
        "np.random.seed(0), random.seed(0), torch.manual_seed(0)",
        "loss = model(torch.bernoulli(x))",
    ),
}


@pytest.mark.parametrize("style", NOISES)
def test_noise_that_is_the_same_on_all_ranks(style: str) -> None:
    code, seeding, step = NOISES[style]
    (line,) = found(NOISY.format(code=code, seeding=seeding, step=step), "noise-equal-on-ranks")
    assert "torch.rand" in line or "torch.bernoulli" in line


@pytest.mark.parametrize(
    ("seeding", "step"),
    [
        ("torch.manual_seed(args.seed + dist.get_rank())", PLAIN),
        ("torch.manual_seed(args.seed + seed_offset)", PLAIN),
        ("pass", PLAIN),
        ("torch.manual_seed(0)", "loss = model(x + torch.randn(4, generator=own))"),
        ("torch.manual_seed(0)", "loss = model(x)"),
        ("torch.manual_seed(args.unknown)", PLAIN),
        ("imgaug.seed(1)", PLAIN),
    ],
)
def test_noise_of_each_rank(seeding: str, step: str) -> None:
    text = NOISY.format(code="", seeding=seeding, step=step)
    assert found(text, "noise-equal-on-ranks") == []


VALIDATION = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

{code}
def train(args, model, loader, val_set, optimizer):
    dist.init_process_group("nccl")
    model = DDP(model)
    val_loader = DataLoader(val_set, sampler=DistributedSampler(val_set, shuffle=False))
    for epoch in range(args.epochs):
        for batch in loader:
            model(batch).backward()
            optimizer.step()
            optimizer.zero_grad()
{evaluation}
"""
EVALUATE = """
@torch.no_grad()
def evaluate(model, val_loader):
    total_loss = 0.0
    for batch in val_loader:
        total_loss += model(batch).item()
    return total_loss / len(val_loader)
"""
COLLECTED = (
    EVALUATE.replace("total_loss = 0.0", "losses = []")
    .replace("total_loss += model(batch).item()", "losses.append(model(batch))")
    .replace("total_loss / len(val_loader)", "torch.stack(losses).mean()")
)
CALLED = "        print(epoch, {}evaluate(model, val_loader))"
INLINE = """        with torch.no_grad():
            val_loss, count = 0.0, 0
            for batch in val_loader:
                val_loss += model(batch).item()
                count += 1
        print(epoch, val_loss / count)"""
SUMMED = "        dist.all_reduce(val_loss)\n"
LIGHTNING = """
import lightning as L
import torch

class Net(L.LightningModule):
    def training_step(self, batch, batch_idx):
        return self.net(batch).mean()

    def validation_step(self, batch, batch_idx):
        loss = self.net(batch).mean()
        {log}

def main(net, loader):
    L.Trainer(devices=8, strategy="ddp").fit(Net(net), loader)
"""
ACCELERATED = """
import torch
from accelerate import Accelerator

def main(model, optimizer, loader, val_loader):
    accelerator = Accelerator()
    model, optimizer, loader, val_loader = accelerator.prepare(model, optimizer, loader, val_loader)
    for epoch in range(3):
        for batch in loader:
            accelerator.backward(model(batch))
            optimizer.step()
            optimizer.zero_grad()
        val_loss = 0.0
        with torch.no_grad():
            for batch in val_loader:
                val_loss += {loss}
        accelerator.print(val_loss / len(val_loader))
"""
METHOD = "class Judge:\n" + "".join(
    f"    {line}\n" if line else "\n" for line in EVALUATE.strip().splitlines()
).replace("(model", "(self, model", 1)
EVALUATIONS = {
    "function": VALIDATION.format(code=EVALUATE, evaluation=CALLED.format("")),
    "list": VALIDATION.format(code=COLLECTED, evaluation=CALLED.format("")),
    "a name for anything": VALIDATION.format(
        code=EVALUATE.replace("total_loss", "total").replace(
            "model(batch)", "torch.nn.functional.cross_entropy(model(batch[0]), batch[1])"
        ),
        evaluation=CALLED.format(""),
    ),
    "in the loop": VALIDATION.format(code="", evaluation=INLINE),
    "method": VALIDATION.format(code=METHOD, evaluation=CALLED.format("Judge().")),
    "best of": VALIDATION.format(
        code=EVALUATE,
        evaluation="        val_loss = evaluate(model, val_loader)\n"
        "        if dist.get_rank() == 0 and val_loss < args.best:\n"
        '            torch.save(model.module.state_dict(), "best.pt")',
    ),
    "correct ones": VALIDATION.format(
        code=EVALUATE.replace("total_loss", "correct"), evaluation=CALLED.format("")
    ),
    "Lightning": LIGHTNING.format(log='self.log("val_loss", loss)'),
    "Accelerate": ACCELERATED.format(loss="model(batch).item()"),
}


@pytest.mark.parametrize("style", EVALUATIONS)
def test_an_evaluation_of_one_rank_s_share(style: str) -> None:
    assert len(found(EVALUATIONS[style], "evaluation-of-one-rank")) == 1


@pytest.mark.parametrize(
    "code",
    [
        VALIDATION.format(
            code=EVALUATE,
            evaluation="        val_loss = evaluate(model, val_loader)\n"
            "        dist.all_reduce(val_loss)\n        print(val_loss)",
        ),
        VALIDATION.format(
            code=EVALUATE.replace("    return", "    dist.all_reduce(total_loss)\n    return"),
            evaluation=CALLED.format(""),
        ),
        VALIDATION.format(code=EVALUATE, evaluation=CALLED.format("")).replace(
            ", sampler=DistributedSampler(val_set, shuffle=False)", ""
        ),
        VALIDATION.format(
            code="", evaluation=INLINE.replace("        print(", f"{SUMMED}        print("),
        ),
        VALIDATION.format(  # an object of its own, which may ask the other ranks
            code=COLLECTED.replace("losses = []", "losses = Average()"),
            evaluation=CALLED.format(""),
        ),
        VALIDATION.format(  # the losses of one batch, a head each
            code=COLLECTED.replace(
                "        losses.append(model(batch))",
                "        losses = []\n        losses.append(model(batch))",
            ),
            evaluation=CALLED.format(""),
        ),
        VALIDATION.format(  # no model is asked
            code=EVALUATE.replace("for batch in val_loader", "for batch in questions"),
            evaluation=CALLED.format(""),
        ),
        LIGHTNING.format(log='self.log("val_loss", loss, sync_dist=True)'),
        LIGHTNING.format(log='self.log("accuracy", self.accuracy.compute())'),
        LIGHTNING.format(log='self.log("val_loss", loss)').replace(', strategy="ddp"', ""),
        ACCELERATED.format(loss="accelerator.gather_for_metrics(model(batch)).mean().item()"),
    ],
)  # fmt: skip
def test_an_evaluation_of_all_ranks_or_of_the_whole(code: str) -> None:
    assert found(code, "evaluation-of-one-rank") == []


@pytest.mark.parametrize(("name", "expected"), [("train", True), ("evaluate", False)])
def test_what_an_evaluation_wraps_is_not_trained(name: str, expected: bool) -> None:
    code = f"""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def {name}(model, loader, optimizer):
    try:
        model = model.cuda()
    except RuntimeError:
        model = DDP(model, find_unused_parameters=True)
    for batch in loader:
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
    files = {"model.py": code}
    assert ("ddp-find-unused-parameters" in ids(files)) is expected
