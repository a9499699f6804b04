"""From which number of values on, and beyond which, each detector measures: exactly there."""

import math

import pytest

from ldlm_monitor.judge.detect.checkpoint_age import checkpoint_age
from ldlm_monitor.judge.detect.gradient import (
    GradientDetector,
    LossScaleDetector,
    OverflowDetector,
    skipped_share,
)
from ldlm_monitor.judge.detect.memory import MemoryDetector
from ldlm_monitor.judge.detect.throughput import LastingDrop, RankDetector, ThroughputDetector


def test_a_gradient_norm_has_a_past_from_fifty_values_on() -> None:
    detector = GradientDetector()
    detector.update([1.0] * 49 + [0.0, -1.0, math.nan, math.inf])
    assert dict(detector.measures()) == {}
    detector.update([math.e])
    measured = dict(detector.measures())
    assert measured["grad_norm_zscore"] == pytest.approx(1 / 0.05)
    assert measured["grad_norm_ratio"] == pytest.approx(1.0)
    detector.update([math.e] * 10)
    assert dict(detector.measures())["grad_norm_ratio"] == pytest.approx(math.e)


def test_a_rise_between_two_looks_is_not_missed() -> None:
    detector = GradientDetector()
    detector.update([1.0] * 60)
    detector.update([math.e] * 12 + [1.0] * 20)
    assert dict(detector.measures())["grad_norm_ratio"] == pytest.approx(math.e)
    detector.update([1.0])
    assert dict(detector.measures())["grad_norm_ratio"] == pytest.approx(1.0)


def test_a_loss_scale_has_a_past_from_twenty_values_on() -> None:
    detector = LossScaleDetector()
    detector.update([1024.0] * 20)
    assert dict(detector.measures()) == {}
    detector.update([256.0])
    assert dict(detector.measures()) == {"loss_scale_ratio": 0.25}


@pytest.mark.parametrize(
    ("values", "explained"),
    [
        ("", 0), ("x", 1), ("xxxx", 4), ("xxxxx", 0), ("xxxxxxx", 0), ("xxxx.xx", 6),
        ("xxxx.xxx", 4), ("x.x.xx", 4), (".x", 0), (".xx.x", 0), ("xx.xxx.x", 3),
    ],
)  # fmt: skip
def test_overflows_are_explained_up_to_four_at_the_start_and_two_later(
    values: str, explained: int
) -> None:
    detector = OverflowDetector()
    detector.update([math.inf if each == "x" else 1.0 for each in values])
    expected = {"grad_norm_overflow_steps": explained} if explained else {}
    assert dict(detector.measures()) == expected


def test_skipped_steps_are_those_of_the_last_hundred_after_three_hundred() -> None:
    assert dict(skipped_share(1299, [1250], 299)) == {}
    assert dict(skipped_share(1300, [1200, 1201, 1300], 300)) == {"skipped_steps_ratio": 0.02}
    assert dict(skipped_share(200, [300], 200)) == {"skipped_steps_ratio": 0.01}
    assert dict(skipped_share(500, [], 500)) == {"skipped_steps_ratio": 0.0}
    assert dict(skipped_share(400, [350] * 300, 400)) == {"skipped_steps_ratio": 1.0}


def test_a_checkpoint_has_an_age_after_four_that_rise() -> None:
    assert dict(checkpoint_age(60, [10, 20, 30])) == {}
    assert dict(checkpoint_age(65, [10, 20, 40, 50])) == {"checkpoint_age_ratio": 0.75}
    assert dict(checkpoint_age(50, [10, 20, 40, 50])) == {"checkpoint_age_ratio": 0.0}
    assert dict(checkpoint_age(49, [10, 20, 40, 50])) == {}
    assert dict(checkpoint_age(65, [10, 20, 20, 50])) == {}


def test_memory_is_compared_by_quarters_of_four_hundred_after_the_first_hundred() -> None:
    detector = MemoryDetector()
    detector.update([9e9] * 60)
    detector.update([9e9] * 40 + [math.nan] + [100.0] * 100 + [110.0] * 100 + [130.0] * 100)
    detector.update([140.0] * 99)
    assert dict(detector.measures()) == {}
    detector.update([140.0])
    assert dict(detector.measures()) == {"memory_growth_ratio": 0.1}
    flat = MemoryDetector()
    flat.update([0.0] * 500)
    assert dict(flat.measures()) == {}


def test_a_pace_is_known_from_five_stretches_on_and_three_slow_ones_are_a_drop() -> None:
    drop = LastingDrop()
    for number in range(4):
        drop.add(1.0, float(number))
    assert drop.ratio is None
    drop.add(1.0, 4.0)
    assert (drop.ratio, drop.share, drop.since) == (1.0, 0.0, None)
    for number in range(5, 8):
        assert drop.since is None
        drop.add(2.0, float(number))
    assert (drop.ratio, drop.since) == (pytest.approx(0.5), 5.0)
    assert drop.share == pytest.approx(0.5)
    for number in range(8, 11):
        assert drop.since == 5.0
        drop.add(1.0, float(number))
    assert (drop.since, drop.share) == (None, 0.0)


def test_a_stretch_is_ten_steps_without_the_slowest_fifth() -> None:
    detector = ThroughputDetector()
    for _ in range(5):
        detector.update([1.0] * 8 + [50.0, 60.0])
    assert dict(detector.measures())["throughput_ratio"] == pytest.approx(1.0)
    for _ in range(3):
        detector.update([2.0] * 9 + [60.0])
    assert dict(detector.measures())["throughput_ratio"] == pytest.approx(0.5)


def test_the_variation_is_that_of_the_last_fifty_steps() -> None:
    detector = ThroughputDetector()
    detector.update([1.0, 3.0] * 24 + [1.0])
    assert "throughput_variation_ratio" not in dict(detector.measures())
    detector.update([3.0])
    assert dict(detector.measures())["throughput_variation_ratio"] == pytest.approx(0.5)


def test_ranks_are_compared_once_two_have_twenty_steps_by_their_own_work_if_known() -> None:
    detector = RankDetector()
    detector.update_steps({0: 9})
    assert list(detector.measures()) == []
    detector.update_steps({0: 9, 1: 4})
    assert list(detector.measures()) == [(0, "rank_lag_steps", 0), (1, "rank_lag_steps", 5)]
    detector.update_steps({})
    for rank, seconds in ((0, 1.0), (1, 3.0)):
        detector.update_seconds(rank, [seconds] * 19)
    assert list(detector.measures()) == []
    for rank, seconds in ((0, 1.0), (1, 3.0)):
        detector.update_seconds(rank, [seconds])
    found = [(0, "rank_slowdown_ratio", 0.5), (1, "rank_slowdown_ratio", 1.5)]
    assert list(detector.measures()) == found
    detector.update_seconds(0, [0.2] * 20, busy=True)
    assert list(detector.measures()) == [], "the others' are not their own work"
    detector.update_seconds(1, [0.6] * 20, busy=True)
    detector.update_seconds(1, [9.0] * 20)
    assert [value for *_, value in detector.measures()] == pytest.approx([0.5, 1.5])
