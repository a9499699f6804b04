"""What was mended is run: two ranks that train for real, on CPUs."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.doctor.python_code.code_audits import clean, findings, ids, mended

pytest.importorskip("torch")
pytest.importorskip("yaml")
pytestmark = [pytest.mark.trainer, pytest.mark.live]


def trained(folder: Path, files: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Write the project and train it with two ranks."""
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*launch, "train.py"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def with_all_mendable_defects() -> dict[str, str]:
    files = clean()
    changes = {
        "data.py": [
            ('config["data"]["num_workers"]', 'config["data"].get("num_workers", 2)'),
            ("        pin_memory=torch.cuda.is_available(),\n", ""),
            ("        persistent_workers=num_workers > 0,  # torch refuses it", "        #"),
        ],
        "train.py": [
            ("        gradient_as_bucket_view=True,\n", "        static_graph=True,\n"),
            (", fused=on_gpu", ""),
            ("TORCH_NCCL_DUMP_ON_TIMEOUT", "NCCL_BLOCKING_WAIT"),
            ('jsonl", "a")', 'jsonl", "w")'),
        ],
        "saving.py": [
            ("(checkpoint, temporary)", '(checkpoint, folder / "checkpoint.pt")'),
            ('    os.replace(temporary, folder / "checkpoint.pt")\n', ""),
        ],
    }  # fmt: skip
    for path, its in changes.items():
        for old, new in its:
            assert old in files[path]
            files[path] = files[path].replace(old, new)
    files["train.py"] = files["train.py"].replace('f"step_{step:08d}"', '"latest"')
    return files


@pytest.mark.long  # what the edits are is asked in each run, and that they train in each night
def test_the_clean_project_and_one_with_all_edits_at_once_train(tmp_path: Path) -> None:
    spoilt = with_all_mendable_defects()
    edited = {f.check.id for f in findings(spoilt) if f.edits}
    assert edited == {
        "ddp-static-graph-with-no-sync",
        "ddp-gradient-as-bucket-view", "nccl-blocking-wait", "checkpoint-not-atomic",
    }  # fmt: skip
    after = mended(spoilt)
    assert not [f for f in findings(after) if f.edits]

    done = trained(tmp_path, after)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "saved/run/latest/checkpoint.pt").is_file()
    assert not list(tmp_path.glob("saved/run/latest/*.tmp"))
    assert (tmp_path / "saved/run/training_log_rank1.jsonl").read_text().count("loss") == 4


MODES = """
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Joint(nn.Module):
    def __init__(self):
        super().__init__()
        self.text, self.latent = nn.Linear(4, 4), nn.Linear(4, 4)

    def freeze(self, mode):
        for parameter in self.parameters():
            parameter.requires_grad = True
        unused = self.latent if mode == "l2t" else self.text
        for parameter in unused.parameters():
            parameter.requires_grad = False

    def forward(self, x, mode):
        self.freeze(mode)
        return (self.text if mode == "l2t" else self.latent)(x).square().mean()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    torch.manual_seed(0)
    model = DDP(Joint(), gradient_as_bucket_view=True, OPTIONS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        loss = model(torch.randn(2, 4) + dist.get_rank(), "l2t" if step % 3 else "t2l")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sums = [None, None]
    dist.all_gather_object(sums, sum(p.sum().item() for p in model.parameters()))
    assert sums[0] == sums[1], "the ranks have drifted apart"
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "check", "error"),
    [
        (
            "find_unused_parameters=False",
            "ddp-modes-freeze-parameters",
            "Expected to have finished reduction",
        ),
        ("static_graph=True", "ddp-static-graph-with-modes", "training graph has changed"),
    ],
)
def test_modes_that_freeze_crash_as_is_said_and_train_once_mended(
    tmp_path: Path, options: str, check: str, error: str
) -> None:
    spoilt = {"train.py": MODES.replace("OPTIONS", options)}
    assert check in ids(spoilt)

    crashed = trained(tmp_path, spoilt)
    assert crashed.returncode != 0
    assert error in crashed.stderr

    done = trained(tmp_path, mended(spoilt))
    assert done.returncode == 0, done.stderr
