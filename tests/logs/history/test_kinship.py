"""Rows of each rank belong to the log of the rank that prints, whenever they are found."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.logs.history.kinship import SLACK_SECONDS, ZONE_SECONDS, evidence, kin, traits_of
from ldlm_monitor.logs.source.companions import Surroundings
from ldlm_monitor.logs.source.file_system import DIRECT

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


STEPS = range(30)


def text_log(folder: Path, head: str = "", *, steps: range = STEPS, ends: float = 30.0) -> Path:
    path = folder / "train.log"
    lines = [f"step {step} loss {1 / (1 + step):.4f}\n" for step in steps]
    path.write_text(head + "".join(lines))
    os.utime(path, (BEGAN + ends, BEGAN + ends))
    return path


def rows(
    folder: Path, *, scale: float = 1.0, steps: range = STEPS, begins: float | None = 0.0,
    ends: float = 30.0, header: dict[str, object] | None = None,
) -> Path:  # fmt: skip
    """Rows with `scale` times the log's losses, from `begins` seconds on; None: without times."""
    path = folder / "rows.jsonl"
    found = [] if header is None else [header]
    for step in steps:
        time = {} if begins is None else {"time": BEGAN + begins + step}
        found.append({"step": step, "loss": scale / (1 + step), **time})
    path.write_text("".join(json.dumps(each) + "\n" for each in found))
    os.utime(path, (BEGAN + ends, BEGAN + ends))
    return path


def why(log: Path, other: Path, named: str = "") -> tuple[str, bool]:
    return evidence(traits_of(log, DIRECT), traits_of(other, DIRECT), named)


CALLBACK = {
    "schema": "ldlm.health/1",
    "type": "run",
    "run": "qwen",
    "rank": 0,
    "host": "n1",
    "pid": 7,
}
NOTHING = "nothing shows that one launch wrote both"
OVERLAPS = "it was written while its log was"
OTHERS = "the losses at the log's steps are others"
NAMES_IT = "Error executing job with overrides: ['logging.run_name=qwen']\n"
PROCESS = "n1:7:99 [0] NCCL INFO Bootstrap : Using eth0\n"
STAMPED = "2026-05-28T20:26:40Z it begins\n"  # at BEGAN


@pytest.mark.parametrize(
    ("head", "files", "named", "found"),
    [
        ("", ({}, {}), "", ("its losses are those of the log at 30 steps", True)),
        ("", ({}, {"begins": None}), "", ("its losses are those of the log at 30 steps", True)),
        # So near are two launches that differ by a seed alone, too.
        ("", ({}, {"scale": 1.005, "begins": None}), "", (NOTHING, False)),
        ("", ({}, {"scale": 1.5}), "", (OTHERS, False)),
        ("", ({}, {"scale": 1.5}), "its log names it", ("its log names it", True)),
        # Means over some steps are near, and decide nothing: when it was written does.
        ("", ({}, {"scale": 1.1}), "", (OVERLAPS, True)),
        ("", ({}, {"scale": 1.1, "begins": None}), "", (NOTHING, False)),
        ("", ({}, {"steps": range(1)}), "", (OVERLAPS, True)),
        ("", ({"ends": 400.0}, {"steps": range(1)}), "", (NOTHING, False)),
        ("", ({}, {"steps": range(1), "begins": 30 + SLACK_SECONDS}), "",
         (OVERLAPS, True)),
        ("", ({}, {"steps": range(1), "begins": 31 + SLACK_SECONDS}), "",
         (NOTHING, False)),
        # What ended before the log began is of an earlier launch, whatever names it.
        (STAMPED, ({}, {"begins": None, "ends": -ZONE_SECONDS - 1}), "its log names it",
         ("the last write was before the log began", False)),
        (STAMPED, ({}, {"begins": None, "ends": 1 - ZONE_SECONDS}), "its log names it",
         ("its log names it", True)),
        ("", ({"steps": range(9), "ends": 500.0}, {}), "",
         ("the last row, of a later step, was before the log's last line", False)),
        ("", ({"steps": range(29), "ends": 500.0}, {}), "",
         ("its losses are those of the log at 29 steps", True)),
        (NAMES_IT, ({}, {"scale": 1.5, "header": CALLBACK}), "",
         ("its log names the run qwen", True)),
        (PROCESS, ({}, {"scale": 1.5, "header": CALLBACK}), "",
         ("its log names the process n1:7", True)),
        (PROCESS, ({}, {"scale": 1.5, "header": {**CALLBACK, "pid": 8}}), "",
         (OTHERS, False)),
    ],
)  # fmt: skip
def test_what_shows_that_one_launch_wrote_both(
    tmp_path: Path, head: str, files: tuple[dict[str, Any], ...], named: str,
    found: tuple[str, bool],
) -> None:  # fmt: skip
    log, other = files
    assert why(text_log(tmp_path, head, **log), rows(tmp_path, **other), named) == found


