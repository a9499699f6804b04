"""Every log gives the same alerts, gauges and states with the compiled part and without it."""

from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings
from tests.logs.parse.python_alone import needs_native, python_alone

pytestmark = needs_native
HERE = Path(__file__).parent
HEALTHY = HERE / "runs/upstream/A_healthy_1proc"
SMALL = [*(HERE / "small").glob("*.*l*"), *HEALTHY.rglob("train*l*")]
RUNS = [path for path in (HERE / "runs").rglob("*") if path.suffix in (".jsonl", ".log", ".out")]
SHARED = Path(__file__).parents[4] / "shared/corpus"


def judged(log: Path) -> list[str]:
    """All that a replay gives, but for how long its own work took."""
    replay = Replay(Settings(files=(str(log),), companions=False))
    found = [repr(each) for each in replay.transitions()]
    end = replay.snapshot()
    shown = end.model_dump(mode="python", exclude={"monitor"})
    points = {repr(each) for each in end.points if "evaluation" not in each.name}
    points = {each for each in points if "ldlm_build_info" not in each}
    return [*found, repr(shown), *sorted(points), repr(end.curves)]


def assert_the_same(log: Path) -> None:
    with python_alone():
        python = judged(log)
    assert judged(log) == python


@pytest.mark.parametrize("log", sorted(SMALL), ids=lambda path: path.name)
def test_small_logs(log: Path) -> None:
    assert_the_same(log)


@pytest.mark.long
@pytest.mark.parametrize("log", sorted(RUNS), ids=lambda path: path.name)
def test_genuine_runs(log: Path) -> None:
    assert_the_same(log)


@pytest.mark.long
@pytest.mark.shared
def test_other_peoples_logs() -> None:
    for log in sorted(SHARED.rglob("*")):
        if log.suffix in (".log", ".jsonl", ".out") and log.stat().st_size < 3_000_000:
            assert_the_same(log)
