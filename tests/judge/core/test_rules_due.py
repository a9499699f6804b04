"""A rule is evaluated whenever its result can differ from the last one, and hardly otherwise."""

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ldlm_monitor.base.errors import RuleError
from ldlm_monitor.base.names import LAST_EVENT
from ldlm_monitor.base.points import Labels, Point, make_labels
from ldlm_monitor.judge.core.rule_engine import RuleEngine
from ldlm_monitor.judge.core.rules_due import ROUNDING_SECONDS, VALUE_SECONDS, OfRun
from ldlm_promrules.alerting import ActiveAlert, RecordingRule, RuleSet, load_rules
from ldlm_promrules.promql import Evaluator, Expression, parse
from ldlm_promrules.promql.expression import keeps_apart, names_its_metrics
from ldlm_promrules.samples import Matcher, Query, VectorSample
from ldlm_promrules.series.series_store import SeriesStore
from tests.judge.core.attempts_of_runs import GOING_ON, none_began_anew
from tests.promrules.expressions import expressions

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
    "level > 1 or sum by (run) (steps) - (sum by (run) (steps offset 5m) or sum by (run) (steps))",
    "level / on (run) group_left sum by (run) (owner) + increase(steps[1m])",
    "steps + on (run, rank) group_left max without (a) (steps / on (run) level) * 0",
    "(level or steps) > 2 unless on (run) owner < 2",
    "steps and on (run) level > 1 unless on (run) sum by (run) (owner > 0) == 1",
    "-1 <= level < 2 or count by (run) (level > 0 or steps) or abs(-level * 2) > bool 3",
    "(level > 3) > 0.5 * increase(steps[1m]) or level != level offset 1m",
    "steps > 1 unless on (run) (sum by (run) (owner) == on (run) sum by (run) (owner offset 5m))",
    "abs(level) < 3 and abs(steps) < 1 and on (run) owner > 0 unless on (run) level == 1",
    "(increase(level[1m]) > 1) > 0.05 * increase(steps[1m]) or changes(owner[2m]) > 0",
)


def accepted(text: str) -> Expression | None:
    try:
        return parse(text, experimental=True)
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
# The side that is computed first is at last the right one, and the result that of the left.
@example(
    text="abs(level) < 3 and abs(steps) < 1",
    scrapes=[(5.0, {}), (5.0, {SERIES[0]: 0.0, SERIES[4]: -2.0})],
)
# A series that ends and begins again has changed, though neither is a change of its own.
@example(
    text="changes(level[2m]) > 0",
    scrapes=[(5.0, {}), (5.0, {SERIES[4]: None}), (60.0, {SERIES[4]: 3.5}), (5.0, {})],
)
def test_it_answers_as_if_it_did_not_remember(
    text: str, scrapes: list[tuple[float, dict[tuple[str, tuple[()]], float | None]]]
) -> None:
    """However series change, end and begin, on the grid of scrapes and off it."""
    expression = accepted(text)
    # Selectors without a metric's name would find the recorded results, too.
    assume(expression is not None and names_its_metrics(expression))
    engine, at = Engine(expression), START
    present = dict.fromkeys(SERIES[::2], 1.0)
    for pause, changes in scrapes:
        at += pause
        for series, value in changes.items():
            present.pop(series, None)
            if value is not None:
                present[series] = value
        points = [Point(*series, value) for series, value in present.items()]
        engine.evaluate([points], at, *GOING_ON)
        fresh = Evaluator(engine._store)  # it computes sides in the order of its text
        assert engine.computed[-1] == answer(fresh, expression, at)


