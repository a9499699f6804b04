"""Warnings about rules that load but hardly do what their author means."""

import contextlib
import difflib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ldlm_promrules.alerting import AlertRule, RecordingRule
from ldlm_promrules.errors import RuleError
from ldlm_promrules.promql import Evaluator, Expression
from ldlm_promrules.promql.annotations import Notes
from ldlm_promrules.promql.expression import metric_names, selectors
from ldlm_promrules.promql.floats import COMPARISON
from ldlm_promrules.promql.functions import BOUND
from ldlm_promrules.promql.nodes import (
    NAME,
    Aggregation,
    Binary,
    Call,
    Matching,
    Negation,
    Node,
    Number,
    Range,
    Selector,
    Subquery,
    walk,
)
from ldlm_promrules.query_answers import MAX_STEPS
from ldlm_promrules.samples import ListedStorage, Matcher, Series

Rule = AlertRule[Expression] | RecordingRule[Expression]

NEVER = "its comparisons leave no value: it never has a result"
_OF_PROMETHEUS = frozenset({"up", "ALERTS", "ALERTS_FOR_STATE"})  # no metrics that one exports
_ADDED = frozenset(
    {
        NAME, "le", "cluster", "job", "instance", "node", "namespace", "pod",
        "container", "service", "endpoint", "prometheus", "replica", "tenant",
    }
)  # fmt: skip
"""Labels that a Prometheus usually adds to every metric."""
_ANY_TIME = 1e9  # Unix seconds
_VALUES = (0.01, 0.37, 1.9, 23.0, 480.0, 7e3, 9e4, 3e6)
"""Values of alerts. A choice: rounded to whole numbers, seven still differ; limits make fewer."""
_FOREIGN = ("process_", "scrape_")  # beginnings: of the client library's and of scrapes


class Interval(NamedTuple):
    """Values from `low` to `high`, both included; none if `low` is above `high`."""

    low: float = -math.inf
    high: float = math.inf

    def within(self, other: "Interval") -> "Interval":
        """The values of both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))

    @property
    def is_empty(self) -> bool:
        """Whether there is no value."""
        return self.low > self.high


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What is exported, as far as it is known: what is not is not warned of.

    `series`: the names of all series (None: not known). `listed_in`: where people find them.
    `labels`: by metric, the names of all labels that it may have. `values`: by metric and label,
    all values that there are. `bounds`: by metric, the values that its samples may have.
    `severities`: the values that rules may give the label `severity` (none: any).
    """

    series: Collection[str] | None = None
    listed_in: str = "the catalogue has no similar name"
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    bounds: Mapping[str, Interval] = field(default_factory=dict)
    severities: Sequence[str] = ()


def lint(
    rules: Sequence[Rule], catalogue: Catalogue | None = None, external: Iterable[str] = ()
) -> Iterator[str]:
    """A line for each doubtful thing; `rules`: those of all files that are loaded together.

    `external`: labels that a Prometheus adds.
    """
    yield from doubts(rules, catalogue or Catalogue(), external)
    yield from repetitions(rules)


def doubts(
    rules: Sequence[Rule], catalogue: Catalogue, external: Iterable[str] = ()
) -> Iterator[str]:
    """A line for each doubtful thing in a rule."""
    recorded = {rule.record for rule in rules if isinstance(rule, RecordingRule)}
    known = None if catalogue.series is None else recorded.union(catalogue.series)
    for rule in rules:
        unknown = _unknown_labels(rule, catalogue, frozenset(external))
        never = [NEVER] if interval(rule.expr.root, catalogue.bounds).is_empty else []
        missing = () if known is None else _missing(rule, known, catalogue.listed_in)
        severity = _severity(rule, catalogue.severities)
        moving = _moving_labels(rule)
        for what in (*missing, *unknown, *severity, *moving, *never, *_notes(rule.expr)):
            yield f"{rule.file}: group {rule.group} ({_name(rule)}): {what}"


def repetitions(rules: Sequence[Rule]) -> Iterator[str]:
    """A line for each rule that is written more than once."""
    for (name, labels, _), count in Counter(map(_identity, rules)).items():
        if count > 1:
            where = ", ".join(f'{key}="{value}"' for key, value in labels)
            yield f"{name}{{{where}}} is written {count} times with one expression; keep one"


class _Imagined(ListedStorage):
    """A store with a series for each selector: with its labels, and as a histogram's last bucket.

    What is said beside an answer then depends on the expression alone.
    """

    def select(self, matchers: Sequence[Matcher], start: float, end: float) -> Iterator[Series]:
        """One series with two samples."""
        asked = {each.name: each.value for each in matchers if each.op == "="}
        labels = ((name, value) for name, value in {BOUND: "+Inf", **asked}.items() if value)
        yield Series(tuple(sorted(labels)), ((start + end) / 2, end), (0.0, 1.0))


def _notes(expression: Expression) -> list[str]:
    notes = Notes()
    steps = (
        each.seconds / (each.step or 60.0)
        for each in walk(expression.root)
        if isinstance(each, Subquery)
    )
    if sum(steps) < MAX_STEPS:  # more take seconds
        with contextlib.suppress(RuleError):  # of one series there may be less than is needed
            Evaluator(_Imagined(), notes=notes).value(expression, _ANY_TIME)
    return notes.lines(expression)


