"""What Prometheus says beside an answer is said here too, in its words and with its place."""

import pytest
from expressions import expressions
from hypothesis import assume, given

from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.promql import parse
from ldlm_monitor.promql.annotations import INFO, WARNING, notes_on

NO_COUNTER = (
    f"{INFO}metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "
)
NO_SHARE = f"{WARNING}quantile value should be between 0 and 1, got "


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("rate(x[5m])", [f'{NO_COUNTER}"x" (1:6)']),
        ("sum by (run) (\n  increase( loss[5m])\n)", [f'{NO_COUNTER}"loss" (2:13)']),
        ("rate(x[5m:1m]) + rate(y[1m])", [f'{NO_COUNTER}"x" (1:6)', f'{NO_COUNTER}"y" (1:23)']),
        ("rate(x_total[5m]) + rate(x_count[5m])", []),
        ("delta(x[5m]) + rate({__name__=~'x.*'}[5m])", []),
        ("quantile by (a) (1.5, x)", [f"{NO_SHARE}1.5 (1:18)"]),
        ("quantile(-1, x) by (a)", [f"{NO_SHARE}-1 (1:10)"]),
        ("histogram_quantile(2, x_bucket)", [f"{NO_SHARE}2 (1:20)"]),
        ("quantile_over_time(0.5, x[5m])", []),
        ('x{a="rate(y[1m])"} # rate(z[1m])\n  + rate(w[1m])', [f'{NO_COUNTER}"w" (2:10)']),
    ],
)
def test_an_expression_that_hardly_means_what_it_asks_is_annotated(
    text: str, notes: list[str]
) -> None:
    assert notes_on(parse(text)) == notes


@given(text=expressions(1_700_000_000.0))
def test_each_annotation_names_the_operand_at_its_place(text: str) -> None:
    try:
        found = notes_on(parse(text, experimental=True))
    except RuleError:
        assume(False)
    for note in (each for each in found if each.startswith(INFO)):
        line, column = map(int, note.rpartition(" (")[2].rstrip(")").split(":"))
        operand = text.splitlines()[line - 1][column - 1 :].lstrip("( ")
        assert operand.startswith((note.split('"')[1], "{", '"'))
