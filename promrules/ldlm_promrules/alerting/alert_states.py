"""The state of every alert, stepped from one evaluation to the next.

A step does what `AlertingRule.Eval` of Prometheus does (`rules/alerting.go`), and adds the reason
why an alert ended.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Generic, TypeAlias, TypeVar

from ldlm_promrules.alert_change import AlertChange
from ldlm_promrules.alerting.active_alerts import (
    ActiveAlert,
    Ending,
    agreement,
    change_of,
    instances,
)
from ldlm_promrules.alerting.rule_files import (
    ALERT_NAME,
    AlertRule,
    RecordingRule,
    RuleSet,
    check_limit,
)
from ldlm_promrules.errors import RuleError
from ldlm_promrules.samples import Labels, Query, VectorSample, sorted_labels
from ldlm_promrules.templates.template_expansion import NO_CONTEXT, Context

E = TypeVar("E")

Recorder: TypeAlias = Callable[[str, list[VectorSample], float], None]
"""Called with a metric's name, its samples, and Unix seconds; series without one have ended."""

ALERTS_SERIES = "ALERTS"  # Prometheus' metric of pending and firing alerts
_ENDING_REASONS: dict[Ending, str] = {  # `AlertChange.reason`, which people read
    "resolved": "condition no longer holds",
    "ended": "what it watches has ended",
    "unknown": "no data",
}


class AlertStates(Generic[E]):
    """All active alerts of a rule set. `health`: by rule index, why its last evaluation failed.
    `context`: what the templates of labels and annotations can read beside the alert.
    """

    def __init__(self, rules: RuleSet[E], context: Context = NO_CONTEXT) -> None:
        self._rules = rules
        self._context = context
        self._by_rule: dict[int, dict[Labels, ActiveAlert[E]]] = {}
        self._recorded: dict[str, dict[int, list[VectorSample]]] = {}  # by metric and rule index
        self.health: dict[int, RuleError] = {}
        self._instances: dict[int, dict[Labels, ActiveAlert[E]]] = {}  # at the last evaluation
        self._series: list[VectorSample] | None = None
        self._due: float | None = None

    def alerts(self) -> Iterator[ActiveAlert[E]]:
        """The pending and firing alerts, in rule order."""
        for _, alerts in sorted(self._by_rule.items()):
            yield from alerts.values()

    def firing(self) -> list[AlertChange]:
        """A change to firing for each firing alert, at `fired_at` and with the last value."""
        return [
            change_of(alert, alert.fired_at, "firing", "inactive", "condition holds")
            for alert in self.alerts()
            if alert.state == "firing" and alert.fired_at is not None
        ]

    def adopt(self, alerts: Iterable[ActiveAlert[E]]) -> None:
        """Continue each alert of an earlier rule set that has a rule of the same name here.

        Of several such rules, the first whose labels agree best: +1 for equal, -1 for different.
        """
        for alert in alerts:
            named = [
                (agreement(alert, rule), -index, rule)
                for index, rule in enumerate(self._rules.rules)
                if isinstance(rule, AlertRule) and rule.name == alert.rule.name
            ]
            if named:
                _, index, alert.rule = max(named, key=lambda each: each[:2])
                self._by_rule.setdefault(-index, {})[sorted_labels(alert.labels)] = alert
        self._series = self._due = None

    def restore_start(self, alert: ActiveAlert[E], at: float) -> None:
        """Set the start of an active alert to `at` (Unix seconds) if `at` is earlier."""
        alert.active_at = min(alert.active_at, at)
        self._due = None

    def due(self) -> float:
        """The earliest end (Unix seconds) of a `for` or `keep_firing_for`; infinity if none.

        Not of a rule whose evaluation failed, as then none of them ends.
        """
        if self._due is None:  # kept, since it is read with every record
            self._due = self._first_due()
        return self._due

    def _first_due(self) -> float:
        times: list[float] = []
        judged = (alerts for index, alerts in self._by_rule.items() if index not in self.health)
        for alert in chain.from_iterable(alerts.values() for alerts in judged):
            if alert.state == "pending":
                times.append(alert.active_at + alert.rule.hold)
            elif alert.absent_since is not None:
                times.append(alert.absent_since + alert.rule.keep_firing_for)
        return min(times, default=math.inf)

    def holds(self, index: int) -> bool:
        """Whether the last result of the rule of this index was not empty, or is not known."""
        return index in self.health or bool(self._instances.get(index, True))

    def fires(self, index: int) -> bool:
        """Whether the rule of this index has firing alerts alone, and no value changes a label."""
        rule, alerts = self._rules.rules[index], self._by_rule.get(index, {})
        is_named = isinstance(rule, AlertRule) and all(x.is_text for x in rule.labels.values())
        return is_named and bool(alerts) and all(x.state == "firing" for x in alerts.values())

    def evaluate(
        self,
        query: Query[E],
        at: float,
        *,
        ending: Callable[[AlertRule[E], Mapping[str, str]], Ending | None],
        record: Recorder,
        due: Collection[int] | None = None,
        take: Callable[[int, float], bool] = lambda index, at: True,
        only: tuple[str, str] | None = None,
    ) -> list[AlertChange]:
        """Evaluate every rule that is `due` at `at` (Unix seconds) and return the changes.

        A rule that raises RuleError keeps its alerts and is listed in `health`; the other rules
        are evaluated. When a firing alert's condition is false and `keep_firing_for` is over,
        `ending` returns how the alert ended, or None if it keeps firing. `record` gets the results
        of recording rules, and `ALERTS`. `due`: the rules, by their index, whose result can
        differ from the last one (None: all), to which recording may add; `take` is called for each
        before its evaluation, and may put it off. A `for` and a `keep_firing_for` end whether or
        not the rule is due. `only`: a label and its value, of which alone `query` answers; results
        without it stay as they were.
        """
        transitions: list[AlertChange] = []
        due, index = range(len(self._rules.rules)) if due is None else due, -1
        while (index := min(filter(index.__lt__, (*due, *self._by_rule)), default=-1)) >= 0:
            rule = self._rules.rules[index]
            try:
                if index in due and take(index, at):
                    self.health.pop(index, None)
                    vector = query(rule.expr, at)
                    if only is not None:
                        vector = [each for each in vector if only in each.labels]
                    if isinstance(rule, RecordingRule):
                        self._record(index, rule, vector, at, record, only=only)
                        continue
                    kept = _but(self._instances.get(index, {}), only)
                    check_limit(rule, len(vector) + len(kept))
                    self._instances[index] = kept | instances(rule, vector, at, self._context)
            except RuleError as problem:
                self.health[index] = problem
            fresh = self._instances.get(index, {})
            is_active = bool(fresh) or index in self._by_rule
            if isinstance(rule, RecordingRule) or index in self.health or not is_active:
                continue
            alerts = self._by_rule.setdefault(index, {})
            shown = len(alerts)
            changes = _step(rule, alerts, fresh, at, ending)
            if changes or len(alerts) != shown:  # a pending alert ends without a transition
                self._series = None
            if not alerts:
                del self._by_rule[index]
            transitions += changes
            if shown or alerts:
                record(ALERTS_SERIES, self.series(), at)
        self._due = None
        return transitions

    def _record(
        self,
        index: int,
        rule: RecordingRule[E],
        vector: list[VectorSample],
        at: float,
        record: Recorder,
        *,
        only: tuple[str, str] | None,
    ) -> None:
        by_rule = self._recorded.setdefault(rule.record, {})
        samples = [
            VectorSample(
                sorted_labels({**dict(sample.labels), "__name__": "", **rule.labels}), sample.value
            )
            for sample in vector
        ]
        if only is not None:
            samples += [each for each in by_rule.get(index, ()) if only not in each.labels]
        check_limit(rule, len(samples))
        if len({sample.labels for sample in samples}) != len(samples):
            raise RuleError(
                "the result has several series with the same labels",
                remedy="select one metric, and set no label by which series differ",
            )
        by_rule[index] = samples
        record(rule.record, [each for _, found in sorted(by_rule.items()) for each in found], at)

    def series(self) -> list[VectorSample]:
        """The samples of `ALERTS`: the same object until an alert begins, fires or ends."""
        if self._series is None:
            labels = (
                {**alert.labels, ALERT_NAME: alert.rule.name, "alertstate": alert.state}
                for alert in self.alerts()
            )
            self._series = [VectorSample(sorted_labels(each), 1.0) for each in labels]
        return self._series


