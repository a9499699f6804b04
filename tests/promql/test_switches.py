"""What is known of an expression in which only time moves."""

import pytest

from ldlm_monitor.promql import parse, switches


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x > 3", 0),
        ("time() - x > 3", 1),
        ("3 * y < time() - x", 1),
        ("x - time() <= -60", 1),
        ("time() - x > y and on (run) time() - z > 5 unless w == 1", 2),
        ("max by (run) (time() - max_over_time(x[1d]) >= 3600)", 1),
        ("x > 3 or time() - y > 5", 1),
    ],
)
def test_comparisons_with_the_time_are_found(text: str, found: int) -> None:
    comparisons = switches(parse(text))
    assert comparisons is not None
    assert len(comparisons) == found


@pytest.mark.parametrize(
    "text",
    [
        "time() - x",
        "time() - x == 60",
        "(time() - x) % 60 > 30",
        "time() - x > time() - y",
        "hour() > 3",
        "time() - timestamp(x) > 3",
        "time() - x > bool 3",
        "(time() - x > 3) * 2 > 100",
        "max_over_time((time() - x > 3)[1h:1m])",
        "count_values('age', time() - x > 3)",
        "topk(1, time() - x > 3)",
    ],
)
def test_what_time_may_change_otherwise_is_not_taken_for_a_comparison(text: str) -> None:
    assert switches(parse(text)) is None
