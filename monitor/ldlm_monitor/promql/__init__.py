"""PromQL: expressions are accepted or refused by name (`parse`), then evaluated (`evaluate`).

The meaning is that of Prometheus 3: ranges and the lookback are open on the left.
"""

from ldlm_monitor.promql.analysis import (
    Expression,
    asks,
    counts_samples,
    max_range,
    metric_names,
    names_its_metrics,
    settles_after,
    speaks_of,
    switches,
    uses_time,
)
from ldlm_monitor.promql.evaluate import Evaluator
from ldlm_monitor.promql.nodes import LOOKBACK
from ldlm_monitor.promql.parse import parse

__all__ = [
    "LOOKBACK",
    "Evaluator",
    "Expression",
    "asks",
    "counts_samples",
    "max_range",
    "metric_names",
    "names_its_metrics",
    "parse",
    "settles_after",
    "speaks_of",
    "switches",
    "uses_time",
]
