"""The evaluator as the rules use it, and laws that hold for all data."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_promrules.errors import RuleError
from ldlm_promrules.promql import LOOKBACK, Evaluator, parse
from ldlm_promrules.promql.floats import mean_of, modulo, power, quantile_of, variance_of
from ldlm_promrules.samples import Labels, ListedStorage, Series, VectorSample
from tests.promrules.labelled import make_labels

floats = st.floats(allow_nan=True, allow_infinity=True)
finite = st.floats(min_value=-1e6, max_value=1e6)


def series(
    *, times: list[float], values: list[float], ended: float | None = None, **labels: str
) -> Series:
    return Series(make_labels(__name__="x", **labels), times, values, ended)


def test_a_scalar_is_one_sample_without_labels(storage_of: Any) -> None:
    assert Evaluator(storage_of([]))(parse("1 + time()"), 41.0) == [VectorSample((), 42.0)]


def test_the_metric_name_is_a_label_of_the_answer(storage_of: Any) -> None:
    storage = storage_of([series(times=[0], values=[1.0], run="a")])
    labels = (("__name__", "x"), ("run", "a"))
    assert Evaluator(storage)(parse("x"), 0) == [VectorSample(labels, 1.0)]
    assert Evaluator(storage)(parse("x + 0"), 0) == [VectorSample((("run", "a"),), 1.0)]


@pytest.mark.parametrize(
    ("at", "found"), [(19.0, True), (20.0, False), (25.0, False), (30.0, True)]
)
def test_a_series_that_ended_is_not_looked_back_at(storage_of: Any, at: float, found: bool) -> None:
    first = series(times=[10], values=[1.0], ended=20.0, run="a")
    again = series(times=[10, 30], values=[1.0, 2.0], ended=20.0, run="a")
    storage = storage_of([again if at == 30 else first])
    assert bool(Evaluator(storage)(parse("x"), at)) is found


def test_a_range_still_holds_the_samples_of_a_series_that_ended(storage_of: Any) -> None:
    storage = storage_of([series(times=[10], values=[3.0], ended=20.0)])
    assert Evaluator(storage)(parse("sum_over_time(x[1m])"), 30) == [VectorSample((), 3.0)]


def test_the_lookback_and_ranges_are_open_on_the_left(storage_of: Any) -> None:
    storage = storage_of([series(times=[0.0], values=[3.0])])
    evaluator = Evaluator(storage)
    assert evaluator(parse("x"), LOOKBACK - 0.1)
    assert not evaluator(parse("x"), LOOKBACK)
    assert not evaluator(parse("sum_over_time(x[10s])"), 10.0)


def test_only_the_window_that_is_needed_is_fetched(storage_of: Any) -> None:
    storage = storage_of([])
    Evaluator(storage)(parse("x offset 1m or sum_over_time(x[30s])"), 1000.0)
    assert storage.asked == [(640.0, 940.0), (970.0, 1000.0)]


def test_the_deepest_expression_that_is_accepted_is_evaluated(storage_of: Any) -> None:
    storage = storage_of([series(times=[0], values=[1.0])])
    assert Evaluator(storage)(parse("x" + " + x" * 198), 0) == [VectorSample((), 199.0)]


def test_a_name_that_is_dropped_is_gone_at_once_unless_its_removal_is_delayed(
    storage_of: Any,
) -> None:
    twins = [
        Series(make_labels(__name__=name, run="a"), [0.0], [value])
        for name, value in (("x", 1.0), ("y", 2.0))
    ]

    class Twins(ListedStorage):
        def select(self, *_: object) -> list[Series]:
            return twins

    expression = parse("sum by (run) ({run='a'} * 2)")
    with pytest.raises(RuleError, match="same labels"):
        Evaluator(Twins())(expression, 0)
    delayed = Evaluator(Twins(), delayed_name_removal=True)
    assert delayed(expression, 0) == [VectorSample((("run", "a"),), 6.0)]


def test_a_match_of_many_to_many_is_an_error_that_says_so(storage_of: Any) -> None:
    storage = storage_of(
        [
            series(times=[0], values=[1.0], run="a", rank="0"),
            series(times=[0], values=[1.0], run="a", rank="1"),
        ]
    )
    with pytest.raises(RuleError, match="many-to-many"):
        Evaluator(storage)(parse("x + on (run) x"), 0)
    with pytest.raises(RuleError, match="group_left"):
        Evaluator(storage)(parse("x + on (run) sum by (run) (x)"), 0)


rows = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.sampled_from("012")), floats, min_size=1
)


@given(rows)
def test_every_element_belongs_to_exactly_one_group(values: dict[tuple[str, str], float]) -> None:
    class Rows(ListedStorage):
        def select(self, *_: object) -> list[Series]:
            return [
                series(times=[0.0], values=[value], run=run, rank=rank)
                for (run, rank), value in values.items()
            ]

    ask = Evaluator(Rows())

    def answer(text: str) -> dict[Labels, float]:
        return {sample.labels: sample.value for sample in ask(parse(text), 0.0)}

    assert answer("sum(count by (run) (x))") == {(): float(len(values))}
    assert answer("count by (run) (x)") == answer("count without (rank) (x)")
    split = len(answer("x and x > 0")) + len(answer("x unless x > 0"))
    assert split == len(values)
    assert repr(answer("x or x")) == repr(answer("x"))
    assert len(answer("topk(1, x) by (run)")) == len({run for run, _ in values})
    assert repr(answer("max(x)")) == repr(answer("max(max by (run) (x))"))


@given(st.lists(finite, min_size=1), st.floats(0, 1))
def test_quantiles_lie_between_the_extremes(values: list[float], rank: float) -> None:
    found = quantile_of(rank, values)
    assert min(values) - 1e-6 <= found <= max(values) + 1e-6
    assert quantile_of(0.0, values) == min(values)
    assert quantile_of(1.0, values) == max(values)


@given(st.lists(finite, min_size=1))
def test_mean_and_variance_agree_with_exact_arithmetic(values: list[float]) -> None:
    mean = math.fsum(values) / len(values)
    assert mean_of(values) == pytest.approx(mean, rel=1e-9, abs=1e-9)
    exact = math.fsum((value - mean) ** 2 for value in values) / len(values)
    assert variance_of(values) == pytest.approx(exact, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(1e307, 1.7e308), min_size=3))
def test_a_mean_does_not_overflow_with_its_sum(values: list[float]) -> None:
    assert min(values) * 0.999 <= mean_of(values) <= max(values) * 1.001


@given(floats, floats)
def test_arithmetic_never_raises(left: float, right: float) -> None:
    ask = Evaluator(type("Empty", (), {"select": lambda *_: []})())

    def literal(value: float) -> str:
        return f"({value!r})".replace("inf", "Inf").replace("nan", "NaN")

    for operator in ("+", "-", "*", "/", "%", "^", "atan2", "== bool", "< bool"):
        text = f"{literal(left)} {operator} {literal(right)}"
        [sample] = ask(parse(text), 0.0)
        assert isinstance(sample.value, float)


def test_what_is_shared_between_expressions_separates_zero_from_minus_zero() -> None:
    ask = Evaluator(type("Empty", (), {"select": lambda *_: []})())
    values = [
        ask(parse(f"1 / {zero}"), 0.0)[0].value for zero in ("0", "-0", "(0 * 1)", "(-0 * 1)")
    ]
    assert values == [math.inf, -math.inf, math.inf, -math.inf]


def test_powers_and_remainders_at_the_edges_are_those_of_go() -> None:
    assert power(-2.0, 1025.0) == -math.inf
    assert power(-2.0, 1026.0) == math.inf
    assert power(-0.0, -3.0) == -math.inf
    assert math.isnan(power(-8.0, 1 / 3))
    assert math.isnan(modulo(math.inf, 2.0))
    assert modulo(5.0, math.inf) == 5.0


@pytest.mark.parametrize("text", ["(a > 5) and (a * on() b)", "(a > 5) * (a * on() b)"])
def test_an_error_on_the_right_counts_without_anything_on_the_left(
    storage_of: Any, text: str
) -> None:
    """Otherwise a rule looks sound until its left side matches, when its alert is needed."""
    two = [Series(make_labels(__name__=n, i=i), [0.0], [1.0], None) for n in "ab" for i in "12"]
    with pytest.raises(RuleError, match="several series"):
        Evaluator(storage_of(two))(parse(text), 1.0)
