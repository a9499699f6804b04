"""Loaders whose options YAML files, argparse and classes with fields decide."""

import pytest

from ldlm_doctor.model import Kind, Project, SourceFile
from ldlm_doctor.python_code import audit
from tests.doctor.python_code.code_audits import findings, ids

LOADER = """
import argparse
from dataclasses import dataclass, field

import torch
from torch.utils.data import DataLoader
{before}

def train(model, train_set, optimizer, {names}):
    train_loader = DataLoader(train_set, {options})
    for batch in train_loader:
        model(batch.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
RAISES = "loader-options-without-workers"


def code(options: str, before: str = "", names: str = "cfg, args") -> str:
    filled = LOADER.replace("{options}", options).replace("{names}", names)
    return filled.replace("{before}", before)


YAML = "data:\n  num_workers: {}\n  keep: true\nmodel:\n  depth: 8\n"
PERSISTENT = "pin_memory=True, persistent_workers=True"


@pytest.mark.parametrize(
    "workers",
    [
        "cfg.data.num_workers",
        'cfg["data"]["num_workers"]',
        'cfg.data.get("num_workers", 4)',
        'cfg["data"].get("num_workers")',
        'getattr(cfg.data, "num_workers", 8)',
        "int(cfg.data.num_workers)",
        "args.num_workers",
    ],
)
def test_a_configuration_beside_the_code_says_that_there_are_no_workers(workers: str) -> None:
    text = code(f"num_workers={workers}, {PERSISTENT}")
    files = {"train.py": text, "config.yaml": YAML.format(0)}

    (found,) = findings(files)

    assert found.check.id == RAISES
    assert found.evidence.startswith("train_loader = DataLoader(")
    assert "data.num_workers in config.yaml:2" in found.detail
    assert RAISES not in ids({"train.py": text, "config.yaml": YAML.format(2)})
    assert RAISES not in ids(text)


def test_option_and_number_may_both_come_from_settings() -> None:
    text = code(
        "pin_memory=True, num_workers=cfg.data.num_workers, persistent_workers=cfg.data.keep"
    )
    (found,) = findings({"train.py": text, "config.yaml": YAML.format(0)})
    assert "data.num_workers in config.yaml:2" in found.detail
    assert "data.keep in config.yaml:3" in found.detail


DECLARED = {
    "argparse": (
        'parser = argparse.ArgumentParser()\nparser.add_argument("--num-workers", default=0)',
        "args.num_workers", "the default of num_workers in train.py:8",
    ),
    "dataclass": (
        "@dataclass\nclass DataConfig:\n    num_workers: int = 0",
        "cfg.num_workers", "DataConfig.num_workers in train.py:9",
    ),
    "nested": (
        """@dataclass
class DataConfig:
    num_workers: int = 0

@dataclass
class Config:
    data: DataConfig = field(default_factory=DataConfig)
""",
        "cfg.data.num_workers", "DataConfig.num_workers in train.py:9",
    ),
    "field": (
        "@dataclass\nclass DataConfig:\n    num_workers: int = field(default=0)",
        "cfg.num_workers", "DataConfig.num_workers in train.py:9",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", DECLARED)
def test_defaults_that_code_declares_count_too(kind: str) -> None:
    before, workers, where = DECLARED[kind]
    (found,) = findings({"train.py": code(f"num_workers={workers}, {PERSISTENT}", before)})
    assert (found.check.id, where in found.detail) == (RAISES, True), found.detail


CALLED_ONCE = """
def main(args):
    train(None, None, None, args, args.num_workers)

parser = argparse.ArgumentParser()
parser.add_argument("--num_workers", default=0, type=int)
"""


def test_a_number_is_followed_to_the_only_caller() -> None:
    text = code(f"num_workers=workers, {PERSISTENT}", CALLED_ONCE, "args, workers")
    assert ids(text) == [RAISES]
    twice = text + "\n\ndef other(args):\n    train(None, None, None, args, 4)\n"
    assert ids(twice) == []


def test_a_constant_of_another_file_is_looked_up() -> None:
    text = code(
        f"num_workers=NUM_WORKERS, {PERSISTENT}", "from project.constants import NUM_WORKERS"
    )
    files = {"project/train.py": text, "project/constants.py": "NUM_WORKERS = 0\n"}
    (found,) = findings(files)
    assert "NUM_WORKERS in project/constants.py:1" in found.detail


OPTION = 'parser = argparse.ArgumentParser()\nparser.add_argument("--num_workers", default=0)\n'
UNSURE = {
    "another file says otherwise": ("", {"a.yaml": YAML.format(0), "b.yaml": YAML.format(8)}),
    "the default says otherwise": (
        OPTION.replace("default=0", "default=8"), {"a.yaml": YAML.format(0)},
    ),
    "code stores it": ("def f(args):\n    args.num_workers = 8\n" + OPTION, {}),
    "code stores it by key": ('def f(cfg):\n    cfg["num_workers"] = 8\n' + OPTION, {}),
    "the parser's defaults": (OPTION + "parser.set_defaults(num_workers=4)\n", {}),
    "an instance is made with another": (
        "@dataclass\nclass Data:\n    num_workers: int = 0\n\nDATA = Data(num_workers=4)", {},
    ),
    "it must be given": (OPTION.replace("default=0", "default=0, required=True"), {}),
    "it is computed": (OPTION.replace("default=0", "default=count()"), {}),
    "a script gives it": (OPTION, {"run.sh": "torchrun train.py --num-workers 8\n"}),
    "it is another section's": ("", {"a.yaml": "evaluation:\n  num_workers: 0\n"}),
    "the file is a template": ("", {"a.yaml": "data:\n  num_workers: {{ n }}\n"}),
}  # fmt: skip


@pytest.mark.parametrize("why", UNSURE)
def test_where_it_is_not_certain_nothing_is_said(why: str) -> None:
    before, others = UNSURE[why]
    workers = "cfg.data.num_workers" if "section" in why else "args.num_workers"
    text = code(f"num_workers={workers}, {PERSISTENT}", before)
    kinds = {"sh": Kind.SHELL, "yaml": Kind.YAML}
    held = [SourceFile("train.py", Kind.PYTHON, text.encode())]
    held += [SourceFile(n, kinds[n.rpartition(".")[2]], t.encode()) for n, t in others.items()]
    assert RAISES not in [f.check.id for f in audit(Project(tuple(held)))]


def test_an_attribute_of_what_is_no_setting_is_not_looked_up() -> None:
    text = code(f"num_workers=train_set.num_workers, {PERSISTENT}")
    assert ids({"train.py": text, "config.yaml": YAML.format(0)}) == []


def test_too_many_workers_by_the_settings_name_the_place() -> None:
    text = code("num_workers=cfg.data.num_workers, persistent_workers=True, prefetch_factor=2")
    found = findings({"train.py": text, "config.yaml": YAML.format(96)})
    details = {f.check.id: f.detail for f in found}
    assert details["loader-too-many-workers"] == (
        "96 workers of one process, by data.num_workers in config.yaml:2"
    )
