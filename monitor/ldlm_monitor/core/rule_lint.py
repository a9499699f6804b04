"""Warnings about rules that load but hardly do what their author means."""

import contextlib
import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ldlm_monitor.alerts import AlertRule, RecordingRule
from ldlm_monitor.core.answers import MAX_STEPS
from ldlm_monitor.core.rule_ranges import interval
from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.model.names import METRICS, RUN_STATES, SEVERITIES, created
from ldlm_monitor.model.points import ListedStorage, Matcher, Series
from ldlm_monitor.promql import Evaluator, Expression
from ldlm_monitor.promql.analysis import metric_names, selectors
from ldlm_monitor.promql.annotations import Notes
from ldlm_monitor.promql.functions import BOUND
from ldlm_monitor.promql.nodes import NAME, Subquery, walk
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
