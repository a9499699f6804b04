"""Checkpoints: whole or not there; the last good one always stays."""

import errno
from pathlib import Path
from typing import BinaryIO

import pytest

from ldlm_trainer.errors import TrainerError

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

import torch

from ldlm_trainer.checkpoint import Keeper, open_checkpoint

CPU = torch.device("cpu")


def state(value: float) -> dict[str, object]:
    return {
        "model": {"weight": torch.full((1000,), value)},
        "optim": {"step": value},
        "rng": {0: {"torch": torch.get_rng_state()}},
    }


def save(keeper: Keeper, *steps: int) -> None:
    for step in steps:
        keeper.save(step, state(step), {"note": "x"})


def steps(keeper: Keeper) -> list[int]:
    return [checkpoint.step for checkpoint in keeper.all()]


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, keep=3)
    save(keeper, 5)
    found = keeper.newest_good()
    assert found is not None
    held = found.load(CPU)
    assert torch.equal(held["model"]["weight"], torch.full((1000,), 5.0))
    assert held["optim"] == {"step": 5.0}
    assert found.meta["note"] == "x"
    assert (tmp_path / "latest").resolve() == found.path


def test_the_newest_stay_and_milestones_the_best_and_the_source_with_them(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, keep=2, milestone_every=100)
    save(keeper, 50)
    keeper.source = tmp_path / "step_00000050"
    save(keeper, 100)
    save(keeper, 110)
    keeper.best = 110
    save(keeper, 120, 130, 140, 150)
    assert steps(keeper) == [50, 100, 110, 140, 150]


def test_what_is_no_checkpoint_is_left_alone(tmp_path: Path) -> None:
    """The seeds' patterns would have deleted these."""
    for name in ("eval-7", "samples-100", "2026-01-29", "step_1", "step_00000001.bak"):
        (tmp_path / name).mkdir()
    (tmp_path / "step_00000002").mkdir()  # not complete
    keeper = Keeper(tmp_path, keep=1)
    save(keeper, 10, 20)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"eval-7", "samples-100", "2026-01-29", "step_1", "step_00000001.bak"} <= names
    assert "step_00000002" in names
    assert steps(keeper) == [20]


@pytest.mark.parametrize("file", ["model.pt", "optim.pt", "rng.pt", "meta.json"])
def test_a_full_disk_leaves_the_last_one(tmp_path: Path, file: str) -> None:
    def opened(path: Path) -> BinaryIO:
        is_full = path.name == file and path.parent.name.endswith("20")
        return (Path("/dev/full") if is_full else path).open("wb")

    keeper = Keeper(tmp_path, keep=1, opened=opened)
    save(keeper, 10)
    with pytest.raises(OSError, match="No space left") as error:
        save(keeper, 20)
    assert error.value.errno == errno.ENOSPC
    found = keeper.newest_good()
    assert found is not None
    assert found.step == 10
    assert (tmp_path / "latest").resolve() == found.path
    assert not list(tmp_path.glob(".writing*"))
    save(keeper, 30)
    assert steps(keeper) == [30]


@pytest.mark.parametrize("file", ["model.pt", "optim.pt", "rng.pt"])
def test_a_damaged_one_is_passed_over(tmp_path: Path, file: str) -> None:
    keeper = Keeper(tmp_path, keep=3)
    save(keeper, 10, 20)
    damaged = tmp_path / "step_00000020" / file
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    found = keeper.newest_good()
    assert found is not None
    assert found.step == 10
    with pytest.raises(TrainerError, match="no whole checkpoint"):
        open_checkpoint(tmp_path / "step_00000020")


def test_a_damaged_newest_one_does_not_cost_the_last_good_one(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, keep=2)
    save(keeper, 10, 20)
    for name in ("step_00000020",):
        (tmp_path / name / "model.pt").write_bytes(b"")
    found = keeper.newest_good()
    assert found is not None
    assert found.step == 10
    keeper.source = found.path  # a launch resumes from it
    save(keeper, 30, 40)
    assert 10 in steps(keeper)


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".writing-00000007").mkdir()
    (tmp_path / ".writing-00000007/model.pt").write_bytes(b"half")
    (tmp_path / ".replaced-00000005").mkdir()
    save(Keeper(tmp_path, keep=3), 10)
    assert {path.name for path in tmp_path.iterdir()} == {"step_00000010", "latest"}


def test_a_step_may_be_written_again(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, keep=3)
    save(keeper, 10)
    keeper.save(10, state(99.0), {})
    found = keeper.newest_good()
    assert found is not None
    assert found.load(CPU)["optim"] == {"step": 99.0}


def test_no_code_is_run_by_loading(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (print, ("never",))

    keeper = Keeper(tmp_path, keep=1)
    keeper.save(1, {**state(1.0), "rng": Evil()}, {})
    found = keeper.newest_good()
    assert found is not None
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        found.load(CPU)
