"""Resumes that always fail are found as one finding with its chain; those that work are none."""

import pytest

from tests.doctor.python_code.code_audits import findings, ids

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = nn.Linear(config["width"], config["width"])

class Trainer(nn.Module):
    def __init__(self, net, schedule=None):
        super().__init__()
        self.net = net

class Progress:
    def __init__(self, step=0):
        self.step = step
"""
SAVING = """
import torch
from model import Net, Progress

def save(path, model, optimizer, progress, config=None):
    state = model.module.state_dict() if hasattr(model, "module") else model.state_dict()
    torch.save(
        {"model": state, "optimizer": optimizer.state_dict(), "progress": progress,
         "config": config if config is not None else None},
        path / "last.pt",
    )

def load(path):
    held = torch.load(path / "last.pt", map_location="cpu")
    config = held["config"]
    net = build(config)
    net.load_state_dict(held["model"])
    optimizer = torch.optim.SGD(net.parameters(), lr=config["lr"])
    optimizer.load_state_dict(held["optimizer"])
    return net, optimizer, held["progress"]

def build(config):
    return Net(config)
"""
TRAINING = """
import torch
from model import Net, Progress, Trainer
from saving import build, load, save

def main(config, loader, resume):
    if resume is None:
        net = build(config)
        trainer = Trainer(net).to("cuda")
        optimizer = torch.optim.SGD(trainer.parameters(), lr=0.1)
        progress = Progress()
    else:
        trainer, optimizer, progress = load(resume)
    for step, batch in enumerate(loader, progress.step):
        loss = trainer(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            save(config["folder"], trainer, optimizer, progress)
"""
PROJECT = {"model.py": MODEL, "saving.py": SAVING, "train.py": TRAINING}


def chain(files: dict[str, str]) -> list[str]:
    (detail,) = (f.detail for f in findings(files) if f.check.id == "resume-cannot-work")
    return detail.split("; ")


def changed(file: str, *pairs: tuple[str, str]) -> dict[str, str]:
    text = PROJECT[file]
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return {**PROJECT, file: text}


def is_found(files: dict[str, str]) -> bool:
    return "resume-cannot-work" in ids(files)


def test_one_finding_names_the_whole_chain() -> None:
    assert chain(PROJECT) == [
        '"config" is always None, and is used as if it were not',
        '"model" is saved from a Trainer (its names begin with "net.") and loaded into a Net',
        '"progress" is a pickled Progress, which torch.load refuses since torch 2.6',
        "trainer is a Trainer at a fresh start and a Net after a resume",
    ]


GIVEN = ("optimizer, progress)\n", "optimizer, progress, config)\n")
LINKS = [
    (changed("train.py", GIVEN), '"model" is saved'),
    (
        changed("train.py", ("trainer, optimizer, progress)\n", "net, optimizer, progress)\n")),
        '"config"',
    ),
    (
        changed("train.py", ("optimizer, progress)\n", "optimizer, progress, config=config)\n")),
        '"model" is',
    ),
]


@pytest.mark.parametrize(("files", "first"), LINKS, ids=["keys", "nothing given", "given by name"])
def test_each_link_alone_is_enough(files: dict[str, str], first: str) -> None:
    assert chain(files)[0].startswith(first)


CONFIGURATIONS = [
    "    net = Net(**held['config'])\n",
    "    net = Net(dict(held['config']))\n",
    "    net = Net(held['config']['model'])\n",
    "    net = Net(config=held.get('config'))\n",
    "    net = Net(OmegaConf.create(held['config']))\n",
    "    net = Net(held['config'].model)\n",
]


@pytest.mark.parametrize("made", CONFIGURATIONS)
def test_nothing_is_used_as_a_configuration(made: str) -> None:
    files = changed(
        "saving.py",
        ('    config = held["config"]\n    net = build(config)\n', made),
        ('config["lr"]', "0.1"),
        ("import torch\n", "import torch\nfrom omegaconf import OmegaConf\n"),
    )
    assert chain(files)[0].startswith('"config"')


IN_A_CLASS = """
import torch
from torch import nn

class Trainer(nn.Module):
    def __init__(self, net, loader):
        super().__init__()
        self.net = net
        self.loader = loader
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def save(self, path):
        torch.save({"net": self.state_dict(), "opt": self.optimizer.state_dict()}, path)

    def resume(self, path):
        held = torch.load(path, weights_only=True)
        WHOLE.load_state_dict(held["net"])
        self.optimizer.load_state_dict(held["opt"])

    def fit(self):
        for step, batch in enumerate(self.loader):
            self.net(batch).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if step % 100 == 0:
                self.save("last.pt")
"""
FLAT = """
import argparse
import torch
from model import Net, Trainer

net = Net({"width": 8})
trainer = Trainer(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if resume:
    snapshot = torch.load("last.pt", weights_only=True)
    weights = snapshot["weights"]
    WHOLE.load_state_dict(weights)
    optimizer.load_state_dict(snapshot["optim"])
for step, batch in enumerate(loader):
    trainer(batch).backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.save({"weights": trainer.state_dict(), "optim": optimizer.state_dict()}, "last.pt")
"""


@pytest.mark.parametrize(
    ("style", "part", "whole"), [(IN_A_CLASS, "self.net", "self"), (FLAT, "net", "trainer")]
)
def test_names_of_the_whole_do_not_fit_its_part(style: str, part: str, whole: str) -> None:
    assert is_found({"model.py": MODEL, "train.py": style.replace("WHOLE", part)})
    assert not is_found({"model.py": MODEL, "train.py": style.replace("WHOLE", whole)})


GIVES_IT = changed("train.py", GIVEN)["train.py"]
WHOLE = (
    ("net = build(config)", "net = Trainer(build(config))"),
    ("import Net,", "import Net, Trainer,"),
)
DEFAULT = "    if config is None:\n        config = {'width': 8, 'lr': 0.1}\n    net = build"
OWN_NAMES = """class Trainer(nn.Module):
    def state_dict(self):
        return self.net.state_dict()
"""
STATE = 'model.module.state_dict() if hasattr(model, "module") else model.state_dict()'
WORKS = {
    "the same object": {**changed("saving.py", *WHOLE), "train.py": GIVES_IT},
    "a default": changed("saving.py", ("    net = build", DEFAULT), *WHOLE),
    "other names": {
        **changed("saving.py", ('held["model"])', 'strip(held["model"]))')), "train.py": GIVES_IT,
    },
    "not strict": {
        **changed("saving.py", ('held["model"])', 'held["model"], strict=False)')),
        "train.py": GIVES_IT,
    },
    "the part": {**changed("saving.py", (STATE, "model.net.state_dict()")), "train.py": GIVES_IT},
    "another file": changed("saving.py", ('load(path / "last.pt"', 'load(path / "first.pt"')),
    "given once": {
        **changed("model.py", ("class Trainer(nn.Module):\n", OWN_NAMES)),
        "train.py": TRAINING + "    save(folder, trainer, optimizer, progress, config)\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("why", WORKS)
def test_a_resume_that_may_work_is_none(why: str) -> None:
    assert not is_found(WORKS[why])


STARTED = """
import argparse
import os
import torch

def train(args, model, loader, optimizer, scheduler, start=0):
{resume}
    for step, batch in enumerate(loader, start):
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            state = {{"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(), "global_step": step}}
            torch.save(state, "last.pt.tmp")
            os.replace("last.pt.tmp", "last.pt")
"""
ALL = {
    "model": "model.load_state_dict(held['model'])",
    "optimizer": "optimizer.load_state_dict(held['optimizer'])",
    "scheduler": "scheduler.load_state_dict(held.get('scheduler'))",
    "global_step": "start = held['global_step'] + 1",
}


def lost(*restored: str, before: str = "held = torch.load('last.pt')") -> list[str]:
    lines = ["if args.resume:", f"    {before}", *(f"    {each}" for each in restored)]
    resume = "".join(f"    {line}\n" for line in lines)
    files = {"train.py": STARTED.format(resume=resume)}
    return [f.detail for f in findings(files) if f.check.id == "resume-drops-saved-state"]


@pytest.mark.parametrize("key", ["optimizer", "scheduler", "global_step"])
def test_what_is_saved_and_not_restored_starts_over(key: str) -> None:
    kept = [line for name, line in ALL.items() if name != key]
    assert lost(*ALL.values()) == []
    assert lost(*kept) == [f'nothing reads "{key}"']
    assert lost(*kept, f"other = held.get('{key}_of')") == [f'nothing reads "{key}"']


@pytest.mark.parametrize(
    "restored",
    [
        [ALL["model"]],
        [ALL["model"], ALL["global_step"], "restore(held)"],
        [ALL["model"], ALL["global_step"], "print(held['optimizer'], held['scheduler'])"],
    ],
    ids=["weights alone are no resume", "handed on", "read for something else"],
)
def test_what_may_be_restored_is_not_called_lost(restored: list[str]) -> None:
    assert lost(*restored) == []


def test_a_file_of_another_name_is_another_checkpoint() -> None:
    given = [ALL["model"], ALL["global_step"]]
    assert lost(*given, before="held = torch.load('pretrained.pt')") == []
    assert len(lost(*given, before="held = torch.load(args.resume)")) == 1


@pytest.mark.parametrize(
    ("option", "expected"), [("weights_only=True", True), ("weights_only=False", False)]
)
def test_a_class_of_its_own_where_only_weights_are_loaded(option: str, expected: bool) -> None:
    code = f"""
import torch

class Progress:
    step = 0

def save(path, model, optimizer):
    torch.save(
        dict(model=model.state_dict(), optimizer=optimizer.state_dict(), progress=Progress()), path
    )

def train(model, loader, optimizer, path, resume):
    if resume:
        held = torch.load(path, {option})
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        progress = held["progress"]
    for batch in loader:
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    save(path, model, optimizer)
"""
    found = [f.detail for f in findings({"train.py": code}) if f.check_id == "resume-cannot-work"]
    assert [detail for detail in found if "a pickled Progress" in detail] == found
    assert bool(found) is expected
