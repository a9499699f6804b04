"""What the passing of time alone can do to an answer."""

from ldlm_monitor.promql.expression import Expression, children, is_of_time
from ldlm_monitor.promql.floats import COMPARISON
from ldlm_monitor.promql.matching import SET_OPERATORS
from ldlm_monitor.promql.nodes import Aggregation, Binary, Call, Node


def switches(expr: Expression) -> tuple[Expression, ...] | None:
    """The comparisons by which alone time can change which samples there are.

    Each compares what rises (or falls) with the time to what does not move, such as
    `time() - x > 60`; so while nothing else changes, a sample comes or goes but once.
    None: time may change them in other ways too.
    """
    found = _switches(expr.root)
    return None if found is None else tuple(Expression("", node) for node in found)


def _switches(node: Node) -> tuple[Node, ...] | None:
    if not is_of_time(node):
        return ()
    below = [_switches(child) for child in children(node)]
    match node:
        case Binary(operator=operator, as_bool=False) if operator in COMPARISON:
            return (node,) if _drift(node) is not None and operator not in ("==", "!=") else None
        case Binary(operator=operator) if operator in SET_OPERATORS:
            pass
        case Aggregation(operator="max" | "min" | "sum" | "count" | "group", parameter=None):
            pass
        case _:
            return None
    return None if None in below else tuple(each for some in below if some for each in some)


def _drift(node: Node) -> int | None:
    """Which way time alone moves the node's values: up (1), down (-1), not (0); None: unknown.

    Of a comparison: the difference of its sides.
    """
    if not is_of_time(node):
        return 0
    match node:
        case Call(function="time"):
            return 1
        case Binary(operator="+", left=left, right=right):
            moves = {_drift(left), _drift(right)}
        case Binary(operator=operator, left=left, right=right) if (
            operator == "-" or operator in COMPARISON
        ):
            moves = {_drift(left), _opposite(_drift(right))}
        case _:
            return None
    moves.discard(0)
    return moves.pop() if len(moves) == 1 else None


def _opposite(drift: int | None) -> int | None:
    return None if drift is None else -drift
