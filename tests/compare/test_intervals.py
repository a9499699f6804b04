"""Confidence intervals hold the truth as often as they say, and no difference is seen in none."""

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest
from made import noise

from ldlm_monitor.compare.bootstrap import Location, block_length, mean_of, median_of
from ldlm_monitor.compare.difference import Difference, of_logarithms, of_means, of_pairs
from ldlm_monitor.compare.quantities import LOSS, STEP_SECONDS
from ldlm_monitor.compare.student import inside, quantile
from ldlm_monitor.compare.verdict import verdict

TRUTH = 0.77
"""Step time of the candidate, as a share of the baseline's: 30 % faster."""


def step_times(chance: random.Random, count: int, memory: float, center: float) -> list[float]:
    """Logarithms of step times: normal noise that remembers, and now and then a slow step."""
    found = []
    for value in noise(chance, count, memory):
        slow = chance.expovariate(0.4) if chance.random() < 0.03 else 0.0
        found.append(math.log(center) + 0.1 * value + slow)
    return found


def differences(trials: int, count: int, memory: float, truth: float) -> list[Difference | None]:
    chance = random.Random(20260129)
    found = []
    for _ in range(trials):
        a = median_of(step_times(chance, count, memory, 1.0), replicates=200)
        b = median_of(step_times(chance, count, memory, truth), replicates=200)
        assert a is not None
        assert b is not None
        found.append(of_logarithms(a, b, 0.95))
    return found


def covered(found: Sequence[Difference | None], truth: float) -> float:
    told = [each for each in found if each is not None]
    return fmean(each.low <= truth <= each.high for each in told)


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_the_interval_of_a_speed_up_holds_the_truth(memory: float) -> None:
    found = differences(100, 80, memory, TRUTH)
    assert 0.90 <= covered(found, TRUTH - 1) <= 1.0


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_where_nothing_changed_no_difference_is_seen(memory: float) -> None:
    told = [verdict(STEP_SECONDS, each)[0] for each in differences(100, 80, memory, 1.0) if each]
    assert told.count("better") + told.count("worse") <= 8


@pytest.mark.long
@pytest.mark.parametrize("count", [40, 100, 400])
@pytest.mark.parametrize("memory", [0.0, 0.3, 0.6, 0.8])
def test_the_rates_hold_over_many_trials(count: int, memory: float) -> None:
    """Between 92 and 99 of a hundred, where so many values are enough to tell anything."""
    found = differences(500, count, memory, TRUTH)
    told = [each for each in found if each is not None]
    if len(told) < 250:
        assert (count, memory) == (40, 0.8)
        return
    assert 0.92 <= covered(found, TRUTH - 1) <= 0.99
    same = differences(500, count, memory, 1.0)
    seen = [verdict(STEP_SECONDS, each)[0] for each in same if each is not None]
    assert (seen.count("better") + seen.count("worse")) / len(seen) <= 0.08


def losses(chance: random.Random, count: int, level: float) -> list[float]:
    return [level + 0.05 * value for value in noise(chance, count, 0.3)]


def shared_noise(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    moved = mean_of([y - x for x, y in zip(a, b, strict=True)], replicates=200)
    assert moved is not None
    return of_pairs(moved, fmean(a), 0.95)


def own_noise(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    first, second = mean_of(a, replicates=200), mean_of(b, replicates=200)
    assert first is not None
    assert second is not None
    return of_means(first, second, 0.95)


@pytest.mark.parametrize("how", [shared_noise, own_noise])
@pytest.mark.parametrize(("level", "truth"), [(2.0, 0.0), (1.96, -0.02)])
def test_the_interval_of_a_loss_holds_the_truth(
    how: Callable[[Sequence[float], Sequence[float]], Difference | None],
    level: float,
    truth: float,
) -> None:
    chance = random.Random(7)
    found = [how(losses(chance, 80, 2.0), losses(chance, 80, level)) for _ in range(120)]
    assert 0.90 <= covered(found, truth) <= 1.0
    if not truth:
        told = [verdict(LOSS, each)[0] for each in found if each is not None]
        assert told.count("better") + told.count("worse") <= 10


def test_steps_that_share_their_noise_are_compared_more_sharply() -> None:
    chance = random.Random(3)
    a = losses(chance, 100, 2.0)
    b = [value * 0.99 for value in a]
    paired, apart = shared_noise(a, b), own_noise(a, b)
    assert paired is not None
    assert apart is not None
    assert paired.high - paired.low < 0.1 * (apart.high - apart.low)


def test_values_that_hang_together_are_drawn_in_longer_blocks() -> None:
    chance = random.Random(11)
    lengths = [block_length(noise(chance, 1000, memory)) for memory in (0.0, 0.5, 0.9)]
    assert lengths == sorted(lengths)
    assert lengths[2] > 3 * lengths[0]


def test_the_same_values_give_the_same_interval() -> None:
    values = step_times(random.Random(5), 200, 0.5, 1.0)
    assert median_of(values) == median_of(list(values))


def test_of_too_few_values_nothing_is_said() -> None:
    assert median_of([1.0] * 19) is None
    assert mean_of([1.0] * 19) is None
    few = Location(0.0, 0.1, 3, 30)
    assert of_logarithms(few, Location(0.0, 0.1, 50, 60), 0.95) is None


def test_constant_values_are_known_exactly() -> None:
    a, b = median_of([1.0] * 50), median_of([1.0 + math.log(0.65)] * 50)
    assert a is not None
    assert b is not None
    found = of_logarithms(a, b, 0.95)
    assert found is not None
    assert (found.change, found.low, found.high) == pytest.approx((-0.35, -0.35, -0.35))
    assert found.p == 0


def test_losses_that_are_nothing_in_both_runs_do_not_differ() -> None:
    """As the loss of a part that a mode does not train."""
    nothing = [0.0] * 40
    for how in (shared_noise, own_noise):
        found = how(nothing, nothing)
        assert found is not None
        assert (found.change, found.low, found.high) == (0, 0, 0)
        assert how(nothing, [0.1 + n / 1000 for n in range(40)]) is None


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.30265), (5, 2.57058), (10, 2.22814), (30, 2.04227)],
)
def test_quantiles_of_students_t_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(expected, abs=1e-5)
    assert inside(expected, freedom) == pytest.approx(0.95, abs=1e-6)
