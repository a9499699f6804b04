"""Functions of ranges at their bounds, computed by hand from Prometheus' definitions."""

from typing import Any

import pytest

from ldlm_promrules.errors import RuleError
from ldlm_promrules.promql import Evaluator, parse
from ldlm_promrules.samples import Series
from tests.promrules.labelled import make_labels

TIMES = [100.0, 120.0, 140.0]
"""20 s apart: beyond 22 s, 1.1 times that, the change is extrapolated by 10 s only."""


def value(storage_of: Any, query: str, at: float, values: list[float]) -> float | None:
    storage = storage_of([Series(make_labels(__name__="x"), TIMES[: len(values)], values, None)])
    found = Evaluator(storage)(parse(query, experimental=True), at)
    return found[0].value if found else None


@pytest.mark.parametrize(
    ("window", "at", "expected"),
    [
        # 20 within 40 s, that is 0.5/s; the window begins at `at - window`.
        ("61s", 140, 20 + 0.5 * 21),
        ("62s", 140, 20 + 0.5 * 10),
        ("71s", 161, 20 + 0.5 * (10 + 21)),
        ("72s", 162, 20 + 0.5 * (10 + 10)),
    ],
)
def test_a_change_reaches_to_the_ends_of_the_window_that_are_near(
    storage_of: Any, window: str, at: float, expected: float
) -> None:
    assert value(storage_of, f"delta(x[{window}])", at, [10.0, 20.0, 30.0]) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 20.0, 40.0], 40.0),  # it was 0 at the first sample: it cannot have begun earlier
        ([5.0, 15.0, 25.0], 20 + 0.5 * 10),  # it was 0 10 s before
        ([10.0, 20.0, 30.0], 20 + 0.5 * 20),  # it was 0 20 s before; the window begins 21 s before
        ([-10.0, 0.0, 10.0], 20 + 0.5 * 21),  # no counter, for which nothing is cut
        ([7.0, 7.0, 7.0], 0.0),
        ([30.0, 40.0, 10.0], 20 * 61 / 40),  # a reset: 10 and again 10; 21 s are left to begin in
    ],
)
def test_a_counter_is_not_extrapolated_to_where_it_was_below_zero(
    storage_of: Any, values: list[float], expected: float
) -> None:
    assert value(storage_of, "increase(x[61s])", 140, values) == pytest.approx(expected)


@pytest.mark.parametrize("function", ["rate", "increase", "delta", "irate", "idelta", "deriv"])
def test_one_sample_has_no_change(storage_of: Any, function: str) -> None:
    assert value(storage_of, f"{function}(x[1m])", 110, [10.0]) is None
    assert value(storage_of, f"{function}(x[1m])", 130, [10.0, 20.0]) is not None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("irate(x[1m])", 0.0),
        ("resets(x[1m])", 0.0),
        ("changes(x[1m])", 1.0),
        ("increase(x[41s])", 10.25),
    ],
)
def test_a_counter_that_stands_still_was_not_reset(
    storage_of: Any, query: str, expected: float
) -> None:
    assert value(storage_of, query, 140, [10.0, 20.0, 20.0]) == pytest.approx(expected)


@pytest.mark.parametrize("factors", ["0, 0.5", "1, 0.5", "0.5, 0", "0.5, 1", "-1, 0.5", "0.5, NaN"])
def test_factors_of_smoothing_lie_between_0_and_1(storage_of: Any, factors: str) -> None:
    with pytest.raises(RuleError, match=r"double_exponential_smoothing: \w+ factor"):
        value(storage_of, f"double_exponential_smoothing(x[1m], {factors})", 140, [1.0, 2.0])


def test_smoothing_goes_on_by_the_trend(storage_of: Any) -> None:
    """Holt's method on a line finds the line."""
    query = "double_exponential_smoothing(x[1m], 0.3, 0.7)"
    assert value(storage_of, query, 140, [1.0, 2.0, 3.0]) == pytest.approx(3.0)
    assert value(storage_of, query, 110, [1.0]) is None
