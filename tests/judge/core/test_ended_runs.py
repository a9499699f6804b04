"""What has ended ends in memory, too: runs that are over, whose series nobody exports any more."""

import gc
import json
import weakref

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.judge.core.monitor import Monitor

START = 1_795_000_000.0
LONG = 1_000.0  # seconds after which an ended run has no series any more


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
    trains(monitor, "other", START + LONG)
    monitor.tick(START + 2 * LONG)
    monitor.forget_ended(1)
    monitor.tick(START + 3 * LONG)
    gc.collect()
    assert held() is None


def test_a_forgotten_run_that_goes_on_is_a_run_again() -> None:
    monitor = Monitor()
    end = trains(monitor, "again", START)
    monitor.tick(START + LONG)
    monitor.forget_ended(0)
    assert shown(monitor) == []
    trains(monitor, "again", START + 2 * LONG, first=21, offset=end, line=23)
    monitor.tick(START + 2 * LONG + 600)
    (run,) = monitor.snapshot().runs
    assert (run.name, run.step, run.state) == ("again", 40, "finished")


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


def test_an_ended_run_keeps_its_last_gauges_and_learns_its_losses_anew() -> None:
    monitor = Monitor()
    end = trains(monitor, "again", START)
    monitor.tick(START + 30)
    (before,) = monitor.snapshot().runs
    assert before.detected
    monitor.tick(START + LONG)
    (after,) = monitor.snapshot().runs
    assert after.detected == before.detected
    trains(monitor, "again", START + 2 * LONG, first=21, offset=end, line=23)
    monitor.tick(START + 2 * LONG + 30)
    assert monitor.snapshot().runs[0].detected != before.detected