def _but(
    found: Mapping[Labels, ActiveAlert[E]], only: tuple[str, str] | None
) -> dict[Labels, ActiveAlert[E]]:
    """Those whose labels do not have the pair `only`; none without one."""
    return {} if only is None else {key: each for key, each in found.items() if only not in key}


def _step(
    rule: AlertRule[E],
    alerts: dict[Labels, ActiveAlert[E]],
    fresh: dict[Labels, ActiveAlert[E]],
    at: float,
    ending: Callable[[AlertRule[E], Mapping[str, str]], Ending | None],
) -> list[AlertChange]:
    transitions: list[AlertChange] = []
    for key, alert in list(alerts.items()):
        now = fresh.get(key)
        if now is not None:
            alert.value, alert.annotations, alert.absent_since = now.value, now.annotations, None
        elif _keeps_firing(alert, at):
            continue
        elif alert.state == "pending":
            del alerts[key]
        elif (outcome := ending(rule, alert.labels)) is not None:
            del alerts[key]
            transitions.append(change_of(alert, at, outcome, "firing", _ENDING_REASONS[outcome]))
    for key, begun in fresh.items():
        known = key in alerts
        alert = alerts.setdefault(key, begun)
        if alert.state == "pending":
            transitions += _mature(alert, at, known=known)
    return transitions


def _keeps_firing(alert: ActiveAlert[E], at: float) -> bool:
    if alert.state != "firing" or alert.rule.keep_firing_for <= 0:
        return False
    if alert.absent_since is None:
        alert.absent_since = at
    return at - alert.absent_since < alert.rule.keep_firing_for


def _mature(alert: ActiveAlert[E], at: float, *, known: bool) -> list[AlertChange]:
    """Fire a pending alert whose `for` is over. If not `known`, it is new: a transition, too."""
    if at - alert.active_at >= alert.rule.hold:
        alert.state = "firing"
        alert.fired_at = at
        if known:
            reason = "condition held for its duration"
            return [change_of(alert, at, "firing", "pending", reason)]
    elif known:
        return []
    return [change_of(alert, at, alert.state, "inactive", "condition holds")]
