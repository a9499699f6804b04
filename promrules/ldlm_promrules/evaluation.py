"""Evaluates rules over samples at given times, as a Prometheus would have done at these times."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from ldlm_promrules.alert_change import AlertChange
from ldlm_promrules.alerting import AlertStates, Context, RuleSet
from ldlm_promrules.promql import Evaluator, Expression, parse
from ldlm_promrules.samples import VectorSample
from ldlm_promrules.series.listed_series import ListedSeries
from ldlm_promrules.templates.template_expansion import NO_CONTEXT


def evaluate(
    rules: RuleSet[Expression],
    series: ListedSeries,
    times: Iterable[float],
    context: Context = NO_CONTEXT,
) -> Iterator[AlertChange]:
    """Evaluate all rules at each of `times` (Unix seconds, rising); yield the changes of alerts.

    Results of recording rules, and `ALERTS`, are added to `series`, so its samples of a time must
    not be evaluated twice. `context`: what templates read beside the alert; their `query` asks
    `series`. Raises RuleError if a rule fails on the samples.
    """
    evaluator = Evaluator(series)
    states = AlertStates(rules, replace(context, query=partial(_ask, evaluator)))
    try:
        for at in times:
            series.pass_time(at)
            yield from states.evaluate(
                evaluator, at, ending=lambda *_: "resolved", record=series.record
            )
            for problem in states.health.values():
                raise problem
    finally:
        series.pass_time(math.inf)


def _ask(evaluator: Evaluator, text: str, at: float) -> list[VectorSample]:
    return evaluator(parse(text), at)
