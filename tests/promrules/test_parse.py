"""What is accepted, what is refused by name, and properties of an expression."""

import math
import threading

import pytest

from ldlm_promrules.errors import RuleError, UnsupportedError
from ldlm_promrules.promql import parse
from ldlm_promrules.promql.expression import max_range, metric_names, uses_time
from ldlm_promrules.promql.expression_text import MAX_OPERATORS
from ldlm_promrules.promql.nodes import Number, Selector


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("histogram_count(x)", "function histogram_count"),
        ("info(x)", "function info"),
        ("sort_by_label(x, 'a')", "function sort_by_label"),
        ("first_over_time(x[5m])", "function first_over_time"),
        ("limitk(1, x)", "aggregation limitk"),
        ("limit_ratio(0.5, x)", "aggregation limit_ratio"),
        ("{a='1' or b='2'}", "`or` between label matchers"),
        ("a + fill(0) b", "modifier fill"),
        ("x @ -5", "`@` with a time before 1970"),
        ("x @ 1e20", "`@` with a time beyond the year 9999"),
        ("x[5m + 2m]", "a duration expression"),
        ("x offset (2 * 5m)", "a duration expression"),
        ("sum_over_time(x[30s::20s])", "an aligned subquery"),
        ("rate(x[5m] anchored)", "the modifier anchored"),
        ("x smoothed", "the modifier smoothed"),
        ('label_replace(x, "\\xff", "", "a", "b")', "a byte above 127"),
        ("nosuch(x)", "nosuch"),
        ("x[5m]", "range vector"),
        ("'x'", "string"),
        ("sum(", "left parenthesis"),
        ("rate(x)", "rate"),
        ('info(x, {__name__="target_info"})', "function info, which is experimental"),
        ("mad_over_time(x[5m])", "function mad_over_time is experimental"),
        ('x{a=~"("}', "("),
        ("label_replace(x, 'a', '', 'b', '(')", "'('"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text)
    assert named in str(caught.value)
    assert text.split("(", maxsplit=1)[0] in caught.value.where


def test_a_refusal_is_one_line_even_where_the_expression_is_long() -> None:
    with pytest.raises(RuleError) as caught:
        parse("sum(\n" + " or\n".join(["x"] * 200) + "\n) + limitk(1, x)")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text",
    ["abs(" * 300 + "x" + ")" * 300, "-" * 300 + "x", "x" + " or x" * 400],
    ids=["abs", "-", "or"],
)
def test_what_nests_too_deeply_is_refused_before_it_is_evaluated(text: str) -> None:
    with pytest.raises(RuleError, match="nested deeper"):
        parse(text)


