"""What the doctor says nothing about: tests, other people's trainers, what it cannot know."""

import pytest

from ldlm_doctor.model import Kind, Project, SourceFile
from ldlm_doctor.python_code import audit
from tests.doctor.python_code.code_audits import findings, ids, in_turn

HANGS = in_turn("if torch.isnan(loss): continue")


@pytest.mark.parametrize(
    "path",
    ["tests/test_train.py", "tests/helper.py", "test_train.py", "conftest.py", "train_test.py"],
)
def test_tests_are_left_out(path: str) -> None:
    assert ids({path: HANGS, "src/empty.py": ""}) == []


@pytest.mark.parametrize(
    "path", ["train.py", "/home/me/tests/project/train.py", "tests/one/train.py", "latest/train.py"]
)
def test_where_the_whole_project_lies_makes_no_test_of_it(path: str) -> None:
    assert ids({path: HANGS}) == ["nan-skip-on-one-rank"]


LOADER = """
import torch
from torch.utils.data import DataLoader

def train(model, train_set, optimizer, args, workers, **options):
    for batch in DataLoader(train_set, {options}):
        model(batch.cuda()).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "options",
    [
        "num_workers=args.workers, pin_memory=True",
        "num_workers=workers, pin_memory=True, persistent_workers=args.persistent",
        "**options",
        "num_workers=4, **options",
        "num_workers=0",
        "batch_size=8",
        "num_workers=args.workers, pin_memory=args.pin, prefetch_factor=2",
        "num_workers=max(1, cpus // ranks), persistent_workers=True, pin_memory=True",
        "num_workers=4, pin_memory=True, persistent_workers=True, prefetch_factor=2",
    ],
)
def test_what_a_setting_decides_is_unknown(options: str) -> None:
    assert ids(LOADER.replace("{options}", options)) == []


@pytest.mark.parametrize(
    "options",
    [
        "persistent_workers=True",
        "prefetch_factor=2, num_workers=0",
        "num_workers=0, timeout=3600",
        "8, True, None, None, 0, persistent_workers=True",
    ],
)
def test_options_of_workers_without_workers_raise(options: str) -> None:
    assert ids(LOADER.replace("{options}", options)) == ["loader-options-without-workers"]


def test_a_default_of_argparse_is_what_most_runs_have() -> None:
    code = LOADER.replace("{options}", "num_workers=args.num_workers, pin_memory=True") + (
        "\nimport argparse\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--num-workers", type=int, default=8)\n'
    )
    assert ids(code) == ["loader-persistent-workers"]


def test_options_kept_in_a_dictionary_are_given() -> None:
    code = LOADER.replace("{options}", "num_workers=4, pin_memory=True, **several").replace(
        "    for batch",
        "    several = dict(persistent_workers=True)\n"
        '    several["prefetch_factor"] = 4\n    for batch',
    )
    assert ids(code) == []


def test_workers_that_stay_would_not_see_a_data_set_that_changes() -> None:
    code = (
        LOADER.replace("{options}", "num_workers=4, pin_memory=True")
        .replace("        optimizer.step()", "        optimizer.step()\n    train_set.set_epoch(1)")
        .replace("train_set", "dataset")
    )
    (first,) = findings({"train.py": code})
    assert first.check.id == "loader-persistent-workers"
    assert first.edits == ()


def test_a_loader_for_evaluation_alone_is_no_concern() -> None:
    code = """
import torch
from torch.utils.data import DataLoader

def score(model, dataset):
    val_loader = DataLoader(dataset, num_workers=4)
    with torch.no_grad():
        return sum(model(batch.cuda()).item() for batch in val_loader)
"""
    assert ids(code) == []
    assert ids({"eval.py": code, "train.py": in_turn("pass")}) == []


FRAMEWORKS = {
    "lightning": """
import lightning as L
import torch
from torch.utils.data import DataLoader, DistributedSampler

class Module(L.LightningModule):
    def training_step(self, batch, index):
        loss = self.model(batch.cuda())
        if torch.isnan(loss):
            return None
        self.log("loss", loss)
        return loss

    def train_dataloader(self):
        return DataLoader(self.data, sampler=DistributedSampler(self.data))
""",
    "accelerate": """
import torch
from accelerate import Accelerator

def train(model, optimizer, loader, epochs):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(epochs):
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(batch)
                accelerator.backward(loss)
                if (step + 1) % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
""",
    "transformers": """
from transformers import Trainer, TrainingArguments

def main(model, data):
    arguments = TrainingArguments("out", gradient_accumulation_steps=4)
    Trainer(model, arguments, train_dataset=data).train(resume_from_checkpoint=True)
""",
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_a_framework_does_by_itself_is_not_asked_of_its_user(name: str) -> None:
    assert ids(FRAMEWORKS[name]) == []


def test_a_model_that_nobody_trains_needs_no_checkpointing() -> None:
    model = """
from torch import nn

