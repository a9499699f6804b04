"""What a training loop does in every step, in the forms that it takes, and what looks like it."""

import pytest

from tests.doctor.python_code.code_audits import findings, ids, in_turn, mended

NAN_SKIPS = [
    "if torch.isnan(loss): continue",
    "if not torch.isfinite(loss):\n    optimizer.zero_grad()\n    continue",
    "bad = torch.isnan(loss).any() or torch.isinf(loss).any()\nif bad:\n    continue",
    "if loss != loss:\n    continue",
    "import math\nvalue = float(loss.detach())\nif math.isnan(loss.item()):\n    continue",
]
AGREED = [
    "bad = (~torch.isfinite(loss)).float()\ndist.all_reduce(bad)\nif bad > 0:\n    continue",
    "bad = torch.isnan(loss)\ndist.all_reduce(bad)\nif bad:\n    continue",
    "mean = reduce_mean(loss)\nif torch.isnan(mean):\n    continue",
    "good = bool(loss.isfinite())\nif not all_ranks_agree(good):\n    continue",
    (
        "def common(flag):\n    dist.all_reduce(flag)\n    return flag\n"
        "bad = torch.isnan(loss)\nif common(bad):\n    continue"
    ),
    "if torch.isnan(loss):\n    raise RuntimeError('the loss is NaN')",
    "import sys\nif torch.isnan(loss):\n    sys.exit(1)",
    "if torch.isnan(loss):\n    print('NaN at', step)",
    "assert torch.isfinite(loss)",
    "if torch.isnan(batch).any():\n    batch = torch.zeros_like(batch)",
]


@pytest.mark.parametrize("code", NAN_SKIPS)
def test_a_rank_that_skips_by_its_own_loss_hangs_the_others(code: str) -> None:
    assert "nan-skip-on-one-rank" in ids(in_turn(code))


@pytest.mark.parametrize("code", AGREED)
def test_what_all_ranks_decide_or_what_ends_the_job_is_fine(code: str) -> None:
    assert "nan-skip-on-one-rank" not in ids(in_turn(code))


def test_a_skip_after_backward_lets_the_ranks_drift_apart() -> None:
    late = in_turn("pass").replace(
        "        optimizer.step()\n",
        "        if torch.isnan(loss):\n            continue\n        optimizer.step()\n",
    )
    (found,) = [f for f in findings({"t.py": late}) if f.check.id == "nan-skip-on-one-rank"]
    assert found.detail.startswith("after backward")


def test_backward_only_where_the_loss_is_finite_is_a_skip_too() -> None:
    code = in_turn("pass").replace(
        "        loss.backward()\n",
        "        if torch.isfinite(loss):\n            loss.backward()\n",
    )
    assert "nan-skip-on-one-rank" in ids(code)


def test_backward_in_the_other_branch_is_left_out_as_well() -> None:
    code = in_turn("pass").replace(
        "        loss.backward()\n        optimizer.step()\n",
        "        if torch.isnan(loss) or torch.isinf(loss):\n"
        "            optimizer.zero_grad()\n"
        "        else:\n"
        "            loss.backward()\n"
        "            optimizer.step()\n",
    )
    assert ids(code) == ["nan-skip-on-one-rank"]


def test_an_evaluation_within_the_loop_may_leave_out_batches() -> None:
    code = in_turn(
        "if step % 100 == 0:\n"
        "    with torch.no_grad():\n"
        "        for held_out in loader:\n"
        "            val_loss = model(held_out)\n"
        "            if torch.isnan(val_loss):\n"
        "                continue"
    )
    assert ids(code) == []


def test_on_one_gpu_nobody_waits_for_a_rank_that_skips() -> None:
    code = in_turn("if torch.isnan(loss):\n    continue")
    alone = code.replace("DDP(model.cuda(), gradient_as_bucket_view=True)", "model.cuda()")
    assert ids(alone) == []


def test_the_gradient_norm_is_the_same_on_all_ranks() -> None:
    code = in_turn("pass").replace(
        "        optimizer.step()\n",
        "        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "        if not torch.isfinite(norm):\n"
        "            optimizer.zero_grad()\n"
        "            continue\n"
        "        optimizer.step()\n",
    )
    assert ids(code) == []