@pytest.mark.parametrize(
    ("text", "later"),
    [
        ("level > 1", 0),
        ("sum by (run) (level offset 5m)", 300),
        ("sum(level) != sum(level)", 0),
    ],
)
def test_what_no_change_can_concern_is_not_computed_again(text: str, later: float) -> None:
    engine = Engine(parse(text))

    def is_computed(level: float, steps: float, at: float) -> bool:
        before = len(engine.computed)
        points = [Point("level", (), level), Point("steps", (), steps)]
        engine.evaluate([points], START + at, *GOING_ON)
        return len(engine.computed) > before

    assert is_computed(2.0, 1.0, 5)
    assert is_computed(2.0, 2.0, 1000) is (later > 0)
    assert not is_computed(2.0, 3.0, 1010)
    assert is_computed(9.0, 4.0, 1015) is (later == 0)
    assert is_computed(9.0, 5.0, 1015 + later) is (later > 0)
    # Rounding may make an offset reach the change only at the next evaluation.
    assert is_computed(9.0, 6.0, 1020 + later) is (later > 0)
    assert not is_computed(9.0, 7.0, 1025 + later)


@pytest.mark.parametrize(
    ("text", "before", "now", "matters"),
    [
        ("level > 1", 0.5, 0.7, False),
        ("level > 1", 0.5, 2.0, True),
        ("level > 1", 3.0, 2.0, True),
        ("1 > level > 0.1", 3.0, 2.0, False),
        ("abs(level) == Inf or level != level", 3.0, -2.0, False),
        ("abs(level) == Inf or level != level", 3.0, math.nan, True),
        ("steps and level > 1", 2.0, 3.0, False),
        ("steps unless level > 1", 2.0, 1.0, True),
        ("count(level > 1)", 2.0, 3.0, False),
        ("level * 2 > 1", 0.3, 0.4, False),
        ("(level or steps) > 1", 0.3, 0.4, False),
        ("(level or steps) > 1", 0.3, 4.0, True),
        ("(level or steps) > 0.5", None, 0.3, True),  # it hides a value of `steps` that is above
        ("steps > 0.5 unless level > 1", None, 0.3, False),
        ("level >= bool 1", 2.0, 3.0, False),
        ("steps > 9 unless level", 2.0, math.nan, False),
        ("level and steps > 9", 2.0, 3.0, False),  # what is not read cannot matter
        ("steps > 9 or level", 2.0, 3.0, True),
    ],
)
def test_a_change_that_the_rule_cannot_see_has_it_not_evaluated(
    text: str, before: float | None, now: float, matters: bool
) -> None:
    engine = Engine(parse(text))
    for at, level in enumerate((before, before, now)):
        already = len(engine.computed)
        points = [] if level is None else [Point("level", (), level)]
        engine.evaluate([points, [Point("steps", (), 1.0)]], START + 5 * at, *GOING_ON)
    assert (len(engine.computed) > already) is matters


@pytest.mark.parametrize(
    ("text", "computed"),
    [
        ("abs(level) < 9 and abs(steps) < 1", 2),  # the second shows that one side is empty
        ("abs(steps) < 1 and abs(level) < 9", 1),
        ("(increase(steps[10m]) > 10) > 0.05 * increase(level[10m])", 1),
        ("increase(steps[10m]) >= 0", 40),  # it has a result, from the second sample on
    ],
)
def test_an_empty_side_and_a_series_without_a_change_ask_nothing(text: str, computed: int) -> None:
    engine = Engine(parse(text))
    for slot in range(40):
        points = [Point("level", (), 1.0 + slot % 7), Point("steps", (), 5.0)]
        engine.evaluate([points], START + INTERVAL * slot, *GOING_ON)
    assert len(engine.computed) == computed


@given(
    text=st.sampled_from((*WORTH_REMEMBERING, "count_values('run', steps)", "topk(1, steps)"))
    | expressions(START),
    values=st.lists(st.dictionaries(st.sampled_from(SERIES), VALUES), min_size=1, max_size=3),
)
def test_a_rule_that_keeps_runs_apart_answers_of_one_as_if_there_were_no_other(
    text: str, values: list[dict[tuple[str, Labels], float]]
) -> None:
    expression = accepted(text)
    assume(expression is not None and keeps_apart(expression.root, "run"))
    store = SeriesStore(INTERVAL, 3600.0)
    for slot, present in enumerate(values):
        store.append([[Point(*series, value) for series, value in present.items()]], START + slot)
    alone = OfRun(store)
    alone.run = "a"
    try:
        whole = Evaluator(store)(expression, START + len(values))
    except RuleError:
        return
    found = Evaluator(alone)(expression, START + len(values))
    wanted, shown = (
        {each.labels: repr(each.value) for each in part if ("run", "a") in each.labels}
        for part in (whole, found)
    )
    assert shown == wanted


