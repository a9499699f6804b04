"""What says that nothing is learned, or the wrong thing, while every number is finite."""

import math
import random
from collections.abc import Callable, Sequence

import pytest

from ldlm_monitor.judge.detect.detector import Detector
from ldlm_monitor.judge.detect.evaluation_loss import EvaluationDetector
from ldlm_monitor.judge.detect.reinforcement import (
    DriftDetector,
    EntropyDetector,
    RewardSpreadDetector,
)
from ldlm_monitor.judge.detect.zero_rows import GradientZeroDetector, LearningRateDetector


def gauges(make: Callable[[], Detector], values: Sequence[float]) -> dict[str, float]:
    detector = make()
    detector.update(values)
    return dict(detector.measures())


def cosine(steps: int, of: int, peak: float = 1e-3) -> list[float]:
    return [peak * (1 + math.cos(math.pi * step / of)) / 2 for step in range(steps)]


def rounded(values: Sequence[float], digits: int) -> list[float]:
    return [round(value, digits) for value in values]


def rate(values: Sequence[float]) -> float:
    return gauges(LearningRateDetector, values).get("learning_rate_zero_ratio", 0.0)


def test_a_schedule_that_ends_long_before_the_run_is_a_learning_rate_of_zero() -> None:
    assert rate([*cosine(600, 600), *[0.0] * 100]) > 1


def test_it_is_known_to_be_zero_where_the_log_has_shown_ten_thousandths_of_the_peak() -> None:
    assert rate([*rounded(cosine(600, 600), 8), *[0.0] * 100]) > 1
    assert rate([*rounded(cosine(600, 600), 6), *[0.0] * 100]) == 0


def test_a_tenth_of_all_steps_may_be_the_end_of_a_schedule() -> None:
    assert 0 < rate([*cosine(940, 940), *[0.0] * 60]) < 1


@pytest.mark.parametrize("digits", [4, 6, 8, 17])
def test_the_last_steps_of_a_schedule_are_none_however_many_digits_are_logged(digits: int) -> None:
    assert rate(rounded(cosine(1001, 1000), digits)) < 1


