"""What an expression reads, and which changes of it change the result."""

import math

import pytest

from ldlm_promrules.promql import parse
from ldlm_promrules.promql.expression import (
    ROUNDING_SECONDS,
    counts_samples,
    keeps_apart,
    max_range,
    metric_names,
    names_its_metrics,
    result_selectors,
    settles_after,
    uses_time,
)
from ldlm_promrules.promql.expression_inputs import Input, inputs
from ldlm_promrules.promql.nodes import LOOKBACK

LAST = frozenset({"last"})


@pytest.mark.parametrize(
    ("text", "names", "every"),
    [
        ("a + b", {"a", "b"}, True), ('{__name__="a"}', {"a"}, True), ("1 + 2", set(), True),
        ('{__name__=~"a.*"} > b', {"b"}, False), ('{job="x"}', set(), False),
        ("rate(a[5m]) / sum(b)", {"a", "b"}, True),
    ],
)  # fmt: skip
def test_metrics_are_those_that_selectors_name(text: str, names: set[str], every: bool) -> None:
    assert metric_names(parse(text)) == names
    assert names_its_metrics(parse(text)) is every


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a and b", ["a"]), ("a unless b", ["a"]), ("a or b", ["a", "b"]),
        ("sum(a and b) + c", ["a", "c"]), ("(a or b) unless c", ["a", "b"]), ("vector(1)", []),
    ],
)  # fmt: skip
def test_series_right_of_and_are_not_in_the_result(text: str, names: list[str]) -> None:
    assert [each.metric for each in result_selectors(parse(text).root)] == names


@pytest.mark.parametrize(
    ("text", "settles", "oldest"),
    [
        ("a", 0.0, LOOKBACK), ("a offset 1m", 60.0, 60.0 + LOOKBACK),
        ("a offset -1m", 0.0, LOOKBACK), ("a @ 100", math.inf, math.inf),
        ("rate(a[5m])", 300.0, 300.0), ("rate(a[5m] offset 1m)", 360.0, 360.0),
        ("max_over_time(a[10m:1m])", 600.0, 600.0 + LOOKBACK),
        ("max_over_time(rate(a[5m])[10m:1m] offset 2m)", 1020.0, 1020.0),
        ("rate(a[5m]) + b", 300.0, max(300.0, LOOKBACK)), ("vector(1)", 0.0, 0.0),
        ("time() - last < 90", 90.0, 90.0 + LOOKBACK),
        ("time() - max(last) >= 90", 90.0, 90.0 + LOOKBACK),
        ("time() - other < 90", 0.0, LOOKBACK),
    ],
)  # fmt: skip
def test_a_value_settles_once_all_that_it_reads_is_older(
    text: str, settles: float, oldest: float
) -> None:
    assert settles_after(parse(text), LAST) == settles + ROUNDING_SECONDS
    assert max_range(parse(text), LAST) == oldest


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("time() > bool 5", True), ("timestamp(a)", True), ("hour() > 3", True), ("a > 5", False),
        ("time() - last < 90", False), ("time() - max(last) >= 90", False),
        ("time() - last > 90", True), ("time() - last offset 1m < 90", True),
        ("time() - other < 90", True), ("a and time() - last < 90", False),
        ("last - time() < 90", True),
    ],
)  # fmt: skip
def test_a_limit_on_an_age_is_no_use_of_time(text: str, uses: bool) -> None:
    assert uses_time(parse(text), LAST) is uses
    assert uses_time(parse("time() - last < 90")) is True


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("a", False), ("max_over_time(a[10s])", False), ("max_over_time(a[9s])", True),
        ("count_over_time(a[1h])", True), ("sum_over_time(a[1h])", True),
        ("avg_over_time(a[1h])", False), ("max_over_time(a[1h:1m])", True),
        ("a + sum_over_time(b[1h])", True),
    ],
)  # fmt: skip
def test_some_results_depend_on_the_number_of_samples(text: str, counts: bool) -> None:
    assert counts_samples(parse(text), 5.0) is counts


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("a > 1 and on (run) b", True), ("a + on (job) b", False), ("a + ignoring (run) b", False),
        ("sum by (run) (a)", True), ("sum without (job) (a)", True), ("sum(a)", False),
        ("sum without (run) (a)", False), ("topk by (run) (scalar(a), b)", False),
        ('count_values by (run) ("run", a)', False), ("absent(a)", False), ("a > scalar(b)", False),
        ('label_replace(a, "run", "x", "", "")', False), ("time() - a > 3 * b", True),
        ("vector(1)", True), ("max_over_time(sum(a)[5m:])", False),
    ],
)  # fmt: skip
def test_some_results_keep_the_values_of_a_label_apart(text: str, apart: bool) -> None:
    assert keeps_apart(parse(text).root, "run") is apart


