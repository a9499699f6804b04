"""A spike passes, a divergence stays, a plateau does not fall; noise is none of them."""

import math
import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.judge.detect.loss_trend import UNSURE, LossDetector, trend

STEPS = 3000


def falling(noise: float, seed: int = 1, steps: int = STEPS) -> list[float]:
    """A power law from 10 towards 2, as language models have it, with factors as noise."""
    chance = random.Random(seed)
    return [(2 + 8 * (1 + n) ** -0.3) * chance.lognormvariate(0, noise) for n in range(steps)]


def seen(*parts: list[float]) -> dict[str, float]:
    """The gauges after losses that came in these parts."""
    detector = LossDetector()
    for losses in parts:
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
    assert seen(losses[:2021], losses[2021:2030])["loss_spike_ratio"] < 1.6
    assert worst(losses[:2100], "loss_rise_ratio") < 1.5


def test_a_spike_that_passed_between_two_evaluations_is_seen() -> None:
    losses = falling(0.05)
    losses[2000:2006] = [8.0] * 6
    assert seen(losses[:1990], losses[1990:2240])["loss_spike_ratio"] > 2


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
    noisy = [0.8, 0.7, 0.9, 1.1, 0.7, 0.9, 1.0, 0.8, 0.9, 0.7]
    assert "loss_peak_ratio" not in seen([*noisy[:9], 3.9])
    assert seen([*noisy, 3.9])["loss_peak_ratio"] == pytest.approx(3.9 / 1.1)


def test_a_peak_among_the_first_losses_is_known_though_the_loss_comes_back() -> None:
    assert worst([12.4, 44.0, 12.3, 20.4], "loss_peak_ratio") > 3


def test_the_jump_of_the_first_updates_is_no_peak() -> None:
    """The first step of Adam at a large model, as a healthy run of Megatron had it."""
    losses = [12.03, 22.48, 12.56, 9.72, 8.39, 8.15, 8.16, *([8.0] * 20)]
    assert worst(losses, "loss_peak_ratio") < 2
    assert worst(losses, "loss_rise_ratio") < 1.5


def test_a_divergence_in_the_first_steps_is_known_before_there_is_a_level_of_a_hundred() -> None:
    losses = [*falling(0.03, steps=40), *[6.5 * 1.06**n for n in range(25)]]
    assert seen(losses)["loss_rise_ratio"] > 1.5
    assert seen(losses)["loss_rise_zscore"] > 3
    stayed = [*losses, *[28.0] * 300]
    assert seen(stayed)["loss_rise_ratio"] > 1.5
    assert seen(stayed)["loss_rise_zscore"] > 3


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("seed", range(20))
def test_the_first_steps_of_a_healthy_run_are_no_divergence(noise: float, seed: int) -> None:
    losses = falling(noise, seed, 300)
    flat = [loss / (2 + 8 * (1 + n) ** -0.3) for n, loss in enumerate(losses)]
    for values in (losses, flat):
        assert not diverges(values)


def diverges(losses: list[float]) -> bool:
    """Whether LossDiverging would fire in any step."""
    detector = LossDetector()
    for loss in losses:
        detector.update([loss])
        gauges = dict(detector.measures())
        zscore = gauges.get("loss_rise_zscore", 0.0)
        if zscore > 3 and gauges.get("loss_rise_ratio", 0.0) > 1.5:
            return True
        if zscore > 10 and "loss_rise_ratio" not in gauges:
            return True
    return False


def test_a_negative_loss_is_compared_by_differences_over_its_noise() -> None:
    """The negative logarithm of a density; the objective of a policy moves around 0."""
    chance = random.Random(2)
    density = [-3.0 - 2 * n / (50 + n) + chance.gauss(0, 0.2) for n in range(1000)]
    policy = [chance.gauss(0, 0.05) + 0.03 * math.sin(n / 40) for n in range(1000)]
    assert not diverges(density)
    assert not diverges(policy)
    assert diverges([*density, *[1.0 + chance.gauss(0, 0.2) for _ in range(30)]])


