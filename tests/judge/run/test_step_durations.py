"""The durations of a run's steps, as its histogram counts them."""

from ldlm_monitor.base.records import Position, Sample
from ldlm_monitor.judge.core.monitor import Monitor

NAME = "ldlm_train_step_duration_seconds"


def sample(step: int, time: float, **values: float) -> Sample:
    return Sample(
        run="r", rank=0, step=step, epoch=None, time=time, values=values, source="jsonl",
        position=Position("r.jsonl", step, 0),
    )  # fmt: skip


def counted(monitor: Monitor) -> dict[str, float]:
    points = [point for point in monitor.snapshot().points if point.name.startswith(NAME)]
    return {dict(p.labels).get("le", p.name.removeprefix(NAME)): p.value for p in points}


def test_logged_durations_are_counted_each_once() -> None:
    monitor = Monitor()
    for step in range(1, 11):
        took = 0.25 if step < 10 else 40.0
        monitor.observe([sample(step, 100.0 + step, loss=1.0, step_seconds=took)], 100.0 + step)
    monitor.tick(200.0)
    assert counted(monitor) == {
        "1.0": 9, "+Inf": 10, "_sum": 42.25, "_count": 10,
    }  # fmt: skip


def test_a_log_without_durations_gives_those_between_its_steps() -> None:
    monitor = Monitor()
    for step in range(1, 11):
        monitor.observe([sample(step, 100.0 + 2 * step, loss=1.0)], 100.0 + 2 * step)
    monitor.tick(200.0)
    found = counted(monitor)
    assert found["1.0"] == 0
    assert found["+Inf"] == found["_count"] > 5
