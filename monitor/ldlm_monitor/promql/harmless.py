"""Which nodes can be left out where their value cannot matter: those that never fail."""

from ldlm_monitor.promql.aggregation import REDUCTIONS
from ldlm_monitor.promql.expression import children, names_one_metric
from ldlm_monitor.promql.functions import ELEMENTWISE
from ldlm_monitor.promql.matching import SET_OPERATORS
from ldlm_monitor.promql.nodes import (
    Aggregation,
    Binary,
    Call,
    Matching,
    Negation,
    Node,
    Number,
    Range,
    Selector,
)
from ldlm_monitor.promql.ranges import OVER_RANGE

NEVER_FAIL = {*ELEMENTWISE, *OVER_RANGE} - {"double_exponential_smoothing"}


def never_fails(node: Node) -> bool:
    """Whether no data can make its evaluation raise, nor let samples differ by name alone.

    What is not known to be fine is taken to fail: a match on some labels that several samples
    share, the same labels under two names.
    """
    match node:
        case Number() | Call(function="time" | "pi", arguments=()):
            known = True
        case Selector() | Range(selector=Selector()):
            known = names_one_metric(node if isinstance(node, Selector) else node.selector)
        case Negation():
            known = True
        case Aggregation(operator=operator, parameter=parameter):
            known = operator in REDUCTIONS and parameter is None
        case Call(function=function):
            known = function in NEVER_FAIL
        case Binary(operator=operator, matching=matching):
            # Where all labels but the name must agree, a sample has one partner at most.
            known = operator in SET_OPERATORS or matching == Matching()
        case _:
            known = False
    return known and all(map(never_fails, children(node)))