AGE = f"max by (run) ({LAST_EVENT}{{kind='oom'}})"


@given(
    text=st.sampled_from(
        (
            f"time() - {AGE} < 40",
            f"level > 1 unless on (run) time() - {AGE} >= 20",
            f"time() - {AGE} < 60 unless on (run) (time() - {AGE} >= 9 and steps > steps offset 7)",
        )
    ),
    scrapes=st.lists(
        st.tuples(PAUSES, st.sampled_from("ab"), st.floats(0, 90)), min_size=1, max_size=12
    ),
)
def test_a_limit_on_how_long_ago_something_was_passes_in_time(
    text: str, scrapes: list[tuple[float, str, float]]
) -> None:
    """Though the clock alone makes it pass, also where the event is older than its first scrape."""
    expression = parse(text)
    engine, at = Engine(expression), START
    fresh = Evaluator(engine._store)
    found = [Point("steps", make_labels(run=run), 1.0) for run in "ab"]
    found += [Point("level", make_labels(run=run), 2.0) for run in "ab"]
    last = dict.fromkeys("ab", START)
    for pause, run, age in scrapes:
        at += pause
        last[run] = max(last[run], at - age)
        events = [
            Point(LAST_EVENT, make_labels(run=run, kind="oom"), each) for run, each in last.items()
        ]
        for later in range(0, 100, 10):
            engine.evaluate([found, events], at + later, *GOING_ON)
            shown = {dict(sample.labels)["run"] for sample in fresh(expression, at + later)}
            recorded = engine._store.reader((Matcher("__name__", "=", "answer"),)).latest(
                0, at + later
            )
            assert {dict(labels)["run"] for labels, _, _ in recorded} == shown
        at += 90


def test_a_limit_on_how_long_ago_something_was_is_not_computed_for_ever() -> None:
    engine = Engine(parse(f"time() - {LAST_EVENT} < 600"))
    for slot in range(300):
        engine.evaluate([[Point(LAST_EVENT, (), START)]], START + 5 * slot, *GOING_ON)
    assert len(engine.computed) == pytest.approx(121, abs=2)
    assert not engine.asks_the_time


RULES = """
groups:
  - name: g
    rules:
      - alert: Early
        expr: run:level:max > 1 unless on (run) ALERTS{alertname="Late"}
      - record: run:level:max
        expr: max by (run) (level)
      - alert: High
        expr: run:level:max > 3
        for: 7s
        annotations: {summary: "{{ $value }}"}
      - alert: Rising
        expr: sum by (run) (steps) - (sum by (run) (steps offset 1m) or sum by (run) (steps)) > 0
        keep_firing_for: 12s
      - alert: Late
        expr: ALERTS{alertname="High",alertstate="firing"} and on (run) avg_over_time(level[1m]) > 0
      - alert: Old
        expr: time() - timestamp(owner) > 2 or time() - owner * 1.7e9 < 900
      - alert: Broken
        expr: level * on (run) owner > 0
        for: 30s
"""
"""`for`, `keep_firing_for`, an offset, a range, the time, an alert before the rule it reads."""


RANKS = [("level", make_labels(run="a", rank=rank)) for rank in "01"]
FIRST: dict[tuple[str, Labels], float | None] = {RANKS[0]: 3.5, RANKS[1]: math.inf}
GONE: dict[tuple[str, Labels], float | None] = {RANKS[1]: None}
"""A value whose series ends when it is a minute old, but for what times are rounded by."""


class EveryRule(RuleEngine):
    """Evaluates all of every rule each time."""

    def _use(self, rules: RuleSet[Expression]) -> None:
        super()._use(rules)
        self._evaluator = Evaluator(self._store)
        self._due.due, self._due.take = set(range(len(rules.rules))), lambda index, at: True


