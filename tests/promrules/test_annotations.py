"""What Prometheus says beside an answer is said here too, in its words and with its place."""

import pytest
from hypothesis import assume, given

from ldlm_promrules.errors import RuleError
from ldlm_promrules.promql import Evaluator, parse
from ldlm_promrules.promql.annotations import INFO, WARNING, Notes
from ldlm_promrules.promql.series_description import parse_series
from tests.promrules.expressions import expressions
from tests.promrules.script_runner import ScriptStorage
from tests.promrules.worlds import World

NO_COUNTER = (
    f"{INFO}metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "
)
NO_SHARE = f"{WARNING}quantile value should be between 0 and 1, got "
NO_BOUND = f'{WARNING}bucket label "le" is missing or has a malformed value of '
FALLS = (
    f"{INFO}input to histogram_quantile needed to be fixed for monotonicity (see "
    "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile), from "
    "buckets 2 to 2, with a max diff of"
)
UNORDERED = (
    f"{WARNING}sort is ineffective for range queries since results are always ordered by labels"
)
SERIES = {
    "x": (1, 2), "y": (1, 2), "loss": (3, 2), "w": (1, 2), "x_total": (1, 2), "x_count": (1, 2),
    'b_bucket{le="1"}': (1, 1), 'b_bucket{le="+Inf"}': (2, 3),
    'bad_bucket{le="soon"}': (1, 1), 'bad_bucket{le="+Inf"}': (2, 3),
    'low_bucket{le="1"}': (5, 5), 'low_bucket{le="2"}': (4.5, 3), 'low_bucket{le="+Inf"}': (6, 6),
}  # fmt: skip
STORAGE = ScriptStorage()
for series, values in SERIES.items():
    STORAGE.add(parse_series(series)[0], [(60.0, float(values[0])), (120.0, float(values[1]))])


def said(text: str, *times: float) -> list[str]:
    """Beside the answer at two minutes, or at some times."""
    expression, notes = parse(text, experimental=True), Notes()
    Evaluator(STORAGE, notes=notes).over(expression, times or (120.0,))
    return notes.lines(expression)


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("rate(x[5m])", [f'{NO_COUNTER}"x" (1:6)']),
        ("sum by (run) (\n  increase( loss[5m])\n)", [f'{NO_COUNTER}"loss" (2:13)']),
        ("rate(x[5m:1m]) + rate(y[1m30s])", [f'{NO_COUNTER}"x" (1:6)', f'{NO_COUNTER}"y" (1:23)']),
        ("rate(x_total[5m]) + rate(x_count[5m])", []),
        ("delta(x[5m]) + rate({__name__=~'x_t.*'}[5m])", []),
        ("rate({__name__=~'l..s'}[5m])", [f'{NO_COUNTER}"loss" (1:6)']),
        ("rate(nothing[5m])", []),
        ("quantile by (a) (1.5, x)", [f"{NO_SHARE}1.5 (1:18)"]),
        ("quantile(-1, x) by (a)", [f"{NO_SHARE}-1 (1:10)"]),
        ("quantile(scalar(loss) * 1e6, x)", [f"{NO_SHARE}2e+06 (1:10)"]),
        ("quantile(NaN, x)", [f"{NO_SHARE}NaN (1:10)"]),
        ("histogram_quantile(2, b_bucket)", [f"{NO_SHARE}2 (1:20)"]),
        ("quantile_over_time(0.5, x[5m])", []),
        ("quantile_over_time(7, x[5m])", [f"{NO_SHARE}7 (1:20)"]),
        ("quantile_over_time(7, nothing[5m])", []),
        ("histogram_quantile(0.9, b_bucket)", []),
        ("histogram_quantile(0.9, sum(rate(b_bucket[5m])))", [f'{NO_BOUND}"" (1:25)']),
        (
            "histogram_quantile(scalar(x{a=','}), # one, two\n\tbad_bucket)",
            [f"{NO_SHARE}NaN (1:20)", f'{NO_BOUND}"soon" (2:2)'],
        ),
        (
            "histogram_quantile(0.5, low_bucket)",
            [f"{FALLS} 2, over 1 samples from 1970-01-01T00:02:00Z to 1970-01-01T00:02:00Z (1:25)"],
        ),
        (
            "histogram_quantile(2, x) > 1 and nothing",
            [f"{NO_SHARE}2 (1:20)", f'{NO_BOUND}"" (1:23)'],
        ),
        ("nothing > 1 and quantile(2, x)", [f"{NO_SHARE}2 (1:26)"]),
        ('x{a="rate(y[1m])"} # rate(z[1m])\n  + rate(w[1m30s])', [f'{NO_COUNTER}"w" (2:10)']),
        ("sort(x)", []),
    ],
)
def test_an_expression_that_hardly_means_what_it_asks_is_annotated(
    text: str, notes: list[str]
) -> None:
    assert said(text) == notes


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("1 + sort_desc(x)", [f"{UNORDERED} (1:5)"]),
        ("sort(x @ 60)", []),
        ("sort(x) + sort(y)", [f"{UNORDERED} (1:11)"]),
        (
            "histogram_quantile(0.5, low_bucket)",
            [f"{FALLS} 2, over 2 samples from 1970-01-01T00:01:00Z to 1970-01-01T00:02:00Z (1:25)"],
        ),
    ],
)
def test_a_range_query_says_each_thing_once(text: str, notes: list[str]) -> None:
    assert said(text, 60.0, 120.0) == notes


@given(text=expressions(World(0).start))
def test_each_annotation_names_the_operand_at_its_place(text: str) -> None:
    world, notes = World(0), Notes()
    try:
        expression = parse(text, experimental=True)
        Evaluator(world.storage, notes=notes).value(expression, world.start + 300)
    except RuleError:
        assume(False)
    for note in notes.lines(expression):
        line, column = map(int, note.rpartition(" (")[2].rstrip(")").split(":"))
        assert text.splitlines()[line - 1][column - 1] not in " ,)]}"
