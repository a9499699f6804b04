"""Exit code 3: a run's health at or beyond --fail-on."""

import subprocess
import sys

import pytest

from ldlm_monitor.base.snapshot import Health, MonitorView, RunView, Snapshot
from ldlm_monitor.service.cli.flags import exit_code
from ldlm_monitor.service.config import FailOn


def snapshot(*healths: Health) -> Snapshot:
    runs = tuple(
        RunView(
            name=f"run{number}",
            framework="",
            world_size=None,
            state="running",
            health=health,
            step=None,
            total_steps=None,
            epoch=None,
            progress=None,
            eta_seconds=None,
            started_at=None,
            last_progress_at=None,
            stall_limit_seconds=None,
            ended_at=None,
            files=(),
            statistics={},
            event_counts={},
            skipped_steps=0,
            settings={},
            failed_rank=None,
        )
        for number, health in enumerate(healths)
    )
    monitor = MonitorView.fresh()
    return Snapshot(version=1, at=0, runs=runs, alerts=(), events=(), monitor=monitor, points=())


@pytest.mark.parametrize(
    ("fail_on", "failing"),
    [
        ("warning", {"WARNING", "UNHEALTHY", "CRITICAL"}),
        ("error", {"UNHEALTHY", "CRITICAL"}),
        ("critical", {"CRITICAL"}),
        ("never", set()),
    ],
)
def test_health_from_the_severity_on_fails(fail_on: FailOn, failing: set[Health]) -> None:
    healths: tuple[Health, ...] = ("HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL")
    assert {health for health in healths if exit_code(snapshot(health), fail_on) == 3} == failing


def test_the_worst_run_decides_and_none_is_healthy() -> None:
    assert exit_code(snapshot("HEALTHY", "CRITICAL"), "critical") == 3
    assert exit_code(snapshot(), "warning") == 0


ENDING = """
import atexit, sys
from ldlm_monitor import __main__
from ldlm_monitor.service import cli

class Held:
    def __del__(self):
        print("freed")

held = Held()
atexit.register(print, "asked")
cli.main = lambda: print("ran") or 3
sys.exit(__main__.main())
"""


def test_the_end_of_the_process_frees_nothing_and_runs_what_waits_for_it():
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, check=False)
    assert (done.returncode, done.stdout.split()) == (3, [b"ran", b"asked"])