class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([TransformerBlock() for _ in range(24)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""
    assert ids({"model.py": model, "serve.py": "from model import Transformer\n"}) == []
    trained = {"model.py": model, "train.py": "from model import Transformer\n" + in_turn("pass")}
    assert ids(trained) == ["model-no-activation-checkpointing"]
    assert ids({**trained, "model.py": model.replace("range(24)", "range(2)")}) == []


def test_comments_strings_and_definitions_are_no_code() -> None:
    code = '''
"""DDP(model, find_unused_parameters=True, static_graph=True)"""
# os.environ["NCCL_TIMEOUT"] = "7200"
EXAMPLE = "if torch.isnan(loss): continue"

def wrap(model):
    """Call DDP(model, find_unused_parameters=True) where modes freeze."""
    return model
'''
    assert ids(code) == []


def test_a_file_that_is_no_python_is_one_finding() -> None:
    for content in (b'print "old"\n', b"def (:\n", b"x = 1\x00\n", b"\xff\xfe", b"(" * 3000):
        (found,) = findings({"old.py": content})
        assert found.check.id == "python-not-parsed"
        assert found.check.severity == "info"
        assert found.line >= 1


def test_names_that_stand_for_themselves_or_for_one_another_are_unknown() -> None:
    code = """
import torch
from torch.utils.data import DataLoader

out = str(out)
several = dict(several)
workers, others = others, workers
n = min(n, m)
m = min(m, n)
first = second
second = first

for batch in DataLoader(train_set, num_workers=n, timeout=1, **several):
    model(batch.cuda()).backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), out)
    torch.save(optimizer.state_dict(), first)
    for old in found[first:]:
        checkpoint.unlink(old)

class Keeper:
    def run(self):
        path = self.path
        self.path = path
        for batch in loader:
            model(batch).backward()
            optimizer.step()
            torch.save(optimizer.state_dict(), self.path)
"""
    assert "python-not-parsed" not in ids(code)


def test_code_that_is_nested_too_deeply_to_follow_is_said_to_be_unread() -> None:
    deep = "x = " + "a." * 900 + "b()\n" + HANGS
    assert ids({"deep.py": deep, "train.py": HANGS})[-1] == "nan-skip-on-one-rank"


def test_an_unreadable_file_hides_none_of_the_others() -> None:
    files = {"a.py": "def (", "b.py": HANGS}
    assert ids(files) == ["python-not-parsed", "nan-skip-on-one-rank"]


def test_findings_come_in_the_order_of_the_files_and_lines() -> None:
    first = SourceFile("z.py", Kind.PYTHON, HANGS.encode())
    second = SourceFile("a.py", Kind.PYTHON, in_turn("loss = loss.clamp(max=1)").encode())
    found = [(f.path, f.line) for f in audit(Project((first, second)))]
    assert found == [("z.py", 11), ("a.py", 11)]


def test_many_files_that_import_one_another_are_audited_together() -> None:
    count = 300
    files = {
        f"m{at}.py": f"import m{(at + 1) % count}\nimport m{(at * 7) % count}\n"
        for at in range(count)
    }
    files["m0.py"] += HANGS
    files["m150.py"] += "from torch import nn\n"
    assert ids(files) == ["nan-skip-on-one-rank"]


def test_a_loader_that_is_made_for_every_epoch_has_no_workers_to_keep() -> None:
    code = """
import torch
from torch.utils.data import DataLoader

def train(model, train_set, optimizer, epochs):
    for epoch in range(epochs):
        train_loader = DataLoader(train_set, num_workers=4, pin_memory=True)
        for batch in train_loader:
            model(batch.cuda()).backward()
            optimizer.step()
"""
    assert ids(code) == []


def test_a_number_of_workers_that_the_object_holds_is_looked_up() -> None:
    code = """
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, data, model, optimizer):
        self.data, self.model, self.optimizer = data, model, optimizer
        self.workers = 4

    def run(self):
        for batch in DataLoader(self.data, num_workers=self.workers, pin_memory=True):
            self.model(batch.cuda()).backward()
            self.optimizer.step()
"""
    assert ids(code) == ["loader-persistent-workers"]


EPOCHS = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model, optimizer):
    sampler = DistributedSampler(dataset{shuffle})
    loader = DataLoader(dataset, sampler=sampler)
    for epoch in range(10):
        model.train()  # each time
        for batch in loader:
            model(batch).backward()
            optimizer.step()
"""


SPLIT = """
import random
import numpy as np
import torch
from torch.utils.data import Subset, random_split

def make(data, seed, rank, count):
    {seeds}
    {split}

""" + in_turn("pass")


@pytest.mark.parametrize(
    ("seeds", "split", "expected"),
    [
        ("torch.manual_seed(seed + rank)", "return random_split(data, [9, 1])", True),
        (
            "own = seed + rank\n    random.seed(own)",
            "random.shuffle(order)\n    return Subset(data, order[:9])",
            True,
        ),
        ("torch.manual_seed(seed)", "return random_split(data, [9, 1])", False),
        (
            "torch.manual_seed(seed + rank)",
            "return random_split(data, [9, 1], generator=torch.Generator().manual_seed(seed))",
            False,
        ),
        ("random.seed(seed + rank)", "random.shuffle(order)\n    return order", False),
        ("torch.Generator().manual_seed(seed + rank)", "return random_split(data, [9, 1])", False),
    ],
)
def test_a_split_by_numbers_that_each_rank_draws_for_itself_leaks(
    seeds: str, split: str, expected: bool
) -> None:
    code = SPLIT.replace("{seeds}", seeds).replace("{split}", split)
    assert ids(code) == (["split-differs-between-ranks"] if expected else [])


@pytest.mark.parametrize(
    "workers",
    ["config.data.num_workers", 'config["num_workers"]', 'min(8, config.get("num_workers"))'],
)
def test_the_settings_of_the_project_say_how_many_workers_there_are(workers: str) -> None:
    code = LOADER.replace("{options}", f"num_workers={workers}, pin_memory=True")
    settings = "data:\n  num_workers: {}  # a rank\n"

    several = {"train.py": code, "config.yaml": settings.format(4)}
    assert ids(several) == ["loader-persistent-workers"]
    assert ids({"train.py": code, "config.yaml": settings.format(0)}) == []
    assert ids({"train.py": code}) == []
