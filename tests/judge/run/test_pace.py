"""How long a pause is normal: the formula of `Pace`, case by case."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ldlm_monitor.judge.run.pace import Pace, StepDurations
from ldlm_monitor.judge.run.stall import Stall


def learned(gap: float, count: int = 100, settings: Stall | None = None) -> Pace:
    pace = Pace(settings or Stall())
    for _ in range(count):
        pace.learn_gaps((gap,))
    return pace


def test_before_the_first_step_a_run_may_take_the_start_up_time() -> None:
    assert Pace(Stall(startup_seconds=900)).limit("starting") == 900


@pytest.mark.parametrize(
    ("gap", "limit"), [(0.07, 30), (1.0, 30), (12.0, 96), (20.0, 160), (300.0, 1500)]
)
def test_a_learned_limit_is_some_times_the_slowest_usual_gap_and_never_below_the_floor(
    gap: float, limit: float
) -> None:
    assert learned(gap).limit("running") == limit


def test_one_slow_step_in_a_thousand_does_not_widen_the_limit() -> None:
    pace = learned(1.0, 999)
    pace.learn_gaps((500.0,))
    assert pace.limit("running") == 30


def test_what_happened_twice_may_take_twice_as_long() -> None:
    pace = learned(12.0, 999)
    pace.learn_gaps((55.0,))
    assert pace.limit("running") == 96
    pace.learn_gaps((60.0,))
    assert pace.limit("running") == 110


@pytest.mark.parametrize(("gap", "limit"), [(30.0, 240), (40.0, 240), (48.0, 240), (50.0, 250)])
def test_what_waiting_for_data_may_take_ends_at_four_minutes(gap: float, limit: float) -> None:
    """Eight times the slowest usual gap up to there; five times it counts beyond."""
    assert learned(gap).limit("running") == limit


@pytest.mark.parametrize(("gap", "limit"), [(0.1, 120), (60.0, 600), (400.0, 800)])
def test_while_few_steps_are_known_the_limit_is_careful(gap: float, limit: float) -> None:
    assert learned(gap, 3).limit("running") == limit


def test_a_first_evaluation_has_the_start_up_time_and_the_next_twice_the_longest() -> None:
    pace = learned(1.0)
    assert pace.limit("evaluating") == 600
    pace.learn_pause("evaluating", 120)
    pace.learn_pause("evaluating", 90)
    assert pace.limit("evaluating") == 240
    assert pace.limit("running") == 30


def test_a_checkpoint_is_announced_when_it_is_over_so_steps_must_allow_for_the_next() -> None:
    pace = learned(1.0)
    pace.learn_pause("checkpointing", 75)
    assert pace.limit("running") == 150


def test_a_checkpoint_is_allowed_for_while_few_steps_are_known() -> None:
    pace = learned(1.0, 3)
    assert pace.limit("running") == 120
    pace.learn_pause("checkpointing", 75)
    assert pace.limit("running") == 150


def test_a_pause_may_take_as_long_as_a_step_may() -> None:
    pace = learned(20.0)
    pace.learn_pause("evaluating", 40)
    assert pace.limit("evaluating") == pace.limit("running") == 160
    pace.learn_pause("evaluating", 5)
    assert learned(1.0).limit("running") == Stall().floor_seconds


def test_the_users_own_limit_replaces_what_was_learned() -> None:
    pace = learned(20.0, settings=Stall(limit_seconds={"running": 45.0}))
    assert pace.limit("running") == 45


@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=1200))
def test_the_limit_is_never_below_the_floor_nor_below_the_usual_gap(gaps: list[float]) -> None:
    pace = Pace(Stall())
    for gap in gaps:
        pace.learn_gaps((gap,))
    assert pace.limit("running") >= 30
    assert pace.limit("running") >= sorted(gaps[-1000:])[len(gaps[-1000:]) // 2]


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 2.0]) | st.floats(0.01, 1000), max_size=1200),
    st.lists(st.integers(1, 400), max_size=30),
)
@example([0.5, *[9.0] * 300, *[0.5] * 1100], [100])
def test_the_limit_is_that_of_all_gaps_sorted_however_many_come_at_once(
    gaps: list[float], counts: list[int]
) -> None:
    pace, start = Pace(Stall(floor_seconds=0.001, startup_seconds=0.001)), 0
    for count in [*counts, len(gaps)]:
        pace.learn_gaps(gaps[start : start + count])
        start += count
        known = sorted([gap for gap in gaps[:start] if gap > 0][-1000:])
        if len(known) >= 20:
            q99 = known[int(0.99 * (len(known) - 1))]
            assert pace.limit("running") == max(5 * q99, min(8 * q99, 240), 2 * known[-2])
        elif known:
            assert pace.limit("running") == max(0.004, min(10 * known[-1], 2 * known[-1]))


def test_a_pause_that_nobody_announced_is_expected_again_after_as_many_steps() -> None:
    pace = Pace(Stall())
    pace.learn_unannounced(936, 1, 120.0)

    assert pace.expected_pause(2 * 936) == pace.expected_pause(2 * 937 - 1) == 240
    assert pace.expected_pause(937) == pace.expected_pause(1001) == pace.expected_pause(1000) == 0


def test_a_pause_that_was_expected_takes_no_place_of_another_rhythm() -> None:
    pace = Pace(Stall())
    for step in range(100, 2000, 100):
        pace.learn_unannounced(step, 1, 120.0)
    pace.learn_unannounced(1970, 1, 900.0)
    assert (pace.expected_pause(2000), pace.expected_pause(2 * 1970)) == (240, 1800)


def test_a_long_pause_that_ended_twice_by_itself_is_usual() -> None:
    pace = learned(1.0)
    usual = pace.limit("running")
    pace.survive(600.0)
    assert pace.limit("running") == usual
    pace.survive(900.0)
    assert pace.limit("running") == 2 * 600.0


def test_steps_that_came_at_once_after_a_wait_took_no_longer_each() -> None:
    """As those that were written while a monitor was started, or stopped."""
    durations = StepDurations()
    arrivals = [2.0 * (135 if 60 <= step < 135 else step) for step in range(160)]
    for step, at in enumerate(arrivals):
        durations.advance([at], [step], exact=False)
    assert set(durations.fresh) == {2.0}