def test_a_rate_below_a_ten_thousandth_of_its_highest_is_one_of_zero_however_it_comes() -> None:
    """As of a schedule that was made for epochs, and is stepped with each batch."""
    fallen = [1e-3 * 0.5 ** (step // 3) for step in range(72)]
    assert rate(fallen) > 2
    detector = LearningRateDetector()
    for value in fallen:
        detector.update([value])
    assert dict(detector.measures())["learning_rate_zero_ratio"] == rate(fallen)
    assert rate([1e-9 * 1.2**step for step in range(80)]) == 0, "a warm-up"


def test_small_rates_that_are_logged_as_zero_are_none() -> None:
    """0.0010, 0.0009, ... 0.0001 and then nothing but 0.0000, for half of the run."""
    assert rate(rounded([1e-3 * 0.99**step for step in range(1000)], 4)) == 0


def test_a_rate_that_was_never_above_zero_is_counted_and_shows_nothing_alone() -> None:
    found = gauges(LearningRateDetector, [0.0] * 600)
    assert found == {"learning_rate_zero_rows": 600, "learning_rate_zero_ratio": 0}


def test_the_first_step_of_a_warm_up_is_no_learning_rate_of_zero() -> None:
    warm_up = [step / 100 * 1e-3 for step in range(100)]
    assert gauges(LearningRateDetector, [*warm_up, *cosine(200, 1000)]) == {}


def test_a_constant_rate_that_becomes_zero_is_known_by_the_digits_of_its_warm_up() -> None:
    warm_up = [step / 70 * 1e-4 for step in range(1, 71)]
    assert rate([*warm_up, *[1e-4] * 500, *[0.0] * 100]) > 1
    assert rate([*[1e-4] * 500, *[0.0] * 100]) == 0  # 0.0001 and 0.0000 may be 4e-5


def test_a_last_stage_below_the_last_digit_is_no_rate_of_zero() -> None:
    stages = [0.1, 0.01, 0.001, 0.0001, 0.0]
    assert rate([stage for stage in stages for _ in range(300)]) == 0


NORMS = [0.5 + row * 37 % 101 / 1000 for row in range(100)]


def dead(values: Sequence[float]) -> float:
    return gauges(GradientZeroDetector, values).get("grad_norm_zero_ratio", 0.0)


def test_a_gradient_that_becomes_zero_at_once_is_no_rounding() -> None:
    assert dead([*NORMS, *[0.0] * 150]) == 1.5
    assert dead([*NORMS[:12], *[0.0] * 45]) > 1, "in a short log most of it"
    assert dead([*NORMS, 0.0, 0.5]) == 0


def test_norms_that_fall_below_the_last_digit_are_no_zero_gradients() -> None:
    norms = rounded([0.02 * 0.99**row for row in range(600)], 3)
    assert norms[-1] == 0
    assert dead(norms) == 0


def test_norms_that_come_with_each_update_alone_are_no_zero_gradients() -> None:
    cycle = [*[0.0] * 127, 0.731]
    assert max(dead(cycle * 20 + cycle[:row]) for row in range(1, 128)) < 1


def test_what_is_over_is_told_as_such() -> None:
    over = [*NORMS, *[0.0] * 150, 0.5]
    assert gauges(GradientZeroDetector, over) == {
        "grad_norm_zero_rows": 0,
        "grad_norm_zero_ratio": 0,
    }
    spread = gauges(RewardSpreadDetector, [0.25, *[0.0] * 60, 0.25])
    assert spread == {"reward_std_zero_rows": 0}


def rise(values: Sequence[float]) -> float:
    return gauges(EvaluationDetector, values)["eval_loss_rise_ratio"]


def test_an_evaluation_loss_that_rises_after_its_lowest_is_overfitting() -> None:
    found = gauges(EvaluationDetector, [3.0, 2.5, 2.2, 2.1, 2.3, 2.5, 2.7, 2.9])
    assert found["eval_loss_rise_ratio"] > 1
    assert found["eval_loss_rising_evaluations"] == 4


def test_noise_of_evaluations_is_no_overfitting() -> None:
    rng = random.Random(7)
    fired = 0
    for noise in (0.003, 0.01, 0.02, 0.05, 0.05) * 12:
        levels = [2 + 2 / (1 + count) for count in range(40)]
        evaluations = [level * math.exp(rng.gauss(0, noise)) for level in levels]
        fired += any(rise(evaluations[:count]) >= 1 for count in range(6, 41))
    assert fired <= 1  # of 60 runs with 40 evaluations each


def test_a_rise_that_each_evaluations_noise_hides_is_seen_in_many() -> None:
    rng = random.Random(7)
    levels = [2 + 2 / (1 + count) + 0.03 * max(count - 10, 0) for count in range(40)]
    evaluations = [level * math.exp(rng.gauss(0, 0.12)) for level in levels]
    assert min(evaluations[-13:]) < max(evaluations[5:15])
    assert rise(evaluations) > 1 > rise(evaluations[:14])


def test_a_rise_that_nobody_would_act_on_is_none() -> None:
    assert rise([2.0, 1.9, 1.85, 1.86, 1.87, 1.88]) < 1


def test_rewards_that_do_not_differ_are_counted() -> None:
    values = [0.3, 0.2, 0.0, *[0.25] * 30, *[0.0] * 25]
    assert gauges(RewardSpreadDetector, values) == {"reward_std_zero_rows": 25}


def test_an_entropy_is_compared_with_that_of_the_first_steps() -> None:
    falling = [1.2 * 0.97**step for step in range(200)]
    assert gauges(EntropyDetector, falling)["entropy_ratio"] < 0.05
    assert gauges(EntropyDetector, falling[:60])["entropy_ratio"] > 0.05
    assert gauges(EntropyDetector, falling[:30]) == {}


def test_an_entropy_below_zero_has_no_ratio() -> None:
    """Of a distribution over numbers, as of continuous actions."""
    assert gauges(EntropyDetector, [1.5 - step / 50 for step in range(200)]) == {}


def test_a_divergence_is_compared_with_what_was_usual() -> None:
    assert gauges(DriftDetector, [0.05] * 100 + [4.0] * 20) == {"kl_rise_ratio": 80}
    assert gauges(DriftDetector, [0.0] * 100) == {}
