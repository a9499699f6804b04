"""PromQL: expressions are accepted or refused by name (`parse`), then evaluated (`evaluate`).

The semantics are those of Prometheus 3: ranges and the lookback are open on the left. The
syntax is read by `promql-parser`; the evaluator is our own, since no Python library evaluates
PromQL without a Prometheus server.
"""

from ldlm_monitor.promql.analysis import (
    Expression,
    counts_samples,
    max_range,
    metric_names,
    names_its_metrics,
    reads_series,
    result_selectors,
    settles_after,
    uses_time,
)
from ldlm_monitor.promql.evaluate import Evaluator
from ldlm_monitor.promql.nodes import LOOKBACK
from ldlm_monitor.promql.parse import parse

__all__ = [
    "LOOKBACK",
    "Evaluator",
    "Expression",
    "counts_samples",
    "max_range",
    "metric_names",
    "names_its_metrics",
    "parse",
    "reads_series",
    "result_selectors",
    "settles_after",
    "uses_time",
]
