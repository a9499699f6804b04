"""A spike passes, a divergence stays, a plateau does not fall; noise is none of them."""

import random
from itertools import pairwise

import pytest

from ldlm_monitor.detect.loss_trend import (
    ConstantDetector,
    LossDetector,
    mann_kendall,
    relative_slope,
)

STEPS = 3000


def falling(noise: float, seed: int = 1, steps: int = STEPS) -> list[float]:
    """A power law from 10 towards 2, as language models have it, with factors as noise."""
    chance = random.Random(seed)
    return [(2 + 8 * (1 + n) ** -0.3) * chance.lognormvariate(0, noise) for n in range(steps)]


def seen(losses: list[float]) -> dict[str, float]:
    detector = LossDetector()
    detector.update(losses)
    return dict(detector.measures())


def worst(losses: list[float], name: str) -> float:
    """The highest that a gauge ever was."""
    detector = LossDetector()
    highest = -1e9
    for loss in losses:
        detector.update([loss])
        highest = max(highest, dict(detector.measures()).get(name, highest))
    return highest


@pytest.mark.parametrize("noise", [0.002, 0.05, 0.5])
def test_noise_is_neither_spike_nor_divergence(noise: float) -> None:
    losses = falling(noise, steps=1500)
    assert worst(losses, "loss_spike_ratio") < 1.6
    assert worst(losses, "loss_peak_ratio") < 3
    assert worst(losses, "loss_rise_zscore") < 2.5 or worst(losses, "loss_rise_ratio") < 1.3


def test_one_bad_batch_is_no_spike() -> None:
    losses = falling(0.05)
    losses[2000] *= 10
    assert worst(losses[1500:2100], "loss_spike_ratio") < 1.6


def test_a_spike_stands_out_for_twenty_steps_and_is_no_divergence() -> None:
    losses = falling(0.05)
    losses[2000:2006] = [8.0] * 6
    assert seen(losses[:2010])["loss_spike_ratio"] > 2
    assert seen(losses[:2030])["loss_spike_ratio"] < 1.6
    assert worst(losses[:2100], "loss_rise_ratio") < 1.5


def test_a_spike_is_counted_in_four_times_the_noise() -> None:
    """A loss of 1 or 11 in turn: no past value is farther than 5 from the median 6.

    The MAD is 5, so that s is 1.4826 * 5, and four of them are the usual distance.
    """
    losses = [1.0, 11.0] * 60 + [6.0] * 18 + [6.0 + 4 * 1.4826 * 5 * 1.5] * 2
    assert seen(losses)["loss_spike_ratio"] == pytest.approx(1.5)


def test_a_spike_of_a_quiet_loss_is_counted_in_fifteen_hundredths_of_it() -> None:
    losses = [10.0] * 100 + [10.0] * 18 + [13.0] * 2
    assert seen(losses)["loss_spike_ratio"] == pytest.approx(3.0 / 1.5)


def test_a_spike_is_counted_in_the_farthest_that_noise_reached_before() -> None:
    losses = [10.0] * 60 + [14.0] + [10.0] * 40 + [10.0] * 18 + [16.0] * 2
    assert seen(losses)["loss_spike_ratio"] == pytest.approx(6.0 / 4.0)


def test_a_divergence_is_known_within_twenty_steps_and_stays() -> None:
    losses = falling(0.05)
    losses[2000:] = [6.0 + 0.01 * n for n in range(1000)]
    for step in (2020, 2500, 2999):
        gauges = seen(losses[:step])
        assert gauges["loss_rise_ratio"] > 1.5
        assert gauges["loss_rise_zscore"] > 3


def test_a_run_that_blows_up_at_once_is_known_by_its_peak() -> None:
    assert seen([14.1, 76.8])["loss_peak_ratio"] == pytest.approx(76.8 / 14.1)
    assert seen([14.1, 76.8, 31.7, 21.1])["loss_peak_ratio"] == pytest.approx(76.8 / 14.1)


