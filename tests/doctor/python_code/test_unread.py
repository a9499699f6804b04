"""Settings that their own program never reads, or that end no loop, whatever others read."""

import pytest

from tests.doctor.python_code.code_audits import findings

LOOP = """
import argparse
import json
import sys
import torch
from dataclasses import dataclass
{above}
def train(cfg, args, model, loader, optimizer):
    step = 0
    {before}
    {loop}
        optimizer.param_groups[0]["lr"] = lr_at(step)
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        {after}

if __name__ == "__main__":
    train(*json.load(sys.stdin))
"""
EPOCHS = "for epoch in range(cfg.epochs):\n      for batch in loader:"
FLAT = "for batch in loader:"
SCHEDULE = "\ndef lr_at(step):\n    return 1e-3 * (1 - step / {steps})\n"
UNENDED = {
    "key of a configuration": (SCHEDULE.format(steps="cfg.training.num_train_steps"), "", FLAT),
    "option": (SCHEDULE.format(steps="args.max_steps"), "", EPOCHS),
    "dictionary": (SCHEDULE.format(steps='config["training"]["max_iters"]'), "", EPOCHS),
    "parsed, by a short name": (
        SCHEDULE.format(steps="a.max_steps") + "a = argparse.ArgumentParser().parse_args()\n",
        "", EPOCHS,
    ),
    "get": (SCHEDULE.format(steps='config.get("total_steps", 1000)'), "", FLAT),
    "name": (
        SCHEDULE.format(steps="TOTAL"),
        "total = cfg.max_train_steps\n    lr_at.total = total", FLAT,
    ),
    "bar": (SCHEDULE.format(steps="10"), "bar = tqdm(total=cfg.num_training_steps)", EPOCHS),
    "schedule that holds its end": (
        "\ndef lr_at(step):\n    if step > cfg.max_steps:\n        return 1e-5\n    return 1e-3\n",
        "", FLAT,
    ),
    "class": (
        "\nclass Schedule:\n    def __init__(self, cfg):\n        self.end = cfg.train_iters\n",
        "schedule = Schedule(cfg)", EPOCHS,
    ),
}  # fmt: skip


def at(check: str, files: dict[str, str]) -> list[tuple[str, str]]:
    return [(f.path, f.evidence) for f in findings(files) if f.check_id == check]


def loop(above: str = "", before: str = "", turns: str = FLAT, after: str = "pass") -> str:
    return LOOP.format(above=above, before=before or "pass", loop=turns, after=after)


@pytest.mark.parametrize("style", UNENDED)
def test_a_number_of_steps_that_ends_no_loop(style: str) -> None:
    above, before, turns = UNENDED[style]
    assert len(at("steps-end-no-loop", {"train.py": loop(above, before, turns)})) == 1


@pytest.mark.parametrize(
    ("before", "turns", "after"),
    [
        ("pass", "for batch in islice(loader, cfg.max_steps):", "pass"),
        ("pass", FLAT, "if step >= cfg.max_steps:\n            break"),
        ("pass", FLAT, "if step == cfg.max_steps:\n            return"),
        ("end = cfg.max_steps", "while step < end:", "pass"),
        ("epochs = cfg.max_steps // len(loader)", "for epoch in range(epochs):", "pass"),
        ("fit(cfg, steps=cfg.max_steps, **vars(args))", FLAT, "pass"),
        ("pass", FLAT, "done = step >= cfg.max_steps\n        if done: break"),
    ],
)
def test_a_number_of_steps_that_ends_the_loop(before: str, turns: str, after: str) -> None:
    above = SCHEDULE.format(steps="cfg.max_steps")
    assert at("steps-end-no-loop", {"train.py": loop(above, before, turns, after)}) == []


OTHER = loop(turns="for micro in range(cfg.training.gradient_accumulation_steps):")
YAML = "training:\n  gradient_accumulation_steps: 8\n"
OPTION = 'argparse.ArgumentParser().add_argument("--accum_iter", type=int, default=4)'
HYDRA = 'import hydra\n@hydra.main(config_path="configs", config_name="base")\n'
UNREAD: dict[str, dict[str, str]] = {
    "beside its program": {"ours/train.py": loop(), "ours/config.yaml": YAML},
    "in a folder of its own": {"ours/train.py": loop(), "ours/configs/base.yaml": YAML},
    "by Hydra": {"ours/train.py": loop(HYDRA), "configs/base.yaml": YAML},
    "named by a path": {
        "ours/train.py": loop(before='cfg = load("settings/small.yaml")'),
        "settings/small.yaml": YAML,
    },
    "option": {"ours/train.py": loop(OPTION)},
    "option of a module": {
        "ours/train.py": loop("from options import parsed"),
        "ours/options.py": f"import argparse\n{OPTION}\n",
    },
    "class": {"ours/train.py": loop("@dataclass\nclass Settings:\n    grad_accum: int = 8\n")},
    "constant": {"ours/train.py": loop("GRAD_ACCUM_STEPS = 8\n")},
}


@pytest.mark.parametrize("style", UNREAD)
def test_an_accumulation_that_only_another_program_reads(style: str) -> None:
    theirs = OTHER.replace("gradient_accumulation_steps", "accum_iter + cfg.grad_accum") + OTHER
    both = UNREAD[style] | {"theirs/train.py": theirs}
    ((path, line),) = at("accumulation-unread", both)
    assert not path.startswith("theirs")
    assert "accum" in line.lower()


@pytest.mark.parametrize(
    "files",
    [
        {"a/train.py": OTHER, "a/config.yaml": YAML},
        {"a/train.py": loop("from steps import micro"), "a/config.yaml": YAML,
         "a/steps.py": "def micro(cfg):\n    return cfg.gradient_accumulation_steps\n"},
        {"a/train.py": loop(before="fit(**args)"), "a/config.yaml": YAML},
        {"a/train.py": loop("from transformers import Trainer"), "a/config.yaml": YAML},
        {"a/train.py": OTHER, "b/train.py": OTHER, "shared.yaml": YAML},
        {"a/train.py": OTHER + "\nif True:\npass\n", "b/t.py": loop(), "a/config.yaml": YAML},
    ],
)  # fmt: skip
def test_an_accumulation_that_its_program_reads_or_hands_on(files: dict[str, str]) -> None:
    assert at("accumulation-unread", files) == []
