"""Warnings about rules that load but hardly do what their author means."""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

from ldlm_monitor.alerts import AlertRule, RecordingRule
from ldlm_monitor.model.names import METRICS, SEVERITIES, created
from ldlm_monitor.promql import Expression
from ldlm_monitor.promql.analysis import metric_names
from ldlm_monitor.promql.annotations import notes_on
from ldlm_monitor.text.format import duration

Rule = AlertRule[Expression] | RecordingRule[Expression]

_SUFFIXES = {  # of the series that a metric of this kind has
    "gauge": ("",),
    "counter": ("",),
    "histogram": ("", "_bucket", "_sum", "_count"),
}
_EXPORTED = frozenset(
    metric.name + suffix for metric in METRICS.values() for suffix in _SUFFIXES[metric.kind]
) | {created(metric.name) for metric in METRICS.values() if metric.kind == "counter"}
_OF_PROMETHEUS = frozenset({"up", "ALERTS", "ALERTS_FOR_STATE"})  # no metrics that one exports
_FOREIGN = ("process_", "scrape_")  # beginnings: of the client library's and of scrapes


def lint(rules: Sequence[Rule], every: float) -> Iterator[str]:
    """A line for each doubtful thing; `rules`: those of all files that are loaded together.

    `every`: seconds between two evaluations.
    """
    known = _EXPORTED | {rule.record for rule in rules if isinstance(rule, RecordingRule)}
    for rule in rules:
        for what in (*_missing(rule, known), *_severity(rule), *notes_on(rule.expr)):
            yield f"{rule.file}: group {rule.group} ({_name(rule)}): {what}"
    for file, group, interval in dict.fromkeys((r.file, r.group, r.interval) for r in rules):
        if 0 < interval < every:
            yield (
                f"{file}: group {group}: interval {duration(interval)} is not followed: "
                f"evaluation_interval is {duration(every)}"
            )
    for (name, labels, _), count in Counter(map(_identity, rules)).items():
        if count > 1:
            where = ", ".join(f'{key}="{value}"' for key, value in labels)
            yield f"{name}{{{where}}} is written {count} times with one expression; keep one"


def _missing(rule: Rule, known: frozenset[str]) -> Iterator[str]:
    for name in sorted(metric_names(rule.expr) - known - _OF_PROMETHEUS):
        if name.startswith(_FOREIGN):
            continue
        close = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {close[0]}?" if close else "docs/metrics.md lists what there is"
        yield f"nothing here exports {name}; {hint}"


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
