"""Exported points in, the state of the alerts that the rules make of them out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from ldlm_monitor.alerts import ActiveAlert, AlertRule, AlertStates, Ending, RuleSet
from ldlm_monitor.model.alert import Transition, VectorSample, alert_key
from ldlm_monitor.model.points import Labels, Point, make_labels
from ldlm_monitor.model.records import Position
from ldlm_monitor.model.view import AlertView, Health
from ldlm_monitor.promql import LOOKBACK, Evaluator, Expression
from ldlm_monitor.promql.analysis import (
    ROUNDING_SECONDS,
    counts_samples,
    max_range,
    metric_names,
    moments,
    names_its_metrics,
    result_selectors,
    selectors,
    settles_after,
    uses_time,
)
from ldlm_monitor.run.fleet import worse
from ldlm_monitor.series.store import SeriesStore, is_matched

_STALL_METRICS = frozenset(
    {"ldlm_train_last_progress_timestamp_seconds", "ldlm_train_stall_limit_seconds"}
)


VALUE_SECONDS = 60.0
"""How old the value of a stall may be while nothing of it changes: what a message says of it has
hours and minutes, and a thousand stalled runs would be asked anew at every slot."""
RETENTION = 6 * 3600.0
"""Seconds that the embedded store reaches back at least: what `query_range` and views ask for."""


class _Question:
    """What decides when a rule's expression must be asked again."""

    def __init__(self, expr: Expression) -> None:
        self.metrics = metric_names(expr)
        self.reach = max_range(expr)
        self.settles_after = settles_after(expr)
        self.moments = moments(expr)
        by_time = uses_time(expr)
        # What changes is known by the name of its metric.
        self.always = by_time or counts_samples(expr) or not names_its_metrics(expr)
        # Time alone can change it; at a stall limit, runs announce when.
        self.needs_every_slot = by_time and not self.metrics >= _STALL_METRICS
        # A run that reaches its limit changes its state, so that the rule is asked again.
        follows_states = "ldlm_run_state" in self.metrics and not self.needs_every_slot
        self.stays = VALUE_SECONDS if by_time and follows_states else 0.0


