"""Checkpoints and logs: how they are written, rotated, read, and what else looks like it."""

import pytest

from tests.doctor.python_code.code_audits import findings, ids, in_turn, mended

ROTATION = """
import os
import re
import shutil
from pathlib import Path

def rotate(folder, keep_last=3):
    found = sorted(Path(folder).glob("step_*"), {order})
    {code}
"""
OLDEST_FIRST, NEWEST_FIRST = "key=step_of", "key=step_of, reverse=True"


@pytest.mark.parametrize(
    "guard",
    [
        'if keep_last < 1:\n        raise ValueError("keep_last")',
        "if keep_last <= 0:\n        return",
        "if not keep_last:\n        return",
        "assert keep_last > 0",
        "keep_last = max(1, keep_last)",
    ],
)
def test_a_number_that_is_checked_is_fine(guard: str) -> None:
    code = f"{guard}\n    for old in found[:-keep_last]:\n        shutil.rmtree(old)"
    assert ids(ROTATION.replace("{order}", OLDEST_FIRST).replace("{code}", code)) == []


def test_a_constant_number_is_fine() -> None:
    code = "for old in found[:-3]:\n        shutil.rmtree(old)"
    assert ids(ROTATION.replace("{order}", OLDEST_FIRST).replace("{code}", code)) == []


FOREIGN = """
import os
import re
import shutil
from glob import glob

def is_own(name):
    return name.startswith("step_")

def prune_checkpoints(run_folder):
    own = os.path.join(run_folder, "step-*")
    whole = os.path.join(run_folder, "*")
    names = {names}
    names.sort(key=lambda name: int(name.split("-")[-1]))
    for name in names[:-3]:
        shutil.rmtree(os.path.join(run_folder, name))
"""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("os.listdir(run_folder)", ["rotation-deletes-foreign"]),
        ("[n for n in os.listdir(run_folder) if '-' != n]", ["rotation-deletes-foreign"]),
        ("[n for n in os.listdir(run_folder) if n.startswith('checkpoint-')]", []),
        ("[n for n in os.listdir(run_folder) if re.fullmatch(r'step-\\d+', n)]", []),
        ("[n for n in os.listdir(run_folder) if 'checkpoint' in n]", []),
        ("os.listdir(os.path.join(run_folder, 'checkpoints'))", []),
        ("[n for n in os.listdir(run_folder) if is_own(n)]", []),
        ("[n for n in os.listdir(run_folder) if n.isdigit()]", []),
        ("glob(own)", []),
        ("glob(whole)", ["rotation-deletes-foreign"]),
    ],
)
def test_a_rotation_takes_only_what_is_surely_its_own(names: str, expected: list[str]) -> None:
    assert ids(FOREIGN.replace("{names}", names)) == expected


CLEARED = """
import os, shutil

def tune_epochs(folder, keep):
    for epoch in range(10):
        print(os.listdir(folder))
        if not keep:
            shutil.rmtree(folder)

def clear_checkpoints(folder):
    for name in os.listdir(folder):
        shutil.rmtree(os.path.join(folder, name))
"""


def test_what_keeps_none_is_no_rotation() -> None:
    assert "rotation-deletes-foreign" not in ids(CLEARED)
    kept = CLEARED.replace("in os.listdir(folder):", "in os.listdir(folder)[:-3]:")
    assert "rotation-deletes-foreign" in ids(kept)


SAVES = """
import os
import torch

def train(model, loader, optimizer, out, keep):
    for step, batch in enumerate(loader):
        model(batch).backward()
        optimizer.step()
        if step % 1000 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            {save}
"""
EVERY_STEP_ITS_OWN = [
    'torch.save(state, f"{out}/step_{step}.pt")',
    'torch.save(state, os.path.join(out, f"checkpoint-{step:07d}.pt"))',
    'torch.save(state, out / ("ckpt_" + str(step)))',
    'torch.save(state, f"{out}/{step}/state.pt")',
    'path = f"{out}/{step}.pt"\n            torch.save(state, path)',
]
ONE_FOR_ALL = [
    'torch.save(state, "checkpoint.pt")',
    'torch.save(state, os.path.join(out, "latest.pt"))',
    'torch.save(state, out / "last.ckpt")',
    'torch.save(state, f"{out}/checkpoint.pt")',
]
SAFE = [
    'torch.save(state, out / "last.tmp")\n            os.replace(out / "last.tmp", out / "last")',
    "torch.save(state, args.output)",
    'torch.save(model.state_dict(), "encoder.pt")',
    'torch.save({"tokens": tokens}, "tokens.pt")',
]


