"""Rules and alerts as Prometheus' API gives them.

https://prometheus.io/docs/prometheus/latest/querying/api/#rules
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ldlm_monitor.base.text.format import iso
from ldlm_promrules.alerting import ActiveAlert, AlertRule
from ldlm_promrules.promql import Expression
from ldlm_promrules.promql.floats import decimal_text

if TYPE_CHECKING:
    from ldlm_monitor.judge.core.rule_engine import JudgedRule

_STATES = ("firing", "pending", "inactive")  # a rule has the first that one of its alerts has


def active_alerts(judged: JudgedRule) -> list[dict[str, Any]]:
    """The pending and firing alerts of a rule."""
    return [_alert(each) for each in judged.alerts]


def _alert(alert: ActiveAlert[Expression]) -> dict[str, Any]:
    since = alert.absent_since
    return ({} if since is None else {"keepFiringSince": iso(since)}) | {
        "labels": {"alertname": alert.rule.name, **alert.labels},
        "annotations": dict(alert.annotations),
        "state": alert.state,
        "activeAt": iso(alert.active_at),
        "value": decimal_text(alert.value),
    }


def groups(
    rules: Sequence[JudgedRule],
    kinds: Collection[str],
    wanted: Mapping[str, Collection[str]],
    at: float,
    interval: float,
    *,
    with_alerts: bool,
) -> list[dict[str, Any]]:
    """The groups with their rules of these `kinds`.

    `wanted`: names of rules, groups and files; if there are any, the others are left out. `at`:
    when all were evaluated, Unix seconds. `interval`: of groups without their own, in seconds.
    """
    evaluated = {"evaluationTime": 0.0, "lastEvaluation": iso(at)}
    found: dict[tuple[str, str, int, float], list[dict[str, Any]]] = {}
    for each in rules:
        rule = each.rule
        shown = _rule(each, with_alerts=with_alerts) | evaluated
        named = {"name": shown["name"], "group": rule.group, "file": rule.file}
        if shown["type"] in kinds and all(
            not names or named[kind] in names for kind, names in wanted.items()
        ):
            place = (rule.file, rule.group, rule.limit, rule.interval or interval)
            found.setdefault(place, []).append(shown)
    return [
        {"name": group, "file": file, "rules": shown, "limit": limit, "interval": each, **evaluated}
        for (file, group, limit, each), shown in found.items()
    ]


def _rule(judged: JudgedRule, *, with_alerts: bool) -> dict[str, Any]:
    rule = judged.rule
    shown: dict[str, Any] = {
        "query": rule.expr.text.strip(),
        "health": "ok" if judged.problem is None else "err",
    }
    if judged.problem is not None:
        shown["lastError"] = str(judged.problem)
    if not isinstance(rule, AlertRule):
        return shown | {"name": rule.record, "type": "recording", "labels": rule.labels}
    states = {alert.state for alert in judged.alerts} | {"inactive"}
    return shown | {
        "name": rule.name,
        "type": "alerting",
        "state": next(state for state in _STATES if state in states),
        "duration": rule.hold,
        "keepFiringFor": rule.keep_firing_for,
        "labels": {name: template.source for name, template in rule.labels.items()},
        "annotations": {name: template.source for name, template in rule.annotations.items()},
        "alerts": active_alerts(judged) if with_alerts else [],
    }