def test_the_first_losses_of_a_noisy_run_are_no_past() -> None:
    assert "loss_peak_ratio" not in seen([0.8, 3.9, 1.1, 0.7])
    assert seen([0.8, 0.7, 0.9, 1.1, 0.7, 3.9])["loss_peak_ratio"] == pytest.approx(3.9 / 1.1)


def test_losses_that_begin_at_zero_may_grow() -> None:
    assert "loss_peak_ratio" not in seen([0.0, 0.0001, 0.02, 0.3])


def test_a_restart_of_the_learning_rate_is_no_divergence() -> None:
    losses = falling(0.01)
    losses[2000:2400] = [loss * 1.15 for loss in losses[2000:2400]]
    assert worst(losses[1500:2400], "loss_rise_ratio") < 1.3
    assert worst(losses[1500:2400], "loss_spike_ratio") < 2


def test_the_trend_compares_the_halves_of_fifty_steps() -> None:
    assert seen([2.0] * 25 + [1.0] * 25)["loss_trend_ratio"] == 0.5
    assert "loss_trend_ratio" not in seen([1.0] * 49)


def test_a_plateau_has_no_trend_and_learning_has() -> None:
    chance = random.Random(3)
    flat = [2.0 + chance.gauss(0, 0.1) for _ in range(1000)]
    assert abs(seen(flat)["loss_trend_zscore"]) < 1.96
    learning = [2.0 - n / 2000 + chance.gauss(0, 0.1) for n in range(1000)]
    assert seen(learning)["loss_trend_zscore"] < -5
    assert seen(learning)["loss_slope_ratio"] == pytest.approx(-0.5 / 1.75, rel=0.15)


def test_the_trend_test_is_that_of_mann_and_kendall() -> None:
    """All 10 pairs of 5 rising values agree: Z = (10 - 1) / sqrt(5 * 4 * 15 / 18)."""
    assert mann_kendall([1, 2, 3, 4, 5]) == pytest.approx(9 / (300 / 18) ** 0.5)
    assert mann_kendall([5, 4, 3, 2, 1]) == -mann_kendall([1, 2, 3, 4, 5])
    assert mann_kendall([1, 1, 1]) == 0


def test_the_slope_is_that_of_theil_and_sen() -> None:
    """One outlier does not turn it: the median of the slopes of all pairs."""
    assert relative_slope([1, 2, 3, 100, 5]) == pytest.approx(5 / 3)


def constant(losses: list[float]) -> float:
    detector = ConstantDetector()
    detector.update(losses)
    return dict(detector.measures())["loss_constant_ratio"]


def test_a_clamp_is_known_after_twenty_equal_values() -> None:
    losses = falling(0.05)
    assert constant([*losses, *[100.0] * 19]) < 1
    assert constant([*losses, *[100.0] * 20]) >= 1


def test_a_loss_that_never_changed_needs_longer() -> None:
    assert constant([100.0] * 199) < 1
    assert constant([100.0] * 200) >= 1


def test_equal_values_are_normal_in_bf16() -> None:
    """Late in training a loss near 2.3 moves between neighbours of a grid of 1/64."""
    chance = random.Random(5)
    losses = [round((2.3 + chance.gauss(0, 0.004)) * 64) / 64 for _ in range(20_000)]
    assert sum(a == b for a, b in pairwise(losses)) > 0.5 * len(losses)
    detector = ConstantDetector()
    for loss in losses:
        detector.update([loss])
        assert dict(detector.measures())["loss_constant_ratio"] < 1


def test_a_value_that_is_shown_until_the_next_is_logged_is_not_stuck() -> None:
    chance = random.Random(7)
    detector = ConstantDetector()
    for _ in range(100):
        loss = chance.random()
        for _ in range(50):
            detector.update([loss])
            assert dict(detector.measures())["loss_constant_ratio"] < 1