@given(
    st.lists(
        st.tuples(PAUSES, CHANGES, st.sampled_from([None, "a", "b"]), st.sampled_from([None, "a"])),
        min_size=1,
        max_size=40,
    )
)
@example([(0.0, FIRST, None, None), (8.4, {}, None, None), (60.0, GONE, None, None)])
@example([(0.0, FIRST, None, None), (60.0, {}, None, None), (299.999, GONE, None, None)])
def test_the_alerts_are_those_of_an_engine_that_evaluates_every_rule_each_time(
    scrapes: list[tuple[float, dict[tuple[str, Labels], float | None], str | None, str | None]],
) -> None:
    """On the grid and between its slots, where ends of `for` and urgent facts of a run are judged.

    Of such a run alone the series are new.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yml"
        path.write_text(RULES)
        rules = load_rules([path], parse)
    engines, at = (RuleEngine(rules, INTERVAL), EveryRule(rules, INTERVAL)), START
    present = dict.fromkeys(SERIES[::2], 1.0)
    newest: list[tuple[float, str]] = []  # values and texts of the last minute
    before = START
    points: list[Point] = []
    for pause, changes, over, run in scrapes:
        ended, only = frozenset({over}), run if points else None
        times = [due for due in (engines[0].due(),) if due < at + pause]
        at += pause
        for series, value in changes.items():
            present.pop(series, None)
            if value is not None:
                present[series] = value
        new = [Point(*series, value) for series, value in present.items()]
        for time, part in (*zip(times, [None] * len(times), strict=True), (at, only)):
            if part is None:
                points = new
            else:
                points = [each for each in points if ("run", part) not in each.labels]
                points += [each for each in new if ("run", part) in each.labels]
            found, expected = (
                engine.evaluate(
                    [points, engine.points({})],
                    time,
                    ended.__contains__,
                    none_began_anew,
                    only=part,
                )
                for engine in engines
            )
            assert [*map(lasting, found)] == [*map(lasting, expected)]
            # Of the minute before the last evaluation: what ends now has the value of then.
            old = before - VALUE_SECONDS - ROUNDING_SECONDS
            newest = [each for each in newest if each[0] > old]
            before = time
            newest += [(time, texts(each)) for each in (*expected, *engines[1].active)]
            known = {text for _, text in newest}
            assert {texts(each) for each in (*found, *engines[0].active)} <= known
        assert [*map(lasting, engines[0].active)] == [*map(lasting, engines[1].active)]
        assert repr(engines[0]._alerts.health) == repr(engines[1]._alerts.health)


def texts(of: Any) -> str:
    return repr((of.labels, of.value, of.annotations))


def lasting(of: Any) -> str:
    """All of an alert or a transition but what may be a minute old while it fires."""
    waits = of.state not in ("pending", "firing") or isinstance(of, ActiveAlert)
    fires = waits and of.state != "pending"
    return repr(replace(of, value=0.0, annotations={}) if fires else of)


def test_a_firing_alert_is_asked_for_its_value_once_a_minute_and_for_its_end_at_once() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yml"
        path.write_text(
            "groups: [{name: g, rules: [{alert: High, expr: level > 1, for: 10s, annotations: "
            '{summary: "{{ $value }}"}}]}]'
        )
        engine = RuleEngine(load_rules([path], parse), INTERVAL)
    shown, found = [], []
    for slot in range(40):
        points = [Point("level", (), 2.0 + slot if slot < 39 else 0.5)]
        found += engine.evaluate([points], START + INTERVAL * slot, *GOING_ON)
        shown += [alert.annotations["summary"] for alert in engine.active]
    assert [(shown.count(each), each) for each in dict.fromkeys(shown)] == [
        (1, "2"), (1, "3"), (12, "4"), (12, "16"), (12, "28"), (1, "40"),
    ]  # fmt: skip
    assert [(each.state, each.value) for each in found] == [
        ("pending", 2.0), ("firing", 4.0), ("resolved", 40.0),
    ]  # fmt: skip
