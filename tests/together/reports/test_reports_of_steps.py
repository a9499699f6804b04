"""What users of other tools reported: steps that fall, bars that are full, values that are few.

Each log is made here in the form of the report; what must hold is what a person at night needs.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

BEGAN = 1_790_000_000
Lines = Iterator[str]


def played(folder: Path, lines: Lines, name: str = "train.log") -> tuple[RunView, list[str]]:
    """The run of a log, and the alerts that fired."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", "utf-8")
    replay = Replay(Settings(files=(str(path),), companions=False))
    fired = [each.alert for each in replay.transitions() if each.state == "firing"]
    (run,) = replay.snapshot().runs
    return run, [alert for alert in fired if alert != "Watchdog"]


def row(step: int, seconds: float, loss: float) -> str:
    return json.dumps({"step": step, "loss": round(loss, 4), "time": BEGAN + seconds})


def falling(step: float) -> float:
    """A loss that falls from 12 to 2.3, with a little of a batch's noise."""
    return 2.3 + 9.7 * math.exp(-step / 40) + 0.03 * math.sin(step * 7)


def second_training() -> Lines:
    for launch in range(2):
        for step in range(1, 201):
            yield row(step, launch * 700 + step * 2, falling(step))


def step_of_each_epoch() -> Lines:
    for epoch in range(5):
        for step in range(1, 101):
            at = epoch * 100 + step
            yield row(step, at * 2, falling(at))


def resumed() -> Lines:
    yield from (row(step, step * 2, 3 - step / 200) for step in range(1, 213))
    for step in range(201, 401):
        yield row(step, 84 + step * 2, math.nan if step == 205 else 2.9 - step / 200)


@pytest.mark.parametrize(
    ("lines", "restarts", "fired", "productive"),
    [
        (second_training, 1, ["TrainingStalled"], (0.3, 0.45)),
        (step_of_each_epoch, 0, [], (0.99, 1)),
        (resumed, 1, ["TrainingStalled", "NonFiniteLoss"], (0.85, 0.95)),
    ],
)
def test_a_step_that_falls_is_an_epoch_a_resume_or_another_training(
    tmp_path: Path,
    lines: Callable[[], Lines],
    restarts: int,
    fired: list[str],
    productive: tuple[float, float],
) -> None:
    run, alerts = played(tmp_path, lines(), "rows.jsonl")
    assert alerts == fired
    assert isinstance(run.goodput, Goodput)
    assert (run.attempt - 1, run.goodput.failures) == (restarts, restarts)
    assert productive[0] <= run.goodput.share <= productive[1]


BOX = ("╒═══════╤════════╕", "│ label │   loss │", "╞═══════╪════════╡", "│ test  │ 0.9805 │")


def meter(name: str, step: int, total: int) -> str:
    return f"{name}{step * 100 // total}%|#####| {step}/{total} [00:18<00:00, 24.80it/s]"


def bar_of_each_epoch(epochs: int, steps: tuple[int, ...] = (469,)) -> Lines:
    for epoch in range(1, epochs + 1):
        yield f"Epoch {epoch}"
        yield from (meter("Training: ", step, 469) for step in steps)
        yield meter("Evaluation test : ", 79, 79)
        yield from BOX


def bar_over_epochs() -> Lines:
    for step in range(0, 301, 5):
        if step % 100 == 5:
            yield f"Epoch {step // 100 + 1}"
        yield meter("", step, 300)


@pytest.mark.parametrize(
    ("lines", "state", "total"),
    [
        (lambda: bar_of_each_epoch(1), "running", None),
        (lambda: bar_of_each_epoch(3), "running", None),
        (lambda: bar_of_each_epoch(3, (0, 200, 469)), "running", None),
        (bar_over_epochs, "finished", 300),
    ],
)
def test_a_full_bar_below_an_epochs_heading_ends_that_epoch_alone(
    tmp_path: Path, lines: Callable[[], Lines], state: str, total: int | None
) -> None:
    run, alerts = played(tmp_path, lines())
    finished = ["RunFinished"] if state == "finished" else []
    assert (run.state, run.total_steps, alerts) == (state, total, finished)
    assert run.attempt == 1


def store(tmp_path: Path, ids: tuple[str, ...], rows: Callable[[int], str]) -> Replay:
    for each in ids:
        path = tmp_path / "mlruns/1" / each / "metrics/loss"
        path.parent.mkdir(parents=True)
        path.write_text("".join(rows(i) for i in range(900)), "utf-8")
        (path.parent.parent / "meta.yaml").write_text(f"run_id: {each}\n", "utf-8")
    return Replay(Settings(files=(str(tmp_path / "mlruns"),)))


@pytest.mark.parametrize("ids", [("aaa111", "bbb222"), ("0" * 32, "f" * 32)])
def test_each_run_of_a_store_is_a_run_whatever_its_id(tmp_path: Path, ids: tuple[str, str]) -> None:
    replay = store(tmp_path, ids, lambda i: f"{BEGAN + i}000 {3 - i / 900} {i}\n")
    assert [each.alert for each in replay.transitions() if not each.is_heartbeat] == []
    assert {run.name for run in replay.snapshot().runs} == {*ids}


def test_values_that_are_all_at_step_0_are_progress(tmp_path: Path) -> None:
    replay = store(tmp_path, ("0" * 32,), lambda i: f"{BEGAN + i}000 {3 - i / 900} 0\n")
    assert [each.alert for each in replay.transitions() if not each.is_heartbeat] == []
