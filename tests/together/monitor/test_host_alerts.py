"""What is seen of a run's host reaches rules, views and the health, and ends with the run."""

import pytest

from ldlm_monitor.base.records import Event, Position, Sample
from ldlm_monitor.base.snapshot import DiskView, GpuView, HostView
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.service.serve.metrics import exposition, families

NOW = 1769681700.0


def host(hours: float | None) -> HostView:
    """Of a run whose disk of checkpoints is full in so many hours."""
    full_at = None if hours is None else NOW + 3600 * hours
    return HostView(
        at=NOW,
        host="node17",
        processes=(),
        memory_total_bytes=0,
        memory_available_bytes=0,
        disk=DiskView(folder="/ckpt", free_bytes=10, total_bytes=100, full_at=full_at),
        gpus=(GpuView(gpu="1", values={"gpu_temperature_celsius": 71.0}),),
    )


@pytest.fixture
def monitor() -> Monitor:
    """One run, which has taken a step."""
    made = Monitor()
    step = Sample(
        run="r", step=1, time=NOW, values={"loss": 2.0}, source="jsonl",
        position=Position("training_log.jsonl", 1, 0),
    )  # fmt: skip
    made.observe([step], NOW)
    return made


def firing(monitor: Monitor) -> set[str]:
    return {each.name for each in monitor.alerts() if each.state == "firing"} - {"Watchdog"}


@pytest.mark.parametrize(("hours", "alerts"), [(23.0, {"CheckpointDiskFilling"}), (25.0, set())])
def test_a_disk_that_is_full_within_a_day_is_a_warning(
    monitor: Monitor, hours: float, alerts: set[str]
) -> None:
    (run,) = monitor.runs
    monitor.note_edge([], {run.name: host(hours)})
    monitor.tick(NOW + 10)
    assert firing(monitor) == alerts
    (view,) = monitor.snapshot().runs
    assert view.health == ("WARNING" if alerts else "HEALTHY")
    assert view.host == host(hours)


def test_room_that_is_made_ends_the_alert(monitor: Monitor) -> None:
    (run,) = monitor.runs
    monitor.note_edge([], {run.name: host(2.0)})
    monitor.tick(NOW + 10)
    monitor.note_edge([], {run.name: host(200.0)})
    passed = monitor.tick(NOW + 20)
    assert [(each.alert, each.state) for each in passed] == [("CheckpointDiskFilling", "resolved")]


def test_metrics_have_the_gpus_of_this_host_until_the_run_has_ended(monitor: Monitor) -> None:
    (run,) = monitor.runs
    monitor.note_edge([], {run.name: host(None)})
    monitor.tick(NOW + 10)
    _, shown = exposition(families(monitor.snapshot(), notifications={}, behind=0), "")
    assert f'ldlm_gpu_temperature_celsius{{gpu="1",run="{run.name}"}} 71\n' in shown.decode()
    assert "ldlm_detect_checkpoint_disk_full_seconds" not in shown.decode()
    end = Event(
        kind="run_finished", severity="info", run=run.name, time=NOW + 20, message="done",
        position=Position("training_log.jsonl", 2, 50),
    )  # fmt: skip
    monitor.observe([end], NOW + 20)
    monitor.tick(NOW + 5000)
    _, shown = exposition(families(monitor.snapshot(), notifications={}, behind=0), "")
    assert "ldlm_gpu" not in shown.decode()
