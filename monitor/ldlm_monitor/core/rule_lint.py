"""Warnings about rules that load but hardly do what their author means."""

import contextlib
import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ldlm_monitor.alerts import AlertRule, RecordingRule
from ldlm_monitor.core.answers import MAX_STEPS
from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.names import METRICS, RUN_STATES, SEVERITIES, created
from ldlm_monitor.model.points import ListedStorage, Matcher, Series
from ldlm_monitor.promql import Evaluator, Expression
from ldlm_monitor.promql.analysis import metric_names, selectors
from ldlm_monitor.promql.annotations import Notes
from ldlm_monitor.promql.floats import COMPARISON
from ldlm_monitor.promql.functions import BOUND
from ldlm_monitor.promql.nodes import (
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
from ldlm_monitor.text.format import duration

Rule = AlertRule[Expression] | RecordingRule[Expression]

NEVER = "its comparisons leave no value: it never has a result"
_SUFFIXES = {  # of the series that a metric of this kind has
    "gauge": ("",),
    "counter": ("",),
    "histogram": ("", "_bucket", "_sum", "_count"),
}
_EXPORTED = frozenset(
    metric.name + suffix for metric in METRICS.values() for suffix in _SUFFIXES[metric.kind]
) | {created(metric.name) for metric in METRICS.values() if metric.kind == "counter"}
_OF_PROMETHEUS = frozenset({"up", "ALERTS", "ALERTS_FOR_STATE"})  # no metrics that one exports
_ADDED = frozenset(
    {
        NAME, "run", "rank", "le", "cluster", "job", "instance", "node", "namespace", "pod",
        "container", "service", "endpoint", "prometheus", "replica", "tenant",
    }
)  # fmt: skip
"""Labels of every metric: ours, and those that a Prometheus usually adds."""
_VALUES = {("ldlm_run_state", "state"): RUN_STATES, ("ldlm_events_total", "severity"): SEVERITIES}
"""By metric and label, all values that there are."""
_ANY_TIME = 1e9  # Unix seconds
_FOREIGN = ("process_", "scrape_")  # beginnings: of the client library's and of scrapes


def lint(rules: Sequence[Rule], every: float, external: Iterable[str] = ()) -> Iterator[str]:
    """A line for each doubtful thing; `rules`: those of all files that are loaded together.

    `every`: seconds between two evaluations. `external`: labels that a Prometheus adds.
    """
    known = _EXPORTED | {rule.record for rule in rules if isinstance(rule, RecordingRule)}
    for rule in rules:
        unknown = _unknown_labels(rule, frozenset(external))
        never = [NEVER] if interval(rule.expr.root).is_empty else []
        found = (*_missing(rule, known), *unknown, *_severity(rule), *never, *_notes(rule.expr))
        for what in found:
            yield f"{rule.file}: group {rule.group} ({_name(rule)}): {what}"
    for file, group, own in dict.fromkeys((r.file, r.group, r.interval) for r in rules):
        if 0 < own < every:
            yield (
                f"{file}: group {group}: interval {duration(own)} is not followed: "
                f"evaluation_interval is {duration(every)}"
            )
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


def _missing(rule: Rule, known: frozenset[str]) -> Iterator[str]:
    for name in sorted(metric_names(rule.expr) - known - _OF_PROMETHEUS):
        if name.startswith(_FOREIGN):
            continue
        close = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {close[0]}?" if close else "docs/metrics.md lists what there is"
        yield f"nothing here exports {name}; {hint}"


def _unknown_labels(rule: Rule, external: frozenset[str]) -> Iterator[str]:
    """Of matchers that select nothing, whatever is exported."""
    for selector in selectors(rule.expr):
        name = selector.metric
        if name not in METRICS or name == "ldlm_alerts":  # that has the labels of any rule
            continue
        known = _ADDED | external | set(METRICS[name].labels)
        for each in selector.matchers:
            asked = f'{each.name}{each.op}"{each.value}"'
            if each.op in ("=", "=~") and each.name not in known and each.value not in ("", ".*"):
                has = ", ".join(("run", "rank", *METRICS[name].labels))
                yield f"{asked} selects no series: {name} has the labels {has}"
            values = _VALUES.get((name, each.name))
            if values and each.op == "=" and each.value not in values:
                yield f"{asked} selects no series: it is one of {', '.join(values)}"


def _severity(rule: Rule) -> Iterator[str]:
    if not isinstance(rule, AlertRule) or "severity" not in rule.labels:
        return
    severity = rule.labels["severity"].source
    if "{{" not in severity and severity not in (*SEVERITIES, "none"):
        wanted = ", ".join((*SEVERITIES, "none"))
        yield f"severity {severity!r} is none of {wanted}"


def _name(rule: Rule) -> str:
    return rule.name if isinstance(rule, AlertRule) else rule.record


def _identity(rule: Rule) -> tuple[str, tuple[tuple[str, str], ...], str]:
    if isinstance(rule, AlertRule):
        labels = {name: template.source for name, template in rule.labels.items()}
    else:
        labels = rule.labels
    return _name(rule), tuple(sorted(labels.items())), " ".join(rule.expr.text.split())


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


_ANY, _NOTHING = Interval(), Interval(math.inf, -math.inf)
_SHARE, _FLAG = Interval(0, 1), Interval(0, 1)
_KNOWN = {  # those that the monitor computes: what a trainer logs may be anything
    "ldlm_train_progress_ratio": _SHARE,
    "ldlm_goodput_ratio": _SHARE,
    "ldlm_goodput_ettr_ratio": _SHARE,
    "ldlm_run_state": _FLAG,
    "ldlm_gpu_throttled": _FLAG,
    "ldlm_run_health": Interval(0, 3),
    "ldlm_run_info": Interval(1, 1),
    "ldlm_build_info": Interval(1, 1),
    "ldlm_alerts": Interval(1, 1),
}
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


def interval(node: Node) -> Interval:
    """The values that a part of an expression may have; an empty one never has any.

    Only what is certain counts: the range of a metric that this monitor computes itself, and
    comparisons of one and the same vector with numbers. Whatever is not understood has every value.
    """
    if isinstance(node, Selector):
        return _KNOWN.get(node.metric, _ANY)
    if isinstance(node, Range):
        return interval(node.selector)
    if isinstance(node, Aggregation):
        inner = interval(node.operand)
        return inner if inner.is_empty or node.operator in _KEEPING else _ANY
    if isinstance(node, Call):
        kept = node.function in _KEEPING_CALLS
        return interval(node.arguments[0]) if kept else _ANY
    return _of_binary(node) if isinstance(node, Binary) else _ANY


def _of_binary(node: Binary) -> Interval:
    left, right = interval(node.left), interval(node.right)
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
