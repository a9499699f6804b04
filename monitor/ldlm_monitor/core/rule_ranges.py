"""Whether a rule's expression can have a value at all, by the range of each of its parts.

Only what is certain counts: the range of a metric that this monitor computes itself, and
comparisons of one and the same vector with numbers. Whatever is not understood has every value.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from ldlm_monitor.promql.floats import COMPARISON
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


class Interval(NamedTuple):
    """Values from `low` to `high`, both included; none if `low` is above `high`."""

    low: float = -math.inf
    high: float = math.inf

    def within(self, other: "Interval") -> "Interval":
        """The values of both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))

    @property
    def is_empty(self) -> bool:
        """Whether there is no value."""
        return self.low > self.high


_ANY, _NOTHING = Interval(), Interval(math.inf, -math.inf)
_SHARE, _FLAG = Interval(0, 1), Interval(0, 1)
_KNOWN = {  # those that the monitor computes: what a trainer logs may be anything
    "ldlm_train_progress_ratio": _SHARE,
    "ldlm_goodput_ratio": _SHARE,
    "ldlm_goodput_ettr_ratio": _SHARE,
    "ldlm_run_state": _FLAG,
    "ldlm_gpu_throttled": _FLAG,
    "ldlm_run_health": Interval(0, 3),
    "ldlm_run_info": Interval(1, 1),
    "ldlm_build_info": Interval(1, 1),
    "ldlm_alerts": Interval(1, 1),
}
_KEEPING = frozenset({"min", "max", "avg", "topk", "bottomk"})
"""Aggregations whose results lie between the least and the greatest of their operands."""
_KEEPING_CALLS = frozenset({f"{each}_over_time" for each in ("min", "max", "avg", "last")})
_ALLOWED: dict[str, Callable[[float], Interval]] = {  # what a comparison with a number lets through
    ">": lambda number: Interval(low=math.nextafter(number, math.inf)),
    ">=": lambda number: Interval(low=number),
    "<": lambda number: Interval(high=math.nextafter(number, -math.inf)),
    "<=": lambda number: Interval(high=number),
    "==": lambda number: Interval(number, number),
}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "=="}


def interval(node: Node) -> Interval:
    """The values that a part of an expression may have; an empty one never has any."""
    if isinstance(node, Selector):
        return _KNOWN.get(node.metric, _ANY)
    if isinstance(node, Range):
        return interval(node.selector)
    if isinstance(node, Aggregation):
        inner = interval(node.operand)
        return inner if inner.is_empty or node.operator in _KEEPING else _ANY
    if isinstance(node, Call):
        kept = node.function in _KEEPING_CALLS
        return interval(node.arguments[0]) if kept else _ANY
    return _of_binary(node) if isinstance(node, Binary) else _ANY


def _of_binary(node: Binary) -> Interval:
    left, right = interval(node.left), interval(node.right)
    if node.operator == "or":
        return _NOTHING if left.is_empty and right.is_empty else _ANY
    if node.operator == "unless" or left.is_empty:
        return left
    if right.is_empty:
        return right
    if node.operator == "and":
        # The same series on both sides has one value, if it is matched with itself alone.
        same = node.matching == Matching() and _core(node.left) == _core(node.right)
        return left.within(right) if same else left
    return _compared(node, left, right) if node.operator in COMPARISON else _ANY


def _compared(node: Binary, left: Interval, right: Interval) -> Interval:
    if node.as_bool:
        return _FLAG
    for operator, inner, number in (
        (node.operator, left, _number(node.right)),
        (_MIRRORED.get(node.operator, ""), right, _number(node.left)),
    ):
        if number is not None and operator in _ALLOWED and not math.isnan(number):
            return inner.within(_ALLOWED[operator](number))
    return _ANY


def _number(node: Node) -> float | None:
    if isinstance(node, Negation):
        value = _number(node.operand)
        return None if value is None else -value
    return node.value if isinstance(node, Number) else None


def _core(node: Node) -> Node:
    """The vector that comparisons with numbers filter."""
    while isinstance(node, Binary) and node.operator in COMPARISON and not node.as_bool:
        if _number(node.right) is not None:
            node = node.left
        elif _number(node.left) is not None:
            node = node.right
        else:
            break
    return node
