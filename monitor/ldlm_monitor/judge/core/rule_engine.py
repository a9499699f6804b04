"""Evaluates the rules over the exported points, and keeps the state of their alerts."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ldlm_monitor.base.alert import RUN_ENDED, Transition, alert_key
from ldlm_monitor.base.errors import RuleError
from ldlm_monitor.base.names import PAST_TIMES
from ldlm_monitor.base.points import RETENTION, Labels, Point, make_labels
from ldlm_monitor.base.records import Position
from ldlm_monitor.base.snapshot import AlertView
from ldlm_monitor.judge.core.rules_due import OfRun, RulesDue
from ldlm_promrules.alert_change import AlertChange, State
from ldlm_promrules.alerting import (
    NO_CONTEXT,
    ActiveAlert,
    AlertRule,
    AlertStates,
    Context,
    Ending,
    RuleSet,
)
from ldlm_promrules.alerting.rule_files import Rule
from ldlm_promrules.promql import LOOKBACK, Evaluator, Expression, parse
from ldlm_promrules.promql.expression import max_range, result_selectors, selectors
from ldlm_promrules.samples import VectorSample
from ldlm_promrules.series.series_matching import is_matched
from ldlm_promrules.series.series_store import SeriesStore
from ldlm_promrules.series.store_view import StoreView

_KEPT = 256  # parsed queries of templates. A choice: memory, or parsing a text again


@dataclass(frozen=True, slots=True)
class JudgedRule:
    """A rule with its active alerts, and the error of its last evaluation (None: it succeeded)."""

    rule: Rule[Expression]
    alerts: list[ActiveAlert[Expression]]
    problem: RuleError | None


class RuleEngine:
    """Stores a scrape every `interval` seconds, evaluates the rules, keeps their alerts' states.

    `retention`: seconds for which samples are kept; rules may need more.
    `reach`: how far (seconds) rules look back. `asks_the_time`: whether time alone changes results.
    `context`: what templates of annotations read, whose `query` asks this engine.
    """

    def __init__(
        self,
        rules: RuleSet[Expression],
        interval: float,
        context: Context = NO_CONTEXT,
        retention: float = RETENTION,
    ) -> None:
        self.interval = interval
        self._store = SeriesStore(interval, retention)
        self._use(rules)
        self._context = replace(context, query=self._ask_text)
        self._alerts = AlertStates(rules, self._context)
        self._shown_of: list[VectorSample] | None = None
        self._points: list[Point] = []
        self._ranks: dict[str, int] | None = None  # those of `_points`; None: they are outdated
        self._firing: dict[str, list[ActiveAlert[Expression]]] = {}
        self._parsed: dict[str, Expression] = {}  # of templates' queries, by their texts
        self._recorded_from: dict[str, list[VectorSample]] = {}
        self._carried: dict[str, float] = {}
        self._carried_at = 0.0  # what began later ends carried alerts

    def replace_rules(self, rules: RuleSet[Expression]) -> None:
        """Judge by other rules from now on; alerts of the same name and labels go on."""
        before = {(a.rule.name, *sorted(a.labels.items())): a for a in self.active}
        self._use(rules)
        for name in self._recorded_from:
            self._store.record(name, ())
        self._alerts, self._recorded_from = AlertStates(rules, self._context), {}
        self._alerts.adopt(before.values())

    @property
    def active(self) -> Iterable[ActiveAlert[Expression]]:
        """The pending and firing alerts."""
        return self._alerts.alerts()

    def active_keys(self) -> Collection[str]:
        """The keys (`alert_key`) of the pending and firing alerts."""
        return {alert_key(alert.rule.name, alert.labels) for alert in self.active}

    def due(self) -> float:
        """When the first `for`, `keep_firing_for` or `carry_over` ends (Unix seconds or inf)."""
        return min((self._alerts.due(), *self._carried.values()))

    def evaluate(
        self,
        groups: list[list[Point]],
        at: float,
        has_ended: Callable[[str], bool],
        attempt_began: Callable[[str], float | None],
        *,
        limit_passed: bool = False,
        only: str | None = None,
    ) -> list[Transition]:
        """Store a scrape of `at` (`groups`: see `SeriesStore.append`) and evaluate every rule.

        `has_ended`: whether the run of a name is over, and its alerts with it. `attempt_began`:
        when its present attempt did (Unix seconds; None: it is the first), with which an alert of
        an earlier one ends. Otherwise an alert without data becomes `unknown`, because it may still
        be true.
        `limit_passed`: a run has passed a stall limit since the last call. `only`: the run whose
        points alone are new, and for which alone the rules are evaluated that keep runs apart; all
        others, and these rules for other runs, are due until the next evaluation without it.
        """
        self._store.append(groups, at)
        self._due.note(self._store.take_changes(), at)
        self._due.begin(at, limit_passed=limit_passed)

        def ending(rule: AlertRule[Expression], labels: Mapping[str, str]) -> Ending | None:
            if has_ended(labels.get("run", "")):
                return "ended"
            has_data = self._has_data(rule, labels, at)
            began = attempt_began(labels.get("run", ""))
            if (began is None or began <= self._carried_at) and self._is_carried(
                rule, labels, at, has_data=has_data
            ):
                return None
            return "resolved" if has_data else "unknown"

        due = self._due.due
        if only is None:
            found = self._alerts.evaluate(
                self._evaluator,
                at,
                due=due,
                take=self._due.take,
                ending=ending,
                record=self._record,
            )
        else:
            self._of_run.run = only
            found = self._alerts.evaluate(
                self._run_evaluator, at, due=due, take=self._takes_alone, ending=ending,
                record=self._record, only=("run", only),
            )  # fmt: skip
        self._carried = {key: until for key, until in self._carried.items() if at < until}
        return [
            _transition(each, is_restarted=self._ends_with_attempt(each, attempt_began))
            for each in found
        ]

    def _ends_with_attempt(
        self, change: AlertChange, attempt_began: Callable[[str], float | None]
    ) -> bool:
        """Whether another attempt of the run ended an alert: its data is gone since, or its
        condition ceased with the beginning.
        """
        began = attempt_began(change.labels.get("run", ""))
        if began is None or change.active_at > began:
            return False
        named = (each for each in self._rules.alerts if each.name == change.rule)
        kept = max((each.keep_firing_for for each in named), default=0.0)
        at_once = change.time <= began + kept + self.interval
        return change.state == "unknown" or (change.state == "resolved" and at_once)

    def _takes_alone(self, index: int, at: float) -> bool:
        """Whether to evaluate a rule that is due for one run."""
        del at
        return self._due.is_apart(index) and index not in self._alerts.health

    def _is_carried(
        self, rule: AlertRule[Expression], labels: Mapping[str, str], at: float, *, has_data: bool
    ) -> bool:
        """Whether a carried-over alert continues, because its rule has too little data."""
        until = self._carried.get(alert_key(rule.name, labels), at)
        looks_back = max_range(rule.expr, PAST_TIMES) > LOOKBACK
        return at < until and (looks_back or not has_data)

    def _has_data(self, rule: AlertRule[Expression], labels: Mapping[str, str], at: float) -> bool:
        given = {name: value for name, value in labels.items() if name not in rule.labels}
        selectors = tuple(result_selectors(rule.expr.root))
        for selector in selectors:
            for series, _, _ in self._store.reader(selector.matchers).latest(at - LOOKBACK, at):
                found = dict(series)
                if all(found.get(name, value) == value for name, value in given.items()):
                    return True
        return not selectors

    def points(self, ranks: Mapping[str, int]) -> list[Point]:
        """The active alerts as points of `ldlm_alerts`; the same object until they change.

        `ranks`: the rank that a run's incident names, for critical alerts whose rule names none.
        """
        self._show()
        if ranks != self._ranks:
            self._ranks, self._points = dict(ranks), []
            for alert in self.active:
                labels = {**alert.labels, "alertname": alert.rule.name, "alertstate": alert.state}
                rank = ranks.get(labels.get("run", ""))
                if rank is not None and labels.get("severity") == "critical":
                    labels.setdefault("rank", str(rank))
                self._points.append(Point("ldlm_alerts", make_labels(**labels), 1.0))
        return self._points

    def retain(self, seconds: float) -> None:
        """Keep samples for at least so long from now on."""
        self._store.retention = max(self._store.retention, seconds)

    def view(self, names: Iterable[str] | None, until: float) -> StoreView:
        """The samples of these metrics (None: of all) up to `until`, for readers elsewhere."""
        return StoreView(self._store, names, until)

    def judged(self) -> list[JudgedRule]:
        """Each rule, its alerts as copies, and why its last evaluation failed, if it did."""
        alerts = [replace(each) for each in self.active]
        problems = self._alerts.health
        return [
            JudgedRule(rule, [each for each in alerts if each.rule is rule], problems.get(index))
            for index, rule in enumerate(self._rules.rules)
        ]

    def _ask_text(self, text: str, at: float) -> list[VectorSample]:
        """The answer to a template's `query`."""
        if (expr := self._parsed.get(text)) is None:
            if len(self._parsed) >= _KEPT:
                self._parsed.clear()
            expr = self._parsed[text] = parse(text)
        return self._evaluator(expr, at)

    def firing(self) -> Mapping[str, Sequence[ActiveAlert[Expression]]]:
        """The firing alerts by run; runs without one are absent."""
        self._show()
        return self._firing

    def _show(self) -> None:
        series = self._alerts.series()
        if series is self._shown_of:
            return
        self._shown_of, self._ranks, self._firing = series, None, {}
        for alert in self.active:
            if alert.state == "firing" and (run := alert.labels.get("run")):
                self._firing.setdefault(run, []).append(alert)

    def views(
        self, position: Callable[[str, Mapping[str, str]], Position | None]
    ) -> Iterator[AlertView]:
        """The active alerts for views; `position` finds a log line by alert name and labels."""
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
        """A function of a series' name and labels: True if the alert's rules read that series."""
        read = [
            selector.matchers
            for rule in self._rules.alerts
            if rule.name == alert
            for selector in selectors(rule.expr)
        ]
        return lambda name, labels: any(
            is_matched((("__name__", name), *labels), matchers) for matchers in read
        )

    def carry_over(
        self, alerts: Iterable[AlertView], starts: Mapping[str, float], at: float
    ) -> list[Transition]:
        """Continue alerts that fired before a restart and whose log lines were rotated away.

        Each keeps its start, and other active alerts get an earlier one from `starts` (alert key:
        Unix seconds). A continued alert lasts until its rule has data since `at` (Unix seconds)
        for its whole range; a rule without a range (instant selectors) needs only one sample of
        the series. Then it ends like any other: `resolved`, or `unknown` without a series.
        Returns the continued alerts as firing transitions.
        """
        rules = {rule.name: rule for rule in self._rules.alerts}
        self._carried_at = at
        for alert in alerts:
            rule = rules.get(alert.name)
            if rule is None or alert.state != "firing":
                continue
            active = ActiveAlert(
                rule, dict(alert.labels), "firing", alert.active_at, alert.value,
                dict(alert.annotations), alert.fired_at or alert.active_at,
            )  # fmt: skip
            self._alerts.adopt([active])  # of several rules with the name, it selects one
            reach = max_range(active.rule.expr, PAST_TIMES)
            self._carried[alert_key(alert.name, alert.labels)] = at + (
                LOOKBACK if math.isinf(reach) else max(reach, LOOKBACK)
            )
        for known in self.active:
            start = starts.get(alert_key(known.rule.name, known.labels), known.active_at)
            self._alerts.restore_start(known, start)
        fired = map(_transition, self._alerts.firing())
        return [each for each in fired if each.key in self._carried]

    def _use(self, rules: RuleSet[Expression]) -> None:
        self._rules = rules
        self._due = RulesDue(
            rules.rules,
            self.interval,
            self._store.last_scrape,
            lambda index: self._alerts.holds(index),  # noqa: PLW0108 # they are made afterwards
            lambda index: self._alerts.fires(index),  # noqa: PLW0108
        )
        noted = self._due.noted(self._store)
        self._of_run = OfRun(noted)
        self._evaluator, self._run_evaluator = Evaluator(noted), Evaluator(self._of_run)
        self.reach = max((asked.reach for asked in self._due.questions), default=0.0)
        self.retain(2 * self.reach)
        # A change is seen by the next turn of a group, too.
        self.reach += max((rule.interval for rule in rules.rules), default=0.0)
        self.asks_the_time = any(asked.needs_every_slot for asked in self._due.questions)

    def _record(self, name: str, samples: list[VectorSample], at: float) -> None:
        if self._recorded_from.get(name) is not samples:
            self._recorded_from[name] = samples
            points = (Point(name, sample.labels, sample.value) for sample in samples)
            self._store.record(name, points)
            self._due.note(self._store.take_changes(), at)


def _transition(change: AlertChange, *, is_restarted: bool = False) -> Transition:
    """The change as views and receivers have it, still without its log line and incident.

    `is_restarted`: it ended with an attempt of its run, otherwise one that ended did so with it.
    """
    ending = "restarted" if is_restarted else RUN_ENDED
    state: State = "ended" if is_restarted else change.state
    return Transition(
        time=change.time,
        alert=change.rule,
        state=state,
        previous=change.previous,
        reason=ending if state == "ended" else change.reason,
        labels=change.labels,
        annotations=change.annotations,
        value=change.value,
        active_at=change.active_at,
    )
