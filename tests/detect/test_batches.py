"""What a detector says depends on the values and their order, not on how they came."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.detect.detectors import Detector, MemoryDetector
from ldlm_monitor.detect.gradient import GradientDetector, LossScaleDetector, OverflowDetector
from ldlm_monitor.detect.loss_trend import ConstantDetector, LossDetector
from ldlm_monitor.detect.throughput import ThroughputDetector

DETECTORS = (
    LossDetector,
    ConstantDetector,
    GradientDetector,
    ThroughputDetector,
    MemoryDetector,
    LossScaleDetector,
    OverflowDetector,
)
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