@pytest.mark.parametrize("save", EVERY_STEP_ITS_OWN)
def test_checkpoints_that_nobody_deletes_fill_the_disk(save: str) -> None:
    code = SAVES.replace("{save}", save)
    assert ids(code) == ["checkpoint-no-rotation"]
    assert ids(code + "\n    os.remove(oldest(out, keep))\n") == []


@pytest.mark.parametrize("save", ONE_FOR_ALL)
def test_the_only_checkpoint_is_not_overwritten_in_place(save: str) -> None:
    code = SAVES.replace("{save}", save)
    assert ids(code) == ["checkpoint-not-atomic"]
    after = mended({"train.py": code})["train.py"]
    if after != code:
        assert "os.replace(" in after
        assert ids(after) == []


def test_a_path_that_the_object_holds_is_looked_up() -> None:
    code = """
import os
import torch

class Trainer:
    def __init__(self, out):
        self.path = os.path.join(out, "checkpoint.pt")

    def run(self, loader):
        for batch in loader:
            self.model(batch).backward()
            self.optimizer.step()
            self.save()

    def save(self):
        torch.save({"optimizer": self.optimizer.state_dict()}, self.path)
"""
    assert ids(code) == ["checkpoint-not-atomic"]


def test_an_edit_saves_beside_and_renames() -> None:
    code = SAVES.replace("{save}", 'torch.save(state, os.path.join(out, "latest.pt"))')
    after = mended({"train.py": code})["train.py"]
    assert after.endswith(
        '            torch.save(state, str(os.path.join(out, "latest.pt")) + ".tmp")\n'
        '            os.replace(str(os.path.join(out, "latest.pt")) + ".tmp", '
        'os.path.join(out, "latest.pt"))\n'
    )


@pytest.mark.parametrize("save", SAFE)
def test_what_is_no_checkpoint_or_saved_aside_is_fine(save: str) -> None:
    assert ids(SAVES.replace("{save}", save)) == []


ACCUMULATION = "training:\n  gradient_accumulation_steps: {count}\n"


@pytest.mark.parametrize(
    ("count", "code", "expected"),
    [
        (4, "pass", ["accumulation-unread"]),
        (1, "pass", []),
        (4, "steps = config.training.gradient_accumulation_steps", []),
        (4, 'steps = config["training"]["gradient_accumulation_steps"]', []),
        (4, 'steps = config.get("gradient_accumulation_steps", 1)', []),
    ],
)
def test_an_accumulation_that_the_settings_promise_is_read(
    count: int, code: str, expected: list[str]
) -> None:
    files = {"train.py": in_turn(code), "config.yaml": ACCUMULATION.format(count=count)}
    assert ids(files) == expected
    if expected:
        (found,) = findings(files)
        assert (found.path, found.line) == ("config.yaml", 2)


def test_an_option_that_is_declared_is_read() -> None:
    code = in_turn("pass") + (
        "\nimport argparse\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--grad-accum-steps", type=int, default=4)\n'
    )
    assert ids(code) == ["accumulation-unread"]
    assert ids(code + "every = parser.parse_args().grad_accum_steps\n") == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("GRAD_ACCUM_STEPS = 4", ["accumulation-unread"]),
        ("GRAD_ACCUM_STEPS = 1", []),
        ("GRAD_ACCUM_STEPS = 4\nBATCH = 64 // GRAD_ACCUM_STEPS", []),
        ("class Settings:\n    accumulation_steps: int = 8", ["accumulation-unread"]),
        ("class Settings:\n    accumulation_steps: int = 8\nn = Settings().accumulation_steps", []),
    ],
)
def test_a_constant_of_accumulation_is_used(code: str, expected: list[str]) -> None:
    assert ids(f"{code}\n{in_turn('pass')}") == expected