WAITS = [
    "total = loss.item()",
    "losses.append(loss.item())",
    "losses.append(loss.detach().cpu())",
    "value = float(loss)",
    "print(loss)",
    "print(f'step {step} loss {loss:.3f}')",
    "if rank == 0:\n    bar.set_description(f'{loss:.3f}')",
    "if dist.get_rank() == 0 and log_file is not None:\n    value = loss.item()",
    "accuracy = (batch.argmax(-1) == batch).float().mean().item()",
]
NO_WAITS = [
    "if step % 100 == 0:\n    print(loss.item())",
    "if rank == 0 and step % 100 == 0:\n    print(f'{loss:.3f}')",
    "if should_log(step):\n    value = loss.item()",
    "total = loss.detach()",
    "losses.append(loss.detach())",
    "value = loss.item() if step % 50 == 0 else None",
    "log = lambda: loss.item()",
    "import numpy as np\nshare = np.mean(times).item()",
    "print('step', step)",
    "# loss.item()",
    "'loss.item()'",
]


@pytest.mark.parametrize("code", NO_WAITS)
def test_a_tensor_that_is_read_now_and_then_does_not(code: str) -> None:
    assert ids(in_turn(code)) == []


def test_a_loop_that_knows_no_gpu_does_not_wait_for_one() -> None:
    assert ids(in_turn("total = loss.item()").replace("model.cuda()", "model")) == []


def test_evaluation_may_read_what_it_likes() -> None:
    code = """
import torch

@torch.no_grad()
def evaluate(model, loader):
    total = 0.0
    for batch in loader:
        total += model(batch.cuda()).item()
        torch.cuda.empty_cache()
    return total
"""
    assert ids(code) == []


SCALED = """
import torch

def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # after this it is too late
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""


def test_gradients_are_unscaled_before_they_are_clipped() -> None:
    assert ids(SCALED) == ["clip-before-unscale"]
    after = mended({"t.py": SCALED})["t.py"]
    assert after == SCALED.replace(
        "        torch.nn.utils.clip",
        "        scaler.unscale_(optimizer)\n        torch.nn.utils.clip",
    )
    assert ids(after) == []


MICRO_BATCHES = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, batches, optimizer, scaler, accumulation_steps):
    model = DDP(model.cuda(), gradient_as_bucket_view=True)
    while True:
        for micro in range(accumulation_steps):
            model.require_backward_grad_sync = micro == accumulation_steps - 1
            loss = model(next(batches)) / accumulation_steps
            scaler.scale(loss).backward()
        {before}torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        {after}
"""


ALONE = [
    "if rank == 0:\n    dist.barrier()",
    "if dist.get_rank() == 0:\n    dist.all_reduce(loss)",
    "if is_main_process:\n    print('saving')\n    dist.barrier()",
    "if rank != 0:\n    dist.broadcast(batch, src=0)",
    'if int(os.environ["RANK"]) == 0:\n    dist.all_gather_object(held, 1)',
]
TOGETHER = [
    "if rank == 0:\n    save()\ndist.barrier()",
    "if rank != 0:\n    dist.barrier()\nload()\nif rank == 0:\n    dist.barrier()",
    "if rank == 0:\n    dist.broadcast(a, 0)\nelse:\n    dist.broadcast(b, 0)",
    "if tp_rank == 0:\n    dist.all_reduce(loss)",
    "if rank == 0:\n    dist.all_reduce(loss, group=first_ranks)",
    "if rank == 0:\n    dist.send(loss, dst=1)",
    "if world_size > 1:\n    dist.barrier()",
    "if step == 0:\n    dist.barrier()",
    "save_all = False\nif save_all:\n    if rank == 0:\n        dist.barrier()",
    "dist.destroy_process_group()\nif rank == 0:\n    dist.barrier()",
]


@pytest.mark.parametrize("code", ALONE)
def test_a_collective_that_one_rank_calls_alone_hangs(code: str) -> None:
    assert "collective-on-one-rank" in ids(in_turn(code))


@pytest.mark.parametrize("code", TOGETHER)
def test_a_collective_that_all_call_does_not(code: str) -> None:
    assert ids(in_turn(code)) == []


def test_ranks_that_have_returned_before_call_no_collective() -> None:
    code = """
import torch.distributed as dist

def save(rank, model):
    if rank != 0:
        return
    write(model)
    dist.barrier()
"""
    assert ids(code) == ["collective-on-one-rank"]


def test_a_flag_beside_the_rank_may_let_all_ranks_go_on() -> None:
    code = """
import torch.distributed as dist

def evaluate(rank, sharded, signal):
    if not sharded and rank != 0:
        return
    if sharded:
        dist.broadcast(signal, src=0)
"""
    assert ids(code) == []
    assert ids(code.replace("not sharded and ", "")) == ["collective-on-one-rank"]


