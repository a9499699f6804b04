"""Rows of each rank belong to the log of the rank that prints, whenever they are found."""

import json
import os
from pathlib import Path

import pytest

from ldlm_monitor.logs.history.kinship import kin
from ldlm_monitor.logs.source.companions import Surroundings

BEGAN = 1_780_000_000.0


def rows_of(folder: Path, rank: int, run: str = "pair") -> Path:
    """Thirty rows of a rank, whose losses are its own."""
    head = {"schema": "ldlm.health/1", "type": "run", "run": run, "rank": rank, "world_size": 2}
    head |= {"pid": 700 + rank, "host": "node1", "framework": "pytorch", "config": {}}
    rows = [
        {"type": "step", "step": step, "time": BEGAN + step, "loss": (1 + 3 * rank) / (1 + step)}
        for step in range(30)
    ]
    path = folder / "saved" / run / f"health_rank{rank}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in (head, *rows)))
    os.utime(path, (BEGAN + 30, BEGAN + 30))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What rank 0 prints, without a time or a name."""
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {step} loss {1 / (1 + step):.4f}\n" for step in range(30)))
    os.utime(path, (BEGAN + 30, BEGAN + 30))
    return path


@pytest.mark.parametrize("known", [(), (0,), (1,)], ids=["at once", "after rank 0", "after rank 1"])
def test_ranks_whose_losses_the_log_has_not_are_of_the_run_of_the_one_it_has(
    log: Path, tmp_path: Path, known: tuple[int, ...]
) -> None:
    files = [rows_of(tmp_path, rank) for rank in range(2)]
    found, strangers = kin(log, Surroundings(), [files[rank].resolve() for rank in known])
    assert [each.path for each in found] == files
    assert strangers == []


def test_a_rank_of_another_run_is_none_of_it(log: Path, tmp_path: Path) -> None:
    mine, other = rows_of(tmp_path, 0), rows_of(tmp_path, 1, "older")
    found, strangers = kin(log, Surroundings(), [mine.resolve()])
    assert [each.path for each in found] == [mine]
    assert [(each.path, each.reason) for each in strangers] == [
        (other, "the losses at the log's steps are others")
    ]