class RuleEngine:
    """Keeps what was exported, evaluates the rules over it, and the state of their alerts.

    `reach` is how far (seconds) the rules look back. `asks_the_time`: time alone can change
    what some rule says.
    """

    def __init__(self, rules: RuleSet[Expression], interval: float) -> None:
        self._use(rules)
        self._alerts = AlertStates(rules)
        self._recorded: dict[str, list[Point]] = {}
        self._healths: dict[str, Health] = {}
        self._healths_of: list[VectorSample] | None = None
        self._recorded_from: dict[str, list[VectorSample]] = {}
        self._points: tuple[list[VectorSample], list[Point]] = ([], [])
        self._carried: dict[str, float] = {}
        self._store = SeriesStore(interval, max(RETENTION, 2 * self.reach))
        self._evaluator = Evaluator(self._store)

    def replace_rules(self, rules: RuleSet[Expression]) -> None:
        """Judge by other rules from now on; alerts of the same name and labels go on."""
        before = {(a.rule.name, *sorted(a.labels.items())): a for a in self.active}
        self._use(rules)
        self._alerts, self._recorded, self._recorded_from = AlertStates(rules), {}, {}
        self._alerts.adopt(before.values())

    @property
    def active(self) -> Iterable[ActiveAlert[Expression]]:
        """The pending and firing alerts."""
        return self._alerts.alerts()

    def due(self) -> float:
        """The earliest time at which a `for`, a `keep_firing_for` or a `carry_over` runs out."""
        return min((self._alerts.due(), *self._carried.values()))

    def evaluate(
        self, groups: list[list[Point]], at: float, has_ended: Callable[[str], bool]
    ) -> list[Transition]:
        """Take in a scrape at `at`, as `SeriesStore.append` wants it; judge by every rule.

        `has_ended` returns by a run's name whether it finished, crashed or was killed:
        then its alerts end with it. One whose series stopped is not known to be over.
        """
        self._store.append([*groups, *self._recorded.values()], at)

        def ending(rule: AlertRule[Expression], labels: Mapping[str, str]) -> Ending | None:
            if has_ended(labels.get("run", "")):
                return "ended"
            has_data = self._has_data(rule, labels, at)
            if self._is_carried(rule, labels, at, has_data=has_data):
                return None
            return "resolved" if has_data else "unknown"

        found = self._alerts.evaluate(self._ask, at, ending=ending, record=self._record)
        self._carried = {key: until for key, until in self._carried.items() if at < until}
        return found

    def _is_carried(
        self, rule: AlertRule[Expression], labels: Mapping[str, str], at: float, *, has_data: bool
    ) -> bool:
        """Whether an alert goes on from before a restart, because its rule cannot deny it yet."""
        until = self._carried.get(alert_key(rule.name, labels), at)
        looks_back = self._asked[rule.expr.text].reach > LOOKBACK
        return at < until and (looks_back or not has_data)

    def _has_data(self, rule: AlertRule[Expression], labels: Mapping[str, str], at: float) -> bool:
        """Whether a series exists that the alert could be about."""
        given = {name: value for name, value in labels.items() if name not in rule.labels}
        selectors = tuple(result_selectors(rule.expr.root))
        for selector in selectors:
            for series, _, _ in self._store.latest(selector.matchers, at - LOOKBACK, at):
                found = dict(series)
                if all(found.get(name, value) == value for name, value in given.items()):
                    return True
        return not selectors

    def points(self) -> list[Point]:
        """The active alerts as they are exported; the same object until they change."""
        series = self._alerts.series()
        if series is not self._points[0]:
            self._points = (
                series,
                [
                    Point(
                        "ldlm_alerts",
                        make_labels(
                            **alert.labels, alertname=alert.rule.name, alertstate=alert.state
                        ),
                        1.0,
                    )
                    for alert in self.active
                ],
            )
        return self._points[1]

    def healths(self) -> Mapping[str, Health]:
        """By run, the health that its firing alerts mean; runs without any are left out."""
        series = self._alerts.series()
        if series is not self._healths_of:
            self._healths_of = series
            found: dict[str, Health] = {}
            for alert in self.active:
                if alert.state == "firing" and (run := alert.labels.get("run")):
                    found[run] = worse(found.get(run, "HEALTHY"), alert.labels.get("severity", ""))
            self._healths = found
        return self._healths

    def views(
        self, position: Callable[[str, Mapping[str, str]], Position | None]
    ) -> Iterator[AlertView]:
        """The active alerts for readers; `position` is of an alert's line, by name and labels."""
        for active in self.active:
            yield AlertView(
                name=active.rule.name,
                state=active.state,
                labels=dict(active.labels),
                annotations=dict(active.annotations),
                value=active.value,
                active_at=active.active_at,
                fired_at=active.fired_at,
                position=position(active.rule.name, active.labels),
            )

    def asks(self, alert: str) -> Callable[[str, Labels], bool]:
        """Whether the rules of an alert read a series, by its name and labels."""
        read = [
            selector.matchers
            for rule in self._rules.alerts
            if rule.name == alert
            for selector in selectors(rule.expr)
        ]
        return lambda name, labels: any(
            is_matched((("__name__", name), *labels), matchers) for matchers in read
        )

    def starts(self) -> dict[str, float]:
        """When each active alert's condition first held, by the alert's key."""
        return {alert_key(alert.rule.name, alert.labels): alert.active_at for alert in self.active}

    def restore_starts(self, starts: Mapping[str, float]) -> None:
        """Give active alerts the earlier start times that were known before a restart."""
        for alert in self.active:
            known = starts.get(alert_key(alert.rule.name, alert.labels), alert.active_at)
            self._alerts.restore_start(alert, known)

    def carry_over(self, alerts: Iterable[AlertView], at: float) -> list[Transition]:
        """Go on with alerts that fired before a restart and of which no log says anything now.

        What made them fire was rotated away. Each goes on with its start until its rule has
        seen for as long as it looks back what came since `at` (Unix seconds); a rule about this
        moment alone denies it as soon as it has a series of it again. Then it ends like any
        other: `resolved`, or `unknown` where no series is left. Returns it as when it began.
        """
        rules = {rule.name: rule for rule in reversed(self._rules.alerts)}
        for alert in alerts:
            rule = rules.get(alert.name)
            if rule is None or alert.state != "firing":
                continue
            reach = self._asked[rule.expr.text].reach
            self._carried[alert_key(alert.name, alert.labels)] = at + (
                LOOKBACK if math.isinf(reach) else max(reach, LOOKBACK)
            )
            active = ActiveAlert(
                rule, dict(alert.labels), "firing", alert.active_at, alert.value,
                dict(alert.annotations), alert.fired_at or alert.active_at,
            )  # fmt: skip
            self._alerts.adopt([active])
        return [each for each in self._alerts.firing() if each.key in self._carried]

    def _use(self, rules: RuleSet[Expression]) -> None:
        self._rules = rules
        self._asked = {rule.expr.text: _Question(rule.expr) for rule in rules.rules}
        self._answers: dict[str, tuple[float, list[VectorSample]]] = {}
        self.reach = max((asked.reach for asked in self._asked.values()), default=0.0)
        self.asks_the_time = any(asked.needs_every_slot for asked in self._asked.values())

    def _ask(self, expr: Expression, at: float) -> list[VectorSample]:
        """The value of a rule's expression, computed only if it can differ from the last one."""
        asked = self._asked[expr.text]
        known = self._answers.get(expr.text)
        if known is not None and not self._may_differ(asked, known[0], at):
            return known[1]
        vector = self._evaluator(expr, at)
        self._answers[expr.text] = at, vector
        return vector

    def _may_differ(self, asked: _Question, asked_at: float, at: float) -> bool:
        """Whether time, or a change of its metrics, can have changed the answer of `asked_at`."""
        if asked.always and at >= asked_at + asked.stays:
            return True
        if not asked.moments:
            return self._store.changed_at(asked.metrics) >= asked_at - asked.settles_after
        return any(
            self._store.has_changed(
                asked.metrics, asked_at - offset - ROUNDING_SECONDS, at - offset + ROUNDING_SECONDS
            )
            for offset in asked.moments
        )

    def _record(self, name: str, samples: list[VectorSample], at: float) -> None:
        """Results are there for the rules that follow at once, and for the next scrape."""
        del at
        if self._recorded_from.get(name) is samples:
            return
        self._recorded_from[name] = samples
        points = [Point(name, sample.labels, sample.value) for sample in samples]
        if points != self._recorded.get(name):
            self._recorded[name] = points
            self._store.record(name, points)
