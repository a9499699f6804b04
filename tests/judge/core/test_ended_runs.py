"""What has ended ends in memory, too: runs that are over, whose series nobody exports any more."""

import gc
import json
import weakref

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.judge.core.monitor import Monitor

START = 1_795_000_000.0
SURE = 700.0  # seconds after which an end is sure
LONG = 2_000.0  # seconds after which an ended run has no series any more


def trains(
    monitor: Monitor, name: str, at: float, *, first: int = 1, offset: int = 0, line: int = 1
) -> int:
    """Twenty steps of a log that ends well, a second each; where its bytes end."""
    rows = [f"step {step} loss {2 / step:.4f} grad_norm 1.5\n" for step in range(first, first + 20)]
    for second, row in enumerate([*rows, "RuntimeError: bad batch\n", "Training complete.\n"]):
        chunk = Chunk(f"{name}.log", (1, hash(name) % 997, 0), offset, line, row.encode())
        monitor.feed(chunk, at + second)
        offset, line = offset + len(row), line + 1
    return offset


def exported(monitor: Monitor) -> set[str]:
    points = monitor.snapshot().points
    return {dict(each.labels)["run"] for each in points if each.name == "ldlm_train_loss"}


def shown(monitor: Monitor) -> list[str]:
    return [run.name for run in monitor.snapshot().runs]


def test_the_runs_that_ended_last_are_kept() -> None:
    monitor = Monitor()
    for number, name in enumerate(("first", "second", "third")):
        trains(monitor, name, START + 100 * number)
    monitor.tick(START + 300 + LONG)
    monitor.forget_ended(2)
    assert shown(monitor) == ["second", "third"]
    left = monitor.snapshot()
    assert {each.run for each in (*left.incidents, *left.events)} <= {"second", "third"}
    assert set(left.curves) == {"second", "third"}


def test_of_runs_whose_series_end_together_the_earlier_ended_goes_first() -> None:
    monitor = Monitor()
    trains(monitor, "later", START + 60)
    trains(monitor, "earlier", START)
    monitor.tick(START + 2 * LONG)
    monitor.forget_ended(1)
    assert shown(monitor) == ["later"]


def test_the_series_of_a_run_that_goes_on_are_exported_again() -> None:
    monitor = Monitor()
    end = trains(monitor, "again", START)
    monitor.tick(START + SURE)
    monitor.tick(START + LONG)
    assert exported(monitor) == set()
    trains(monitor, "again", START + 2 * LONG, first=21, offset=end, line=23)
    monitor.tick(START + 2 * LONG + 30)
    assert exported(monitor) == {"again"}


def test_a_run_is_kept_while_its_series_are() -> None:
    monitor = Monitor()
    trains(monitor, "over", START)
    trains(monitor, "just_over", START + LONG)
    monitor.tick(START + LONG + 60)
    monitor.forget_ended(0)
    assert shown(monitor) == ["just_over"]


def test_nothing_holds_a_run_that_was_forgotten() -> None:
    monitor = Monitor()
    trains(monitor, "over", START)
    run = monitor.runs.get("over")
    assert run is not None
    held = weakref.ref(run.values)
    del run
    monitor.tick(START + SURE)
    trains(monitor, "other", START + LONG)
    monitor.tick(START + LONG + SURE)
    monitor.tick(START + 2 * LONG)
    monitor.forget_ended(1)
    monitor.tick(START + 3 * LONG)
    gc.collect()
    assert held() is None


def test_a_forgotten_run_that_goes_on_is_a_run_again() -> None:
    monitor = Monitor()
    end = trains(monitor, "again", START)
    monitor.tick(START + SURE)
    monitor.tick(START + LONG)
    monitor.forget_ended(0)
    assert shown(monitor) == []
    trains(monitor, "again", START + 2 * LONG, first=21, offset=end, line=23)
    monitor.tick(START + 2 * LONG + 600)
    (run,) = monitor.snapshot().runs
    assert (run.name, run.step, run.state) == ("again", 40, "finished")
    assert run.attempt == 1


def test_a_failure_of_a_forgotten_run_is_not_of_the_one_that_goes_on() -> None:
    monitor = Monitor()
    crash = b"step 1 loss nan\nstep 2 loss nan\nRuntimeError: bad batch\nTraining complete.\n"
    for number in range(2):
        at = START + 2 * LONG * number
        chunk = Chunk("nan.log", (1, 7, 0), number * len(crash), 1 + 4 * number, crash)
        monitor.feed(chunk, at)
        monitor.tick(at + 30)
        assert [each.id for each in monitor.snapshot().incidents] == ["nan/1"]
        monitor.tick(at + 2 * LONG - 1)
        monitor.forget_ended(0)


def test_labels_that_a_forgotten_run_dropped_stay_counted() -> None:
    monitor = Monitor()
    wide = {"step": 1, "loss": 2.0} | {f"metric_{number}": 0.5 for number in range(2_000)}
    row = json.dumps(wide).encode() + b"\nTraining complete.\n"
    monitor.feed(Chunk("wide.log", (1, 1, 0), 0, 1, row), START)
    monitor.tick(START + LONG)
    dropped = monitor.snapshot().monitor.dropped["label_limit"]
    assert dropped > 100
    monitor.forget_ended(0)
    assert monitor.snapshot().monitor.dropped["label_limit"] == dropped


def test_what_a_run_learned_is_known_after_any_pause() -> None:
    """A resume hours after a crash is compared with the losses before it."""
    for pause in (10.0, 20 * LONG):
        monitor = Monitor()
        end = level(monitor, START, 0.1, 0)
        monitor.tick(START + 200 + pause)
        level(monitor, START + 200 + pause, 5.0, end)
        assert "LossSpike" in {each.alert for each in monitor.snapshot().transitions}


def level(monitor: Monitor, at: float, loss: float, offset: int) -> int:
    """Two hundred losses around a level, a second each; where their bytes end."""
    for step in range(200):
        row = f"step {step + offset} loss {loss * (1 + step * 37 % 11 / 100):.5f}\n".encode()
        chunk = Chunk("level.log", (1, 5, 0), offset, 1 + offset // 9, row)
        monitor.feed(chunk, at + step)
        offset += len(row)
    return offset
