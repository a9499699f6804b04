"""Where the time of a run went: the parts, the ratios, and what they cost."""

import pytest

from ldlm_monitor.base.goodput import Goodput, Spent

LOST = {
    "restart": (100.0, 1),
    "stall": (50.0, 2),
    "checkpoint": (150.0, 3),
    "evaluation": (0.0, 1),
    "first step": (20.0, 1),
}


def goodput(failures: int = 2) -> Goodput:
    found = Goodput.of(680.0, LOST, 2.0, 10.0, failures)
    assert found is not None
    return found


def test_the_parts_of_the_time_add_up_and_the_greatest_loss_is_first() -> None:
    found = goodput()
    assert found.total_seconds == 1000.0
    assert (found.productive_seconds, found.share) == (680.0, 0.68)
    assert found.losses == (
        Spent(what="checkpoint", seconds=150.0, times=3),
        Spent(what="restart", seconds=100.0, times=1),
        Spent(what="stall", seconds=50.0, times=2),
        Spent(what="first step", seconds=20.0, times=1),
    )
    assert (found.step_seconds, found.least_pause_seconds) == (2.0, 10.0)


def test_effective_training_time_loses_failures_and_starts_alone() -> None:
    assert goodput().ettr == pytest.approx(0.83)


@pytest.mark.parametrize(
    "what", ["start", "first step", "steps taken again", "restart", "stall", "after the last step"]
)
def test_effective_training_time_loses_each_time_without_progress(what: str) -> None:
    found = Goodput.of(75.0, {what: (25.0, 1)}, 1.0, 5.0, 1)
    assert found is not None
    assert found.ettr == 0.75


def test_the_time_to_a_failure_counts_the_time_up() -> None:
    found = goodput(failures=2)
    assert (found.failures, found.mttf_seconds) == (2, 450.0)
    assert goodput(failures=1).mttf_seconds == 900.0
    assert goodput(failures=0).mttf_seconds is None


def test_a_run_without_time_has_no_goodput() -> None:
    assert Goodput.of(0.0, {"stall": (0.0, 1)}, 1.0, 5.0, 0) is None
    assert Goodput.of(1e-6, {}, 1.0, 5.0, 0) is not None


def test_a_part_of_the_time_costs_its_share() -> None:
    priced = goodput().model_copy(update={"gpu_hours": 80.0, "cost": 160.0})
    assert priced.part(250.0) == (20.0, 40.0)


def test_what_a_part_cost_is_unknown_without_ranks_or_price() -> None:
    assert goodput().gpu_hours is None
    assert goodput().cost is None
    assert goodput().part(250.0) == (None, None)
    assert goodput().model_copy(update={"gpu_hours": 80.0}).part(250.0) == (20.0, None)
    assert goodput().model_copy(update={"cost": 160.0}).part(250.0) == (None, 40.0)
