"""Nothing rings over trainings in which nothing is wrong; benchmarks/false_alarms.py asks millions.

The logs are those of benchmarks/healthy_training.py, which says what is normal in them.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from healthy_training import SCENARIOS, Training, trainings, write
from ldlm_monitor.base.alert import Transition
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings
from training_faults import BEGINS, CASES, Case

STEPS = 2_400
"""Two checkpoints, two doublings of a loss scale; no evaluation yet."""


def loud(folder: Path) -> list[Transition]:
    replay = Replay(Settings(files=(str(folder),), run="drawn", companions=False))
    fired = [each for each in replay.transitions() if each.state == "firing"]
    return [each for each in fired if each.labels["severity"] in ("warning", "error", "critical")]


def drawn(name: str) -> Training:
    found = trainings(len(SCENARIOS) * STEPS, seed=7, each=STEPS)
    return next(training for training in found if training.name == name)


SLOWEST = "slow steps of a large model"
"""Eight hours, so three times as many evaluations as of the next one."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each.name, marks=[pytest.mark.long] if each.name == SLOWEST else [])
        for each in SCENARIOS
    ],
)
def test_a_healthy_training_raises_nothing(name: str, tmp_path: Path) -> None:
    written = write(drawn(name), tmp_path / "logs")
    assert len(written.times) >= STEPS
    assert [(each.alert, each.time) for each in loud(written.folder)] == []


def test_an_evaluation_that_its_bars_announce_is_no_stall(tmp_path: Path) -> None:
    training = replace(drawn("language model, bars"), eval_every=600)
    assert loud(write(training, tmp_path / "logs").folder) == []


def test_the_first_evaluation_that_nothing_announces_is_a_warning_at_most(tmp_path: Path) -> None:
    training = replace(drawn("language model, rows"), eval_every=1_000)
    found = loud(write(training, tmp_path / "logs").folder)
    assert {each.labels["severity"] for each in found} <= {"warning"}


@pytest.mark.parametrize(
    "case",
    [
        each
        for each in CASES
        if each.alert in ("NonFiniteLoss", "GradientNormHigh", "TrainingStalled")
    ],
    ids=lambda case: f"{case.alert}: {case.what}",
)
def test_a_fault_in_such_a_training_is_told(case: Case, tmp_path: Path) -> None:
    written = write(case.training, tmp_path / "logs", case.fault, BEGINS)
    began, soon = written.times[BEGINS - 1], written.times[BEGINS + 60]
    times = [each.time or 0.0 for each in loud(written.folder) if each.alert == case.alert]
    assert any(began <= time <= soon for time in times)
