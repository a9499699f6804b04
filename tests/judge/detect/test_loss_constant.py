"""A loss that repeats one value is found by its share; few digits, floors and bf16 are none."""

import random
from itertools import pairwise

import pytest

from ldlm_monitor.judge.detect.loss_constant import ConstantDetector


def highest(losses: list[float]) -> float:
    """The highest that the gauge ever was."""
    detector = ConstantDetector()
    found = 0.0
    for loss in losses:
        detector.update([loss])
        found = max(found, dict(detector.measures())["loss_constant_ratio"])
    return found


def last(losses: list[float]) -> float:
    detector = ConstantDetector()
    detector.update(losses)
    return dict(detector.measures())["loss_constant_ratio"]


def falling(noise: float, digits: int = 15, steps: int = 3000) -> list[float]:
    """A power law from 10 towards 2, with factors as noise, printed with some decimals."""
    chance = random.Random(1)
    curve = ((2 + 8 * (1 + n) ** -0.3) * chance.lognormvariate(0, noise) for n in range(steps))
    return [round(loss, digits) for loss in curve]


@pytest.mark.parametrize("digits", [15, 4, 3])
def test_a_clamp_is_known_after_twenty_equal_values(digits: int) -> None:
    losses = falling(0.05, digits)
    assert last([*losses, *[100.0] * 19]) < 1
    assert last([*losses, *[100.0] * 21]) >= 1


def test_a_clamp_that_is_left_again_and_again_is_known_by_its_share() -> None:
    """In one of 20 steps the raw loss is below the clamp at 100, as in 909 of 950 of a real run."""
    chance = random.Random(3)
    losses = [100.0 if chance.random() < 0.95 else chance.uniform(20, 99) for _ in range(950)]
    assert highest(losses) >= 1
    assert last([*falling(0.05), *losses]) >= 1
    assert last([*losses, *falling(0.05)]) < 1


def test_a_loss_that_never_changed_needs_longer() -> None:
    assert last([100.0] * 199) < 1
    assert last([100.0] * 200) >= 1


def test_a_loss_of_few_digits_that_becomes_constant_far_from_where_it_was_is_known() -> None:
    assert last([*falling(0.02, 2), *[100.0] * 40]) >= 1


@pytest.mark.parametrize("noise", [0.0003, 0.001, 0.01, 0.05])
@pytest.mark.parametrize("digits", [1, 2, 3])
def test_equal_values_are_normal_in_a_log_of_few_digits(noise: float, digits: int) -> None:
    assert highest(falling(noise, digits, 2000)) < 1


def test_equal_values_are_normal_in_bf16() -> None:
    """Late in training a loss near 2.3 moves between neighbours of a grid of 1/64."""
    chance = random.Random(5)
    losses = [round((2.3 + chance.gauss(0, 0.004)) * 64) / 64 for _ in range(5_000)]
    assert sum(a == b for a, b in pairwise(losses)) > 0.5 * len(losses)
    assert highest(losses) < 1


def test_a_value_that_is_shown_until_the_next_is_logged_is_not_stuck() -> None:
    chance = random.Random(7)
    assert highest([loss for _ in range(100) for loss in [chance.random()] * 50]) < 1


@pytest.mark.parametrize("digits", [2, 4])
def test_a_loss_that_is_learned_down_to_zero_is_not_stuck(digits: int) -> None:
    """It is 0.0 as printed in more and more steps, with harder batches between."""
    chance = random.Random(9)
    sizes = (0.7 * 0.996**n * chance.expovariate(1) ** 3 for n in range(4000))
    losses = [round(size, digits) for size in sizes]
    assert losses[2000:3000].count(0.0) > 500
    assert highest(losses[:3000]) < 1


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_hinge_or_policy_loss_that_is_often_zero_is_not_stuck(share: float) -> None:
    """Nothing to learn in most batches: their loss is exactly 0, the others' has either sign."""
    chance = random.Random(11)
    losses = [0.0 if chance.random() < share else chance.gauss(0, 0.3) for _ in range(3000)]
    assert highest(losses) < 1


@pytest.mark.parametrize("constant", [0.0, 0.01])
def test_zero_in_place_of_nan_is_known_after_twenty_values(constant: float) -> None:
    losses = falling(0.05, 4)
    assert last([*losses, *[constant] * 19]) < 1
    assert last([*losses, *[constant] * 21]) >= 1
