"""A rule is evaluated whenever its result can differ from the last one, and hardly otherwise."""

import math

import pytest
from expressions import expressions
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ldlm_monitor.alerts import RecordingRule, RuleSet
from ldlm_monitor.core.rule_engine import RuleEngine
from ldlm_monitor.model.alert import Query, VectorSample
from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.points import Point, make_labels
from ldlm_monitor.promql import Evaluator, Expression, parse
from ldlm_monitor.promql.analysis import names_its_metrics

START = 1_699_999_200.0
INTERVAL = 5.0
NAMES = ("steps", "level", "owner")
SERIES = [
    (name, make_labels(run=run, rank=rank)) for name in NAMES for run in "ab" for rank in "01"
]
VALUES = st.sampled_from([0.0, 1.0, -2.0, 3.5, math.nan, math.inf])
PAUSES = st.sampled_from([0.0, 0.25, 1.7, 5.0, 5.0, 5.0, 60.0, 299.999, 700.0])
CHANGES = st.dictionaries(st.sampled_from(SERIES), st.none() | VALUES, max_size=3)
"""New values of some series; None: it ends."""
WORTH_REMEMBERING = (
    "sum by (run) (steps) - (sum by (run) (steps offset 5m) or sum by (run) (steps) * 0) > 0",
    "count by (run) (level != level or abs(level) == Inf)",
    "level > 1 and level > 2 * quantile_over_time(0.5, level[10m])",
    "steps{rank='0'} unless on (run) owner == 1",
    "steps / on (run) group_left level",
    "max_over_time(sum(steps)[2m:15s]) - sum(steps offset -1m)",
    "sum_over_time(level[1m]) / count_over_time(level[1m])",
    "level @ 1699999300 + level @ end()",
)


def accepted(text: str) -> Expression | None:
    try:
        return parse(text)
    except RuleError:
        return None


class Engine(RuleEngine):
    """Of one rule. `computed`: the results of its expression and the errors, as text."""

    def __init__(self, expression: Expression) -> None:
        self.computed: list[str] = []
        rule = RecordingRule("answer", expression, {}, "", "")
        super().__init__(RuleSet((rule,)), INTERVAL)
        evaluate = self._evaluator

        def noted(expression: Expression, at: float) -> list[VectorSample]:
            self.computed.append(answer(evaluate, expression, at))
            return evaluate(expression, at)

        self._evaluator = noted


def answer(query: Query[Expression], expression: Expression, at: float) -> str:
    try:
        return repr(query(expression, at))
    except RuleError as error:
        return repr(error)


@given(
    text=st.sampled_from(WORTH_REMEMBERING) | expressions(START),
    scrapes=st.lists(st.tuples(PAUSES, CHANGES), min_size=1, max_size=12),
)
# A subquery shorter than its step has a sample at every twelfth slot only.
@example(text="avg_over_time((steps)[10s:])", scrapes=[(5.0, {}), (60.0, {}), (5.0, {})])
def test_it_answers_as_if_it_did_not_remember(
    text: str, scrapes: list[tuple[float, dict[tuple[str, tuple[()]], float | None]]]
) -> None:
    """However series change, end and begin, on the grid of scrapes and off it."""
    expression = accepted(text)
    # Selectors without a metric's name would find the recorded results, too.
    assume(expression is not None and names_its_metrics(expression))
    engine, at = Engine(expression), START
    fresh = Evaluator(engine._store)
    present = dict.fromkeys(SERIES[::2], 1.0)
    for pause, changes in scrapes:
        at += pause
        for series, value in changes.items():
            present.pop(series, None)
            if value is not None:
                present[series] = value
        points = [Point(*series, value) for series, value in present.items()]
        engine.evaluate([points], at, lambda run: False)
        assert engine.computed[-1] == answer(fresh, expression, at)


@pytest.mark.parametrize(
    ("text", "later"),
    [
        ("level > 1", 0),
        ("sum by (run) (level offset 5m)", 300),
        ("abs(level) == Inf or level != level", 0),
    ],
)
def test_what_no_change_can_concern_is_not_computed_again(text: str, later: float) -> None:
    engine = Engine(parse(text))

    def is_computed(level: float, steps: float, at: float) -> bool:
        before = len(engine.computed)
        points = [Point("level", (), level), Point("steps", (), steps)]
        engine.evaluate([points], START + at, lambda run: False)
        return len(engine.computed) > before

    assert is_computed(2.0, 1.0, 5)
    assert is_computed(2.0, 2.0, 1000) is (later > 0)
    assert not is_computed(2.0, 3.0, 1010)
    assert is_computed(9.0, 4.0, 1015) is (later == 0)
    assert is_computed(9.0, 5.0, 1015 + later) is (later > 0)
    # Rounding may make an offset reach the change only at the next evaluation.
    assert is_computed(9.0, 6.0, 1020 + later) is (later > 0)
    assert not is_computed(9.0, 7.0, 1025 + later)
