"""Runs unit tests of rules as `promtool test rules` does, with our evaluator and alert states.

Source of the semantics: Prometheus `cmd/promtool/unittest.go` (2.42). PromQL is that of
Prometheus 3, as everywhere here.
"""

import glob
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ldlm_promrules.alerting import AlertRule, AlertStates, Context, RuleSet, load_rules
from ldlm_promrules.alerting.alert_states import ALERTS_SERIES
from ldlm_promrules.alerting.rule_files import ALERT_NAME
from ldlm_promrules.durations import parse_duration
from ldlm_promrules.errors import RuleError
from ldlm_promrules.golang import go_float, quoted
from ldlm_promrules.promql import Evaluator, Expression, parse
from ldlm_promrules.promql.series_description import HISTOGRAM, STALE, parse_series, parse_values
from ldlm_promrules.samples import Labels, VectorSample
from ldlm_promrules.series.listed_series import ENDED, ListedSeries
from ldlm_promrules.unit_test_files import (
    AlertRuleTest,
    PromqlExprTest,
    RuleTest,
    UnitTestFile,
    load_unit_tests,
)

FOR_STATE_SERIES = "ALERTS_FOR_STATE"  # as in Prometheus: the alert's start in Unix seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a test file: the number of expectations, and a text for each failed one.

    `notices`: mistakes in the file because of which its tests check less than they seem to.
    """

    checked: int
    failures: tuple[str, ...]
    notices: tuple[str, ...]


def run_rule_tests(path: Path) -> Outcome:
    """Run every test of a file. Raises RuleError if the file or its rules cannot be loaded."""
    file = load_unit_tests(path)
    notices: list[str] = []
    rules = _rules(path, file, notices)
    known = {rule.name for rule in rules.alerts}
    for name in dict.fromkeys(t.alertname for test in file.tests for t in test.alert_rule_test):
        if name not in known:
            notices.append(f"{path}: no rule of its rule_files is called {name}")
    interval = parse_duration(file.evaluation_interval) or 60.0  # promtool takes 0 as 1m too
    failures = [
        failure for test in file.tests for failure in _TestRun(rules, test, interval).failures()
    ]
    checked = sum(len(test.alert_rule_test) + len(test.promql_expr_test) for test in file.tests)
    return Outcome(checked, tuple(failures), tuple(notices))


def _rules(path: Path, file: UnitTestFile, notices: list[str]) -> RuleSet[Expression]:
    """The rules, sorted by `group_eval_order`; a group not in it ranks like its first entry."""
    paths: dict[Path, None] = {}
    for pattern in file.rule_files:
        found = sorted(glob.glob(pattern, root_dir=path.parent))
        if not found:
            notices.append(f"{path}: no file matches the rule_files entry {pattern}")
        paths |= dict.fromkeys(path.parent / name for name in found)
    order = {name: index for index, name in enumerate(file.group_eval_order)}
    # `rules check` refuses what Prometheus has to switch on; here only values are asked for.
    rules = load_rules(list(paths), partial(parse, experimental=True)).rules
    return RuleSet(tuple(sorted(rules, key=lambda rule: order.get(rule.group, 0))))


class _TestRun:
    def __init__(self, rules: RuleSet[Expression], test: RuleTest, interval: float) -> None:
        self._rules = rules
        self._test = test
        self._interval = interval
        self._storage = ListedSeries()
        self._evaluator = Evaluator(self._storage, step=interval)
        context = Context(self._ask, test.external_labels, test.external_url)
        self._states = AlertStates(rules, context)

    def _ask(self, text: str, at: float) -> list[VectorSample]:
        return self._evaluator(parse(text), at)

    def failures(self) -> Iterator[str]:
        """A text for each expectation that is not met, alerts in time order first."""
        try:
            self._load()
        except ValueError as problem:
            yield self._named(f"    {problem}")
            return
        test = self._test
        alerts = sorted(test.alert_rule_test, key=lambda case: parse_duration(case.eval_time))
        cases: list[AlertRuleTest | PromqlExprTest] = [*alerts, *test.promql_expr_test]
        last = max((parse_duration(case.eval_time) for case in cases), default=0.0)
        waiting = list(alerts)
        # 1e-9: a quotient rounded to just below a whole number is that number; 3: milliseconds.
        for slot in range(math.floor(last / self._interval + 1e-9) + 1):
            at = round(slot * self._interval, 3)
            errors = self._evaluate(at)
            if errors:
                yield from errors
                return
            until = round(at + self._interval, 3)
            while waiting and parse_duration(waiting[0].eval_time) < until:
                yield from self._compare_alerts(waiting.pop(0))
        for case in test.promql_expr_test:
            yield from self._compare_samples(case)

    def _load(self) -> None:
        step = parse_duration(self._test.interval or "0") or self._interval  # as Go's 0
        for given in self._test.input_series:
            try:
                labels = _labels(given.series)
                samples = [
                    (round(index * step, 3), _sample(value))
                    for index, value in enumerate(parse_values(given.values.strip()))
                    if value is not None
                ]
                self._storage.add(labels, samples)
            except ValueError as problem:
                raise ValueError(f"input_series {given.series}: {problem}") from None

    def _evaluate(self, at: float) -> list[str]:
        self._storage.pass_time(at)
        self._states.evaluate(
            self._evaluator, at, ending=lambda *_: "resolved", record=self._record
        )
        titles = [
            rule.name if isinstance(rule, AlertRule) else rule.record for rule in self._rules.rules
        ]
        return [
            self._named(f"    rule: {titles[index]}, time: {at:g}s, err: {problem}")
            for index, problem in self._states.health.items()
        ]

    def _record(self, name: str, samples: list[VectorSample], at: float) -> None:
        self._storage.record(name, samples, at)
        if name == ALERTS_SERIES:
            starts = []
            for alert in self._states.alerts():
                labels = {**alert.labels, ALERT_NAME: alert.rule.name}
                starts.append(VectorSample(tuple(sorted(labels.items())), alert.active_at))
            self._storage.record(FOR_STATE_SERIES, starts, at)

    def _compare_alerts(self, case: AlertRuleTest) -> Iterator[str]:
        expected = [
            ({**alert.exp_labels, ALERT_NAME: case.alertname}, alert.exp_annotations)
            for alert in case.exp_alerts
        ]
        got = [
            ({**alert.labels, ALERT_NAME: alert.rule.name}, alert.annotations)
            for alert in self._states.alerts()
            if alert.rule.name == case.alertname and alert.state == "firing"
        ]
        shown, actual = (sorted(map(_shown_alert, alerts)) for alerts in (expected, got))
        if shown != actual:
            yield self._named(
                f"    alertname: {case.alertname}, time: {case.eval_time},\n"
                f"        exp:{_numbered(shown)},\n        got:{_numbered(actual)}"
            )

    def _compare_samples(self, case: PromqlExprTest) -> Iterator[str]:
        query = f"    expr: {quoted(case.expr)}, time: {case.eval_time},"
        try:
            expected = [
                (_labels(sample.labels) if sample.labels else (), sample.value)
                for sample in case.exp_samples
            ]
            value = self._evaluator.value(
                parse(case.expr, experimental=True), parse_duration(case.eval_time)
            )
        except (RuleError, ValueError) as problem:
            yield self._named(f"{query} err: {problem}")
            return
        got = [((), value)] if isinstance(value, float) else value
        if sorted(expected, key=_sorting) == sorted(got, key=_sorting) and not _has_nan(got):
            return
        hint = "\n        (NaN equals nothing: test expr != expr)" if _has_nan(got) else ""
        yield self._named(
            f"{query}\n        exp: {_shown_samples(expected)}\n"
            f"        got: {_shown_samples(got)}{hint}"
        )

    def _named(self, text: str) -> str:
        return f"    name: {self._test.name},\n{text}" if self._test.name else text


def _labels(text: str) -> Labels:
    labels, rest = parse_series(text)
    if rest:
        raise ValueError(f"{text!r} is no series: {rest!r} after it is not allowed")
    return labels


def _sample(value: object) -> float | None:
    if value is HISTOGRAM:
        raise ValueError("native histograms are not supported")
    if value is STALE:
        return ENDED
    assert isinstance(value, float)
    return value


def _has_nan(samples: Sequence[tuple[Labels, float]]) -> bool:
    return any(math.isnan(value) for _, value in samples)


def _sorting(sample: tuple[Labels, float]) -> tuple[Labels, str]:
    return sample[0], repr(sample[1])


def _braces(labels: Mapping[str, str]) -> str:
    inner = ", ".join(f"{name}={quoted(value)}" for name, value in sorted(labels.items()))
    return f"{{{inner}}}"


def _shown_alert(alert: tuple[Mapping[str, str], Mapping[str, str]]) -> str:
    labels, annotations = alert
    return f"Labels:{_braces(labels)}\n              Annotations:{_braces(annotations)}"


def _numbered(alerts: Sequence[str]) -> str:
    if not alerts:
        return "[]"
    shown = (f"\n            {index}:\n              {alert}" for index, alert in enumerate(alerts))
    return f"[{','.join(shown)}\n            ]"


def _shown_samples(samples: Sequence[tuple[Labels, float]]) -> str:
    shown = (
        f"{_braces(dict(labels))} {go_float(value)}"
        for labels, value in sorted(samples, key=_sorting)
    )
    return ", ".join(shown) or "nil"
