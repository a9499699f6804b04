"""Confidence intervals hold the truth as often as they say, and no difference is seen in none."""

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest

from interval_coverage import Case, cases, rates, remembering
from ldlm_monitor.finished.compare.difference_words import LOSS, verdict
from ldlm_monitor.finished.compare.intervals import (
    Difference,
    Location,
    inside,
    mean_of,
    median_of,
    memory_of,
    of_logarithms,
    of_means,
    of_pairs,
    quantile,
)

PAIRS = 40
"""Of runs that are compared; benchmarks/interval_coverage.py has the rates of 300."""


def covered(found: Sequence[Difference | None], truth: float) -> float:
    given = [each for each in found if each is not None]
    return fmean(each.low <= truth <= each.high for each in given)


@pytest.mark.parametrize("memory", [0.0, 0.6])
def test_an_interval_holds_the_truth_and_a_tenth_is_seen_in_200_steps(memory: float) -> None:
    found = rates(Case("step time", "steady", 200, memory), PAIRS)
    assert found.given == 1
    assert found.covered >= 0.9
    assert found.false <= 0.1
    assert found.found >= 0.9


@pytest.mark.parametrize("noise", ["spikes", "wild", "warm-up", "rhythm"])
def test_slow_steps_do_not_hide_the_truth(noise: str) -> None:
    found = rates(Case("step time", noise, 100, 0.3), PAIRS)
    assert found.given >= 0.8
    assert found.covered >= 0.88
    assert found.false <= 0.1


@pytest.mark.parametrize(("count", "memory"), [(40, 0.8), (100, 0.9)])
def test_of_too_few_independent_steps_nothing_is_told(count: int, memory: float) -> None:
    assert rates(Case("step time", "steady", count, memory), PAIRS).given <= 0.1


@pytest.mark.long
@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_rates_hold_over_many_pairs(case: Case) -> None:
    """Where few pairs get an interval, they are those whose memory does not show."""
    found = rates(case, 300)
    assert found.covered >= (0.93 if found.given > 0.5 else 0.87) or found.given < 0.2
    assert found.false <= 0.08


def losses(chance: random.Random, count: int, level: float) -> list[float]:
    return [level + 0.05 * value for value in remembering(chance, count, 0.3)]


def shared_noise(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    moved = mean_of([y - x for x, y in zip(a, b, strict=True)])
    assert moved is not None
    return of_pairs(moved, fmean(a), 0.95)


def own_noise(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    first, second = mean_of(a), mean_of(b)
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
        given = [verdict(LOSS, each)[0] for each in found if each is not None]
        assert given.count("better") + given.count("worse") <= 10


def test_steps_that_share_their_noise_are_compared_more_sharply() -> None:
    chance = random.Random(3)
    a = losses(chance, 100, 2.0)
    b = [value * 0.99 for value in a]
    paired, apart = shared_noise(a, b), own_noise(a, b)
    assert paired is not None
    assert apart is not None
    assert paired.high - paired.low < 0.1 * (apart.high - apart.low)


def test_values_that_hang_together_are_known_less_well() -> None:
    chance = random.Random(11)
    found = [mean_of(remembering(chance, 1000, memory)) for memory in (0.0, 0.5, 0.9)]
    errors = [each.error for each in found if each is not None]
    assert errors == sorted(errors)
    assert errors[2] > 3 * errors[0]


def test_the_same_values_give_the_same_interval() -> None:
    values = remembering(random.Random(5), 200, 0.5)
    assert median_of(values) == median_of(list(values))


def test_memory_is_that_of_the_process_whatever_its_jitter() -> None:
    """Slow changes, and as much jitter of each value above them, which hides them."""
    chance = random.Random(13)
    slow = remembering(chance, 20_000, 0.9)
    jittered = [value + chance.gauss(0, 1) for value in slow]
    found, half = memory_of(slow, 0.0), memory_of(jittered, 0.0)
    assert (found.near, found.decay) == pytest.approx((0.9, 0.9), abs=0.02)
    assert (half.near, half.decay) == pytest.approx((0.45, 0.9), abs=0.04)
    assert found.whole == pytest.approx(19, rel=0.15)


def test_a_short_series_has_its_memory_at_its_true_length_on_average() -> None:
    """Its mean is its own, which makes neighbours seem less alike: a bias that is taken out."""
    chance = random.Random(17)
    found = [memory_of(remembering(chance, 60, 0.6), 0.0).near for _ in range(300)]
    assert fmean(found) == pytest.approx(0.6, abs=0.04)


def test_a_difference_beyond_all_measure_is_told_as_infinite() -> None:
    far = of_logarithms(Location(0.0, 300.0, 5), Location(1.0, 0.1, 5), 0.95)
    assert far is not None
    assert (far.low, far.high) == (-1.0, math.inf)
    assert far.inverted().high == math.inf


def test_of_too_few_values_nothing_is_said() -> None:
    assert median_of([1.0] * 19) is None
    assert mean_of([1.0] * 19) is None
    few = Location(0.0, 0.1, 2)
    assert of_logarithms(few, Location(0.0, 0.1, 50), 0.95) is None


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