def read(text: str) -> dict[str, Input]:
    return {each.selector.metric: each for each in inputs(parse(text).root, LAST)}


def sees(text: str, *values: float, metric: str = "a") -> list[object]:
    seen = read(text)[metric].sees
    return [seen(value) for value in values]


def test_a_filter_sees_nothing_of_what_it_drops() -> None:
    assert sees("a > 2", 1.0, 2.0, 3.0) == [None, None, 3.0]
    assert sees("2 > a", 1.0, 2.0, 3.0) == [1.0, None, None]
    assert sees("a > bool 2", 1.0, 3.0, 4.0) == [0.0, 1.0, 1.0]
    assert sees("a * 2 > 5", 2.0, 3.0) == [None, 6.0]
    assert sees("10 / a", 2.0, 5.0) == [5.0, 2.0]
    assert sees("-a > 1", -2.0, 2.0) == [2.0, None]


def test_a_function_of_each_value_is_seen_through() -> None:
    assert sees("abs(a) > 1", -2.0, 0.5) == [2.0, None]
    assert sees("round(a)", 0.6, 1.4) == [1.0, 1.0]
    assert sees("clamp_max(a, 3)", 2.0, 7.0) == [2.0, 3.0]
    assert sees("rate(a[5m]) > 1", 0.5, 7.0) == [0.5, 7.0]
    assert sees("sum(a) > 1", 0.5, 7.0) == [0.5, 7.0]


def test_of_a_metric_without_a_name_arithmetic_is_not_seen_through() -> None:
    (named,) = inputs(parse("a * 2").root)
    (unnamed,) = inputs(parse('{job="x"} * 2').root)
    assert (named.sees(3.0), unnamed.sees(3.0)) == (6.0, 3.0)


def test_presence_alone_counts_right_of_and_and_in_a_count() -> None:
    for text in ("b and a", "b unless a", "count(a)", "group(a) by (x)"):
        assert sees(text, 1.0, 2.0) == [True, True]
    assert sees("b and a > 1", 1.0, 2.0) == [None, True]
    assert sees("count(a > 1)", 1.0, 2.0) == [None, True]


def test_what_an_outer_filter_drops_left_of_or_still_stands_there() -> None:
    assert sees("(a or b) > 2", 1.0, 3.0) == [(None,), (3.0,)]
    assert sees("(b or a) > 2", 1.0, 3.0) == [None, 3.0]


def test_a_metric_that_differs_from_itself_is_seen_only_as_nan() -> None:
    seen = [each.sees for each in inputs(parse("a != a").root)]
    assert len(seen) == 2
    for each in seen:
        assert each(1.0) is None
        assert math.isnan(each(math.nan))


@pytest.mark.parametrize(
    ("text", "offset", "reach"),
    [
        ("a", 0.0, 0.0), ("a offset 1m", 60.0, 60.0), ("a offset -1m", None, 0.0),
        ("a @ 100", None, math.inf), ("rate(a[5m])", None, 300.0),
        ("max_over_time(a[10m:1m])", None, 600.0), ("a > 2", 0.0, 0.0),
    ],
)  # fmt: skip
def test_a_change_acts_once_or_for_the_length_of_a_range(
    text: str, offset: float | None, reach: float
) -> None:
    found = read(text)["a"]
    assert (found.offset, found.reach) == (offset, reach + ROUNDING_SECONDS)


def test_a_limit_on_an_age_acts_until_it_has_passed() -> None:
    found = read("time() - last < 90")["last"]
    assert (found.offset, found.reach) == (None, 90.0 + ROUNDING_SECONDS)
