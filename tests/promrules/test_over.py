"""A range query gives at each of its times what a query at that time gives."""

import math

from hypothesis import assume, given
from hypothesis import strategies as st

from ldlm_promrules.errors import RuleError
from ldlm_promrules.promql import Evaluator, Expression, parse
from ldlm_promrules.query_answers import over, steps
from ldlm_promrules.samples import Labels, Point, Storage
from ldlm_promrules.series.series_store import SeriesStore
from tests.promrules.expressions import expressions
from tests.promrules.labelled import make_labels
from tests.promrules.worlds import World

WORLDS = [World(number) for number in range(4)]
INTERVAL = 5.0
Samples = dict[Labels, list[tuple[float, str]]]
"""Values by series, each with its time, written with `repr` because NaN differs from itself."""


def accepted(text: str) -> Expression:
    try:
        return parse(text, experimental=True)
    except RuleError:
        assume(False)
        raise


def one_by_one(storage: Storage, text: str, times: list[float]) -> Samples | str:
    text = text.replace("start()", f"{times[0]:.3f}").replace("end()", f"{times[-1]:.3f}")
    expression, evaluator, found = parse(text, experimental=True), Evaluator(storage), {}
    for at in times:
        try:
            value = evaluator.value(expression, at)
        except RuleError:
            return "an error"  # several parts may fail, each at another time
        for labels, number in [((), value)] if isinstance(value, float) else value:
            found.setdefault(labels, []).append((at, repr(number)))
    return found


def together(storage: Storage, expression: Expression, times: list[float]) -> Samples | str:
    try:
        found = Evaluator(storage).over(expression, times)
    except RuleError:
        return "an error"
    assert [each.labels for each in found] == sorted(each.labels for each in found)
    return {each.labels: [*zip(each.times, map(repr, each.values), strict=True)] for each in found}


@given(
    st.sampled_from(WORLDS).flatmap(lambda w: st.tuples(st.just(w), expressions(w.start))),
    st.lists(st.sampled_from([0.0, 0.5, 5.0, 10.0, 15.0, 130.0]), min_size=1, max_size=40),
)
def test_of_what_prometheus_might_store(asked: tuple[World, str], pauses: list[float]) -> None:
    world, text = asked
    times = sorted({world.start - 60 + sum(pauses[: index + 1]) for index in range(len(pauses))})
    expression = accepted(text)
    expected = one_by_one(world.storage, text, times)
    assert together(world.storage, expression, times) == expected


SERIES = [
    (name, make_labels(run=run, rank=rank))
    for name in ("steps", "level", "owner")
    for run in "ab"
    for rank in "01"
]
CHANGES = st.dictionaries(
    st.sampled_from(SERIES),
    st.none() | st.sampled_from([0.0, 1.0, -2.0, 3.5, math.nan, math.inf]),
    max_size=3,
)
"""New values of some series; None: it ends."""


@given(
    expressions(1_699_999_200.0),
    st.lists(st.tuples(st.sampled_from([0.25, 1.7, 5.0, 5.0, 60.0, 700.0]), CHANGES), max_size=12),
    st.sampled_from([5.0, 7.0, 1.3, 60.0]),
)
def test_of_what_the_store_holds(
    text: str, scrapes: list[tuple[float, dict[tuple[str, Labels], float | None]]], step: float
) -> None:
    """However series change, end and begin, on the grid of scrapes and off it."""
    at = 1_699_999_200.0
    store, present = SeriesStore(INTERVAL, 1e9), dict.fromkeys(SERIES[::2], 1.0)
    for pause, changes in scrapes:
        at += pause
        for series, value in changes.items():
            present.pop(series, None)
            if value is not None:
                present[series] = value
        store.append([[Point(*series, value) for series, value in present.items()]], at)
    times = [at + 20 - step * slot for slot in reversed(range(30))]
    expression = accepted(text)
    assert together(store, expression, times) == one_by_one(store, text, times)


def test_steps_of_a_fraction_of_a_second_hit_their_end() -> None:
    times = steps(1_700_000_000.0, 1_700_000_000.3, 0.1)
    assert times == [1_700_000_000.0, 1_700_000_000.1, 1_700_000_000.2, 1_700_000_000.3]


def test_the_end_of_a_query_may_lie_beside_its_last_step() -> None:
    answer = over(
        WORLDS[0].storage, parse("last_over_time(vector(time())[10s:5s] @ end())"), 0.0, 95.0, 60.0
    )
    assert [value for _, value in answer["result"][0]["values"]] == ["95", "95"]