@pytest.mark.parametrize("seed", range(5))
def test_losses_near_zero_that_scatter_by_factors_do_not_diverge(seed: int) -> None:
    """A fine-tuning that knows its data by heart: some batches are harder by factors."""
    chance = random.Random(seed)
    learned = [12 * math.exp(-n / 40) + 3e-4 * chance.lognormvariate(0, 1.2) for n in range(800)]
    harder = [2e-3 * chance.lognormvariate(0, 1.2) for _ in range(200)]
    assert not diverges([*learned, *harder])
    assert diverges([*learned, *(0.5 * chance.lognormvariate(0, 1.2) for _ in range(60))])


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
    assert trend([1, 2, 3, 4, 5])[0] == pytest.approx(9 / (300 / 18) ** 0.5)
    assert trend([5, 4, 3, 2, 1])[0] == -trend([1, 2, 3, 4, 5])[0]
    assert trend([1, 1, 1])[0] == 0


def test_the_slope_is_that_of_theil_and_sen() -> None:
    """One outlier does not turn it: the median of the slopes of all pairs."""
    assert trend([1, 2, 3, 100, 5])[1] == pytest.approx(5 / 3)


FLOATS = st.sampled_from([0.0, -0.0, 1e308, -1e308]) | st.integers(-99, 99).map(lambda n: n / 64)


@given(st.lists(FLOATS, min_size=2))
def test_the_trend_counts_the_pairs_that_rise_and_fall(values: list[float]) -> None:
    pairs = combinations(values, 2)
    score = sum((later > earlier) - (later < earlier) for earlier, later in pairs)
    count = len(values)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    assert trend(values)[0] == (score - (score > 0) + (score < 0)) / deviation


def test_the_gauges_are_the_numbers_that_their_text_says() -> None:
    before = [1.0, 2.0, 3.0] * 160  # median 2, and 1.4826 as their deviation
    found = seen(before, [2.0] * 17 + [3.0, 4.0, 5.0])
    assert found["loss_zscore"] == pytest.approx((5 - 2) / 1.4826)
    assert found["loss_spike_ratio"] == pytest.approx((4 - 2) / (4 * 1.4826))  # of neighbours
    assert found["loss_peak_ratio"] == pytest.approx(4 / 3)  # each over all before it
    assert (found["loss_rise_ratio"], found["loss_rise_zscore"]) == (1.0, 0.0)
    halves = [*before, *[2.0] * 17, 3.0, 4.0, 5.0][-50:]
    assert found["loss_trend_ratio"] == pytest.approx(sum(halves[25:]) / sum(halves[:25]))
    risen = seen(before, [4.0] * 20)
    assert risen["loss_rise_ratio"] == 2.0
    scatter = 1.4826 * math.log(1.5)  # of the logarithms 0, log 2 and log 3
    assert risen["loss_rise_zscore"] == pytest.approx(math.log(2) / scatter / UNSURE)


def test_a_loss_near_zero_has_no_lower_level_than_a_hundredth_of_its_start() -> None:
    learned = [*[2.0] * 20, *[0.0001] * 200]
    assert seen([*learned, *[0.01] * 20])["loss_rise_ratio"] == 1.0
    assert seen([*learned, *[0.2] * 20])["loss_rise_ratio"] == pytest.approx(10.0)
    small = [value / 1000 for value in learned]
    assert seen([*small, *[0.0002] * 20])["loss_rise_ratio"] == pytest.approx(10.0)


def test_a_loss_that_jumps_and_settles_above_its_level_diverges() -> None:
    """It falls at first, as after a spike, and stays at more than twice the level before."""
    first = falling(0.02, steps=1500)
    chance = random.Random(5)
    fall = [1.2 * max(0.0, 1 - step / 200) for step in range(1500)]
    high = [(2.3 * first[-1] + each) * chance.lognormvariate(0, 0.01) for each in fall]
    assert diverges(first + high)
