"""Two ranks: gradients that travel smaller, and ranks that stay the same."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

from ldlm_trainer.config import Config
from ldlm_trainer.preflight import sends_bf16

NEEDS_NCCL = pytest.mark.skipif(not sends_bf16(), reason="torch is built without CUDA and NCCL")
pytestmark = [pytest.mark.trainer, pytest.mark.live]
Make = Callable[..., Config]


def words_of(settings: Config) -> list[str]:
    given = settings.model_dump(mode="json", exclude_defaults=True)
    return [
        f"{section}.{key}={json.dumps(value)}"
        for section, values in given.items()
        for key, value in values.items()
    ]


def rows(settings: Config) -> list[dict[str, float]]:
    lines = (settings.folder / "training_log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def train(settings: Config) -> list[dict[str, float]]:
    """The rows of a training of two ranks by torchrun."""
    run(settings, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        "-m", "ldlm_trainer", "train", *words_of(settings))  # fmt: skip
    return rows(settings)


FORKED = """
import json, multiprocessing, os, pathlib, socket, sys, torch
from ldlm_trainer import config
from ldlm_trainer.__main__ import _train

def one(rank, port, words):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    settings = config.load(None, words)
    _train(settings, None)
    names = [each.read_text() for each in pathlib.Path("/proc/self/task").glob("*/comm")]
    left = [name for name in names if "gloo" in name and not settings.ddp.shard]
    sys.exit(f"threads left: {left}" if left else 0)

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
fork = multiprocessing.get_context("fork")
ranks = [fork.Process(target=one, args=(rank, port, sys.argv[1:])) for rank in range(2)]
[each.start() for each in ranks]
[each.join() for each in ranks]
sys.exit(any(each.exitcode for each in ranks))
"""


def train_forked(settings: Config) -> list[dict[str, float]]:
    """The same without torchrun, in a third of the time: torch is imported once.

    No thread of gloo may be left: one that asks for Python's lock while the interpreter ends
    aborts the process. A sharded model keeps its group, but no Python runs in its threads.
    """
    run(settings, "-c", FORKED, *words_of(settings))
    return rows(settings)


def run(settings: Config, *words: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        (sys.executable, *words), capture_output=True, text=True, check=False, timeout=300,
        cwd=settings.run.save_dir.parent, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


# Two trainings of two ranks each.
@pytest.mark.long
@pytest.mark.parametrize(
    "compression",
    ["powersgd", "fp16", pytest.param("bf16", marks=NEEDS_NCCL)],
)
def test_compressed_gradients_train_as_well(
    settings: Make, tmp_path: Path, compression: str
) -> None:
    parts = {"schedule__steps": 30, "optim__lr": 3e-3, "objective__mode": "mixed"}
    plain = train(settings(run__name="plain", **parts))
    smaller = train(settings(run__name="smaller", ddp__compression=compression, **parts))
    assert smaller[0]["loss"] == plain[0]["loss"]
    assert [row["grad_norm"] for row in smaller] != [row["grad_norm"] for row in plain]
    ends = [sum(row["loss"] for row in rows[-5:]) / 5 for rows in (plain, smaller)]
    assert ends[1] == pytest.approx(ends[0], rel=0.05)


# A training of two ranks.
@pytest.mark.long
def test_powersgd_trains_a_model_of_several_buckets(settings: Make) -> None:
    """DDP's first bucket takes 1 MiB of gradients; each has three collectives, in one order."""
    parts = {"model__width": 64, "model__depth": 4, "objective__mode": "mixed"}
    found = train_forked(settings(schedule__steps=14, ddp__compression="powersgd", **parts))
    assert [row["skipped"] for row in found] == [0] * 14


# A training of two ranks.
@pytest.mark.long
def test_gradients_that_powersgd_compresses_stay_finite_where_some_are_zero(
    settings: Make,
) -> None:
    """A model begins with gates that are zero, and so are the gradients behind them."""
    found = train_forked(settings(schedule__steps=13, ddp__compression="powersgd"))
    assert [row["skipped"] for row in found] == [0] * 13


# A training of two ranks.
@pytest.mark.long
def test_a_gradient_that_is_not_finite_costs_one_step_under_powersgd(settings: Make) -> None:
    """The hook adds what it left out of a gradient to the next one, and that is NaN, too."""
    parts = {"schedule__steps": 16, "ddp__compression": "powersgd", "run__faults": "nan_loss@12"}
    found = train_forked(settings(**parts))
    assert [row["skipped"] for row in found] == [0] * 12 + [1] * 4


@pytest.mark.long  # four trainings of two ranks
def test_a_sharded_model_trains_as_a_replicated_one_and_resumes_to_the_last_bit(
    settings: Make,
) -> None:
    """Dropout, accumulation, clipping and evaluations of an odd number of batches included."""
    parts = {
        "schedule__steps": 6, "schedule__effective_batch": 16, "model__dropout": 0.1,
        "run__eval_every": 3, "run__eval_batches": 3, "run__save_every": 3,
    }  # fmt: skip
    plain = train_forked(settings(run__name="plain", **parts))
    sharded = settings(run__name="sharded", ddp__shard=True, **parts)
    found = train_forked(sharded)
    for name in ("loss", "grad_norm"):
        assert [row[name] for row in found] == pytest.approx([row[name] for row in plain], rel=1e-3)
    shutil.rmtree(sharded.folder / "step_00000006")
    resumed = train_forked(sharded)[6:]
    own = ("step", "loss", "grad_norm", "text_accuracy")
    assert [[row[key] for key in own] for row in resumed] == [
        [row[key] for key in own] for row in found[3:]
    ]
