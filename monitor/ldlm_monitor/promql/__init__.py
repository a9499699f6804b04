"""PromQL: `parse` accepts or refuses an expression, `Evaluator` evaluates an accepted one.

The semantics are those of Prometheus 3: ranges and the lookback exclude their start. The
library `promql-parser` parses the syntax; the evaluator is our own, since no Python library
evaluates PromQL as Prometheus 3 does.
"""

from ldlm_monitor.promql.analysis import Expression
from ldlm_monitor.promql.evaluate import Evaluator
from ldlm_monitor.promql.nodes import LOOKBACK
from ldlm_monitor.promql.parse import parse

__all__ = ["LOOKBACK", "Evaluator", "Expression", "parse"]
