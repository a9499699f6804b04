"""What a detector says depends on the values and their order, not on how they came."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.judge.detect import detectors
from ldlm_monitor.judge.detect.detector import Detector
from ldlm_monitor.judge.detect.throughput import ThroughputDetector
from ldlm_monitor.logs.parse.vocabulary import is_metric
from tests.extending_page import example

SHOWN: dict[str, Any] = {}
exec(example("A detector and its alert"), SHOWN)
DETECTORS = (*detectors.DETECTORS, ThroughputDetector, SHOWN["AccuracyDetector"])
values = st.one_of(
    st.floats(0.1, 10), st.sampled_from([0.0, 2.5, 1e30, float("nan"), float("inf"), -1.0])
)


@pytest.mark.parametrize("make", DETECTORS)
@given(st.lists(values, min_size=1, max_size=700), st.lists(st.integers(1, 200), min_size=1))
def test_batches_make_no_difference(
    make: Callable[[], Detector], values: list[float], sizes: list[int]
) -> None:
    at_once, in_parts = make(), make()
    at_once.update(values)
    start = 0
    while start < len(values):
        for size in sizes:
            in_parts.update(values[start : start + size])
            list(in_parts.measures())
            start += size
    assert dict(in_parts.measures()) == dict(at_once.measures())


@pytest.mark.parametrize("make", DETECTORS)
@given(st.lists(st.floats(), max_size=500))
def test_no_numbers_are_too_strange(make: Callable[[], Detector], values: list[float]) -> None:
    detector = make()
    detector.update(values)
    assert all(isinstance(value, float | int) for _, value in detector.measures())


@pytest.mark.parametrize("make", DETECTORS)
def test_numbers_of_three_hundred_digits_do_not_raise(make: Callable[[], Detector]) -> None:
    """Their squares and their ratios in logarithms are beyond the largest float."""
    detector = make()
    detector.update([1e-10] * 500 + [1e300] * 20)
    assert not any(math.isnan(value) for _, value in detector.measures())


def test_the_detector_that_the_page_on_extending_shows_measures_what_it_says() -> None:
    detector = SHOWN["AccuracyDetector"]()
    detector.update([0.5] * 49)
    assert dict(detector.measures()) == {}
    detector.update([0.8, float("nan"), *[0.6] * 49])
    assert dict(detector.measures()) == {"accuracy_lost_ratio": pytest.approx(0.25)}
    assert is_metric(detector.quantity)