MANY = 20_000  # of each: the parser's stack ends at 3,000 to 5,000
LARGE = {
    "chain": "+".join(["1"] * MANY),
    "words": " and ".join(["x"] * MANY),
    "comparisons": "==bool".join(["1"] * MANY),
    "brackets": "(" * MANY + "1" + ")" * MANY,
    "calls": "sum(" * MANY + "x" + ")" * MANY,
    "signs": "-" * MANY + "x",
    "subqueries": "sum_over_time(" * MANY + "x" + "[1h:1m])" * MANY,
    "mixed": "-(1+" * MANY + "x" + ")" * MANY,
    "after a text": '"(" + ' * MANY + "1",
    "after a comment": "1 # (\n+" * MANY + "1",
    "open": "1 1" + "[" * MANY,
    "regexes": "x{" + ",".join(['a=~"\\\\w{90}"'] * MANY) + "}",
    "classes": 'x{a=~"' + "\\\\pL" * MANY + '"}',
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_what_is_too_large_is_refused_before_it_is_parsed(text: str) -> None:
    """Each of these ended the process with SIGSEGV, or took a minute and gigabytes."""
    with pytest.raises(RuleError, match="at most 500 are accepted") as caught:
        parse(text)
    assert len(str(caught.value)) < 300


def test_a_text_and_a_comment_have_no_operators() -> None:
    signs = "-" * 2 * MAX_OPERATORS
    parse(f"# {signs}\nlabel_replace(x, 'a', '{signs}', \"b\", `(c)`) # {signs}")


def test_what_is_at_the_limit_is_parsed_where_little_stack_is_left() -> None:
    """In a quarter of the usual 8 MiB: what the parser recurses for is what is counted."""
    half = MAX_OPERATORS // 2
    texts = ["+".join(["1"] * MAX_OPERATORS), "-(" * half + "x" + ")" * half]
    texts += ["sum_over_time(" * half + "x" + "[1h:1m])" * half]
    found: list[str] = []

    def parse_all() -> None:
        for text in texts:
            with pytest.raises(RuleError) as caught:
                parse(text)
            found.append(caught.value.what)

    before = threading.stack_size(2 * 1024 * 1024)
    try:
        thread = threading.Thread(target=parse_all)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert found == ["nested deeper than 200 levels"] * 3


@pytest.mark.parametrize("text", ['"' + '\\"' * 30_000, "1 1 offset" + " " * 60_000])
def test_a_mistake_is_found_in_linear_time(text: str) -> None:
    """By patterns that go back, each of these took minutes."""
    with pytest.raises(RuleError):
        parse(text)


def test_a_regex_is_read_by_re2_alone() -> None:
    found = parse("x{a=~'\\\\Qa.b\\\\E', b!~ # why\n `\\pL{90}|`, c=~\"\"}").root
    assert isinstance(found, Selector)
    regexes = [(each.op, each.value) for each in found.matchers[1:]]
    assert regexes == [("=~", "\\Qa.b\\E"), ("!~", "\\pL{90}|"), ("=~", "")]


@pytest.mark.parametrize("regex", [".*", "", "a|", "[0-9]*"])
def test_a_selector_of_which_each_matcher_takes_nothing_is_refused(regex: str) -> None:
    with pytest.raises(RuleError, match="non-empty matcher"):
        parse(f'{{a=~"{regex}"}}')
    parse(f'{{a=~"{regex}", b=~".+"}}')


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x > > 3", "expression `x > > 3`: bad syntax"),
        ("x and\n  y ==", "expression `x and y ==`: bad syntax"),
        ("sum(rate(x[5m])", "unclosed left parenthesis"),
        ("x\n + limitk(1, y)", "aggregation limitk"),
        ("1 + rate(x)", "expected type matrix in call to function 'rate'"),
        ("1 + nosuch(x)", "unknown function nosuch"),
        ("label_replace(x, 'a', '', 'b', '(')", "invalid regular expression"),
        ("label_replace(x, '', '', 'b', 'c')", "label_replace: a label without a name"),
        ("1 + count_values('', x)", "count_values: a label without a name"),
    ],
)
def test_a_mistake_is_one_line_with_the_expression(text: str, shown: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text)
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_prometheus_may_evaluate_is_separated_from_what_is_wrong() -> None:
    with pytest.raises(UnsupportedError):
        parse("limitk(1, x)")
    with pytest.raises(RuleError) as caught:
        parse("sum(")
    assert not isinstance(caught.value, UnsupportedError)


def test_a_name_of_prometheus_2_is_unknown_as_in_3() -> None:
    with pytest.raises(RuleError, match="unknown function holt_winters"):
        parse("holt_winters(x[5m], 0.5, 0.5)", experimental=True)


def test_a_comment_and_a_text_are_no_modifiers() -> None:
    assert metric_names(parse("x # a + fill(0) @ -5\n")) == {"x"}


def test_an_at_sign_in_a_label_value_is_no_modifier() -> None:
    assert metric_names(parse('x{mail="me@-1"}')) == {"x"}


@pytest.mark.parametrize(
    ("text", "number"), [("1_000", 1000), ("0x1_0", 16), ("1_0.5", 10.5), ("1_0e2 # 1_1", 1000)]
)
def test_digits_may_be_grouped(text: str, number: float) -> None:
    assert parse(text).root == Number(number)
    assert parse(f'a_1_0{{b="1_0"}} > {text}').root == parse(f'a_1_0{{b="1_0"}} > {number}').root


@pytest.mark.parametrize("text", ["1__0", "1_", "x[1_0m]"])
def test_other_underscores_in_numbers_are_refused(text: str) -> None:
    with pytest.raises(RuleError):
        parse(text, any_type=True)


def test_metric_names_are_those_that_selectors_ask_for() -> None:
    text = 'rate(a[5m]) / on() group_left sum({__name__="b", x="1"}) or {__name__=~"c.*"}'
    assert metric_names(parse(text)) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 + time()", 0),
        ("x", 300),
        ("x offset 10m", 900),
        ("x offset -10m", 300),
        ("rate(x[30m])", 1800),
        ("rate(x[30m] offset 1h)", 5400),
        ("x or rate(y[1h])", 3600),
        ("topk(scalar(rate(x[2h])), y)", 7200),
        ("max_over_time(rate(x[5m])[1h:1m] offset 1m)", 3960),
        ("x @ 1000", math.inf),
        ("x @ end()", 300),
    ],
)
def test_max_range_is_the_furthest_look_back(text: str, seconds: float) -> None:
    assert max_range(parse(text)) == seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time() - x > 3", True),
        ("sum(timestamp(x))", True),
        ("hour()", True),
        ("x > bool 3", False),
        ("rate(x[5m])", False),
    ],
)
def test_uses_time(text: str, expected: bool) -> None:
    assert uses_time(parse(text)) is expected