def test_steps_of_rows_count_from_0_where_those_of_the_log_count_from_1(tmp_path: Path) -> None:
    log = text_log(tmp_path, steps=range(1, 31))
    log.write_text("".join(f"step {step} loss {1 / step:.4f}\n" for step in range(1, 31)))
    os.utime(log, (BEGAN + 30, BEGAN + 30))
    assert why(log, rows(tmp_path))[1]


def test_a_bar_that_repeats_the_last_loss_agrees_where_it_shows_a_new_one(tmp_path: Path) -> None:
    """Every tenth loss is printed, and stands in the bar until the next: rows without times."""
    shown = (f"step {step} loss {1 / (1 + step // 10 * 10):.4f}\n" for step in range(60))
    log = tmp_path / "train.log"
    log.write_text("".join(shown))
    found = why(log, rows(tmp_path, steps=range(60), begins=None))
    assert found == ("its losses are those of the log at 6 steps", True)


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (("0.7", "0.6", "0.5", "0.4"), (NOTHING, False)),
        (("0.713", "0.622"), (NOTHING, False)),
        (("0.713", "0.622", "0.531"), ("its losses are those of the log at 3 steps", True)),
    ],
)
def test_few_digits_agree_by_chance(
    tmp_path: Path, printed: tuple[str, ...], found: tuple[str, bool]
) -> None:
    log, other = tmp_path / "train.log", tmp_path / "rows.jsonl"
    log.write_text("".join(f"step {step} loss {loss}\n" for step, loss in enumerate(printed)))
    other.write_text(
        "".join(f'{{"step": {at}, "loss": {loss}}}\n' for at, loss in enumerate(printed))
    )
    assert why(log, other) == found


LAUNCHES = ("mine_20260129_101500", "mine_20260129_101537")


def launched(folder: Path, launch: str, *, ends: float, closed: bool = True) -> Path:
    """A callback's rows under `ldlm-monitor run`, the first 5 s after its launch, in any zone."""
    rows(folder, ends=ends, header={**CALLBACK, "run": "x", "pid": 8, "launch": launch})
    path = folder / "rows.jsonl"
    if closed:
        end = json.dumps({"type": "end", "time": BEGAN + ends, "status": "finished"})
        path.write_text(path.read_text() + end + "\n")
    return path


def test_rows_of_the_launch_before_are_none_of_it_although_its_losses_are_the_same(
    tmp_path: Path,
) -> None:
    (old, new), path = LAUNCHES, launched(tmp_path, LAUNCHES[0], ends=30)
    logs = [text_log(tmp_path, ends=ends) for ends in (30, 67)]
    logs = [logs[0].rename(tmp_path / f"{old}.log"), tmp_path / f"{new}.log"]
    logs[1].write_text(logs[0].read_text())
    os.utime(logs[1], (BEGAN + 67, BEGAN + 67))
    found = [why(log, path) for log in logs]
    assert found[0] == (f"its callback names the launch {old}", True)
    assert found[1] == (f"its callback names the launch {old}, before the log's", False)


def test_rows_that_a_resumed_run_appends_are_of_its_launch_too(tmp_path: Path) -> None:
    path = launched(tmp_path, LAUNCHES[0], ends=30, closed=False)
    more = (json.dumps({"step": at, "loss": 1 / (1 + at), "time": BEGAN + 40 + at}) for at in STEPS)
    path.write_text(path.read_text() + "\n".join(more) + "\n")
    log = text_log(tmp_path, ends=75).rename(tmp_path / f"{LAUNCHES[1]}.log")
    assert why(log, path)[1]


def test_rows_whose_process_ended_are_none_of_a_log_that_goes_on_and_never_came_so_far(
    tmp_path: Path,
) -> None:
    """Without a launch's name: twelve steps of a second launch with the same seed."""
    head = {key: each for key, each in CALLBACK.items() if key != "launch"}
    path = rows(tmp_path, header=head)
    end = json.dumps({"type": "end", "time": BEGAN + 30, "status": "finished"})
    path.write_text(path.read_text() + end + "\n")
    log = text_log(tmp_path, steps=range(12), ends=50.0)
    assert why(log, path) == (
        "the last row, of a later step, was before the log's last line",
        False,
    )