def _missing(rule: Rule, known: Collection[str], listed_in: str) -> Iterator[str]:
    for name in sorted(metric_names(rule.expr) - set(known) - _OF_PROMETHEUS):
        if name.startswith(_FOREIGN):
            continue
        close = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {close[0]}?" if close else listed_in
        yield f"nothing here exports {name}; {hint}"


def _unknown_labels(rule: Rule, catalogue: Catalogue, external: frozenset[str]) -> Iterator[str]:
    """Of matchers that select nothing, whatever is exported."""
    for selector in selectors(rule.expr):
        name = selector.metric
        if name not in catalogue.labels:
            continue
        known = _ADDED | external | set(catalogue.labels[name])
        for each in selector.matchers:
            asked = f'{each.name}{each.op}"{each.value}"'
            if each.op in ("=", "=~") and each.name not in known and each.value not in ("", ".*"):
                has = ", ".join(catalogue.labels[name])
                yield f"{asked} selects no series: {name} has the labels {has}"
            values = catalogue.values.get((name, each.name))
            if values and each.op == "=" and each.value not in values:
                yield f"{asked} selects no series: it is one of {', '.join(values)}"


def _severity(rule: Rule, wanted: Sequence[str]) -> Iterator[str]:
    if not wanted or not isinstance(rule, AlertRule) or "severity" not in rule.labels:
        return
    severity = rule.labels["severity"].source
    if "{{" not in severity and severity not in wanted:
        yield f"severity {severity!r} is none of {', '.join(wanted)}"


def _moving_labels(rule: Rule) -> Iterator[str]:
    """Labels that print the value: labels are an alert's identity, so each value is a new alert.

    A label that only depends on limits of the value (`if gt $value 0.9`) has few texts.
    """
    for name, template in rule.labels.items() if isinstance(rule, AlertRule) else ():
        if len({template.expand({}, value) for value in _VALUES}) >= len(_VALUES) - 1:
            yield (
                f"the label {name} has the value, so that each other value is another alert,"
                " which fires anew; write it into an annotation"
            )


def _name(rule: Rule) -> str:
    return rule.name if isinstance(rule, AlertRule) else rule.record


def _identity(rule: Rule) -> tuple[str, tuple[tuple[str, str], ...], str]:
    if isinstance(rule, AlertRule):
        labels = {name: template.source for name, template in rule.labels.items()}
    else:
        labels = rule.labels
    return _name(rule), tuple(sorted(labels.items())), " ".join(rule.expr.text.split())


_ANY, _NOTHING = Interval(), Interval(math.inf, -math.inf)
_FLAG = Interval(0, 1)
_KEEPING = frozenset({"min", "max", "avg", "topk", "bottomk"})
"""Aggregations whose results lie between the least and the greatest of their operands."""
_KEEPING_CALLS = frozenset({f"{each}_over_time" for each in ("min", "max", "avg", "last")})
_ALLOWED: dict[str, Callable[[float], Interval]] = {  # what a comparison with a number lets through
    ">": lambda number: Interval(low=math.nextafter(number, math.inf)),
    ">=": lambda number: Interval(low=number),
    "<": lambda number: Interval(high=math.nextafter(number, -math.inf)),
    "<=": lambda number: Interval(high=number),
    "==": lambda number: Interval(number, number),
}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "=="}


def interval(node: Node, bounds: Mapping[str, Interval]) -> Interval:
    """The values that a part of an expression may have; an empty one never has any.

    Only what is certain counts: the `bounds` of metrics, and comparisons of one and the same vector
    with numbers. Whatever is not understood has every value.
    """
    if isinstance(node, Selector):
        return bounds.get(node.metric, _ANY)
    if isinstance(node, Range):
        return interval(node.selector, bounds)
    if isinstance(node, Aggregation):
        inner = interval(node.operand, bounds)
        return inner if inner.is_empty or node.operator in _KEEPING else _ANY
    if isinstance(node, Call):
        kept = node.function in _KEEPING_CALLS
        return interval(node.arguments[0], bounds) if kept else _ANY
    return _of_binary(node, bounds) if isinstance(node, Binary) else _ANY


def _of_binary(node: Binary, bounds: Mapping[str, Interval]) -> Interval:
    left, right = interval(node.left, bounds), interval(node.right, bounds)
    if node.operator == "or":
        return _NOTHING if left.is_empty and right.is_empty else _ANY
    if node.operator == "unless" or left.is_empty:
        return left
    if right.is_empty:
        return right
    if node.operator == "and":
        # The same series on both sides has one value, if it is matched with itself alone.
        same = node.matching == Matching() and _core(node.left) == _core(node.right)
        return left.within(right) if same else left
    return _compared(node, left, right) if node.operator in COMPARISON else _ANY


def _compared(node: Binary, left: Interval, right: Interval) -> Interval:
    if node.as_bool:
        return _FLAG
    for operator, inner, number in (
        (node.operator, left, _number(node.right)),
        (_MIRRORED.get(node.operator, ""), right, _number(node.left)),
    ):
        if number is not None and operator in _ALLOWED and not math.isnan(number):
            return inner.within(_ALLOWED[operator](number))
    return _ANY


def _number(node: Node) -> float | None:
    if isinstance(node, Negation):
        value = _number(node.operand)
        return None if value is None else -value
    return node.value if isinstance(node, Number) else None


def _core(node: Node) -> Node:
    """The vector that comparisons with numbers filter."""
    while isinstance(node, Binary) and node.operator in COMPARISON and not node.as_bool:
        if _number(node.right) is not None:
            node = node.left
        elif _number(node.left) is not None:
            node = node.right
        else:
            break
    return node
