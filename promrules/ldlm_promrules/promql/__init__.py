"""PromQL: `parse` accepts or refuses an expression, `Evaluator` evaluates an accepted one.

The semantics are those of Prometheus 3: ranges and the lookback exclude their start. The
library `promql-parser` parses the syntax; the evaluator is our own, since no Python library
evaluates PromQL as Prometheus 3 does.
"""

from ldlm_promrules.promql.evaluator import Evaluator
from ldlm_promrules.promql.expression import Expression
from ldlm_promrules.promql.expression_parser import parse
from ldlm_promrules.promql.nodes import LOOKBACK

__all__ = ["LOOKBACK", "Evaluator", "Expression", "parse"]