@pytest.mark.parametrize("name", ["on_keyboard_interrupt", "handle_usr1"])
def test_what_answers_a_signal_is_out_of_step_anyway(name: str) -> None:
    code = """
import signal
import torch.distributed as dist

def {name}(*given):
    if rank == 0:
        dist.barrier()

signal.signal(signal.SIGUSR1, handle_usr1)
"""
    assert ids(code.replace("{name}", name)) == []
    assert ids(code.replace("{name}", "save")) == ["collective-on-one-rank"]


ACCUMULATED = """
import torch

def train(model, loader, optimizer, scaler, n):
    for index, batch in enumerate(loader):
        loss = model(batch)
        scaler.scale(loss / n).backward()
        {every}
        if (index + 1) % n == 0:
            {last}
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
"""


def test_gradients_are_unscaled_once_an_update() -> None:
    often = ACCUMULATED.format(every="scaler.unscale_(optimizer)", last="pass")
    assert "unscale-every-micro-batch" in ids(often)
    if_clipped = "if clips:\n            scaler.unscale_(optimizer)"
    assert "unscale-every-micro-batch" in ids(ACCUMULATED.format(every=if_clipped, last="pass"))
    once = ACCUMULATED.format(every="pass", last="scaler.unscale_(optimizer)")
    assert "unscale-every-micro-batch" not in ids(once)


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ("loss = model.module.forward(batch)", True),
        ("loss = model(batch)\nwith torch.no_grad():\n    other = model.module(batch)", False),
        ("loss = model.module.loss_of(model(batch))", False),
    ],
)
def test_a_step_goes_through_ddps_own_forward(turn: str, expected: bool) -> None:
    code = in_turn(turn).replace("        loss = model(batch)\n", "", 1)
    assert ("ddp-bypassed" in ids(code)) is expected


SAVES = """
import os
import torch

def train(model, loader, optimizer, steps, save_every: int = {default}):
    for step, batch in enumerate(loader):
        last_step = step == steps - 1
        if {when}:
            state = {{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}
            torch.save(state, f"out/state_{{step}}.pt")
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("when", "default", "expected"),
    [
        ("last_step", 0, False),
        ("last_step or (save_every > 0 and step % save_every == 0)", 0, False),
        ("last_step or (save_every > 0 and step % save_every == 0)", 100, True),
        ("step % save_every == 0", 100, True),
    ],
)
def test_one_checkpoint_at_the_end_needs_no_rotation(
    when: str, default: int, expected: bool
) -> None:
    code = SAVES.format(when=when, default=default)
    assert ("checkpoint-no-rotation" in ids(code)) is expected


CUT_OFF = [
    "loss = torch.clamp(loss, max=10.0)",
    "loss = loss.clamp(0, 100)",
    "loss = loss.clamp(max=limit)",
    "loss.clamp_(max=5)",
    "text_loss = torch.clip(text_loss, 0.0, 100.0)",
]
REPLACED = [
    "if torch.isnan(loss):\n    loss = torch.zeros_like(loss)",
    "if not torch.isfinite(loss).all():\n    loss = torch.tensor(0.01).to(loss.device)",
    "loss = loss if torch.isfinite(loss) else torch.zeros_like(loss)",
    "loss = torch.where(torch.isnan(loss), torch.zeros_like(loss), loss)",
]


@pytest.mark.parametrize(
    "code",
    [
        "if torch.isnan(batch).any():\n    loss = torch.tensor(0.0)",
        "loss = torch.where(mask, loss, torch.zeros_like(loss))",
        "total_loss = torch.tensor(0.0)",
        "shown = 0.0 if torch.isnan(loss) else loss",
    ],
)
def test_other_constants_are_no_concern(code: str) -> None:
    assert ids(in_turn(code)) == []


NOT_CUT_OFF = [
    "loss = torch.clamp(loss, min=0.0)",
    "loss = loss.clamp(min=0.5)",
    "perplexity = torch.exp(loss.clamp(max=20))",
    "ratio = torch.clamp(ratio, 0.8, 1.2)",
    "count = mask.sum().clamp(max=4)",
    "loss_scale = loss_scale.clamp(max=65536)",
    "with torch.no_grad():\n    shown_loss = loss.clamp(max=10)",
]


@pytest.mark.parametrize("code", CUT_OFF)
def test_a_loss_with_an_upper_limit_hides_what_is_above_it(code: str) -> None:
    assert ids(in_turn(code)) == ["loss-clamped"]


@pytest.mark.parametrize("code", NOT_CUT_OFF)
def test_other_limits_are_no_concern(code: str) -> None:
    assert ids(in_turn(code)) == []


CLIPPED = """
def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch)
        loss.backward()
{before}        optimizer.step()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        optimizer.zero_grad()
"""
