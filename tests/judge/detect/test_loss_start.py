"""A loss that never left the level of a guess, and those that look like it and are none."""

import math
import random
from collections.abc import Sequence

import pytest

from ldlm_monitor.judge.detect.loss_constant import ConstantDetector
from ldlm_monitor.judge.detect.loss_start import StartDetector

STEPS = 800


def at_start(losses: Sequence[float], batch: int = 1, gauge: str = "loss_start_rows") -> float:
    detector = StartDetector()
    for first in range(0, len(losses), batch):
        detector.update(losses[first : first + batch])
    return dict(detector.measures()).get(gauge, 0.0)


def noisy(level: float, noise: float, steps: int = STEPS, fall: float = 0.0) -> list[float]:
    rng = random.Random(level)
    return [
        level * (1 - fall * step / steps) * (1 + noise * rng.gauss(0, 1)) for step in range(steps)
    ]


@pytest.mark.parametrize("classes", [2, 3, 4, 10, 100, 1000, 32000, 50257, 262144])
@pytest.mark.parametrize("batch", [1, 7, STEPS])
def test_a_guess_among_classes_is_found_however_its_values_come(classes: int, batch: int) -> None:
    assert at_start(noisy(math.log(classes), 0.001), batch) == STEPS


def test_the_first_updates_of_a_wrong_scale_do_not_hide_it() -> None:
    assert at_start([90.0, 40.0, 15.0, math.nan, *noisy(10.82, 0.005)]) == STEPS + 3


def test_means_of_many_steps_are_quiet_so_that_forty_show_it_and_noisy_losses_take_more() -> None:
    assert at_start(noisy(2.303, 0.001, 40)) == 40
    assert at_start(noisy(2.303, 0.001, 39)) == 0
    assert at_start(noisy(2.303, 0.012, 60)) == 0
    assert at_start(noisy(2.303, 0.006, 160)) == 160


@pytest.mark.parametrize("level", [2.07, 2.9, 3.12, 3.24, 4.4])
def test_means_that_stand_still_are_those_of_a_language_model_that_is_trained(level: float) -> None:
    assert at_start(noisy(level, 0.001)) == at_start(noisy(level, 0.001, 60)) == 0


@pytest.mark.parametrize("level", [0.05, 0.5, 0.75, 1.0, 1.5, 2.6, 3.3, 4.2, 17.0, 120.0])
def test_a_flat_loss_of_another_level_is_that_of_a_trained_model(level: float) -> None:
    assert at_start(noisy(level, 0.003)) == 0
    assert at_start(noisy(level, 0.003), gauge="loss_flat_rows") == STEPS


@pytest.mark.parametrize("level", [0.693, 2.303, 10.82])
def test_a_loss_that_falls_slowly_has_left_its_start(level: float) -> None:
    fallen = noisy(level, 0.005, fall=0.03)
    assert at_start(fallen) == at_start(fallen, gauge="loss_flat_rows") == 0


def test_a_loss_that_leaves_its_start_at_last_is_counted_no_longer() -> None:
    """Without the gauge, whether it still stands there would not be known."""
    detector = StartDetector()
    detector.update(noisy(10.82, 0.005))
    gauges = ("loss_flat_rows", "loss_start_rows", "loss_unmoved_rows")
    assert dict(detector.measures()) == dict.fromkeys(gauges, STEPS)
    detector.update(noisy(9.0, 0.005, 40))
    assert dict(detector.measures()) == {"loss_flat_rows": 0, "loss_start_rows": 0}


def test_a_loss_that_has_left_its_start_does_not_come_back_to_it() -> None:
    assert at_start([*noisy(10.82, 0.005), *noisy(9.0, 0.005), *noisy(10.82, 0.005)]) == 0


def test_a_trained_model_whose_batches_differ_is_none_though_the_level_fits() -> None:
    assert at_start(noisy(math.log(10), 0.2)) == 0


def lead(losses: Sequence[float]) -> float:
    detector = ConstantDetector()
    for first in range(0, len(losses), 3):
        detector.update(losses[first : first + 3])
    return dict(detector.measures())["loss_constant_lead_ratio"]


def test_a_loss_at_its_clamp_from_the_start_leads_and_one_that_came_to_it_does_not() -> None:
    falling = [7 - step / 100 for step in range(300)]
    assert lead([*falling[:10], *[100.0] * 300]) > 0.8
    assert lead([*falling, *[0.01] * 300]) < 0.5
    assert lead([100.0, 3.0, 100.0, 2.0, 100.0, 1.0] * 50) < 0.5
    assert lead(falling) < 0.1
    assert lead([0.0] * 300) == 0


@pytest.mark.parametrize(("fall", "rows"), [(0.0, 60), (0.02, 0), (-0.02, 0)])
def test_a_short_log_shows_whether_its_loss_moved_at_all(fall: float, rows: int) -> None:
    """Whatever its level and its noise, which is 1 % here."""
    short = noisy(1.7, 0.01, 60, fall=fall)
    assert at_start(short, gauge="loss_unmoved_rows") == rows
    assert at_start(short[:29], gauge="loss_unmoved_rows") == 0


def test_a_loss_that_is_exactly_the_same_has_not_moved() -> None:
    assert at_start([2.3026] * 30, gauge="loss_unmoved_rows") == 30
