"""What Prometheus says beside an answer: that an expression hardly means what it asks.

The texts and places are those of Prometheus 3 (`util/annotations/annotations.go`). Only what an
expression alone shows is found, whatever the data; Prometheus asks for data that it concerns.
"""

import re
from collections.abc import Iterator

from ldlm_monitor.promql.analysis import Expression
from ldlm_monitor.promql.nodes import (
    NAME,
    Aggregation,
    Call,
    Negation,
    Node,
    Number,
    Range,
    Selector,
    Subquery,
    children,
    walk,
)
from ldlm_monitor.promql.parse import blanked

INFO, WARNING = "PromQL info: ", "PromQL warning: "  # how an annotation begins
_RATES = frozenset({"rate", "increase"})
_QUANTILES = frozenset({"quantile", "quantile_over_time", "histogram_quantile"})
_COUNTERS = ("_total", "_sum", "_count", "_bucket")
_NAMED = re.compile(
    rf"(?<![\w:.])({'|'.join(sorted(_RATES | _QUANTILES, key=len, reverse=True))})"
    r"\s*(?:(?:by|without)\s*\([^)]*\)\s*)?\(\s*",
    re.IGNORECASE,
)


def notes_on(expression: Expression) -> list[str]:
    """Each annotation, with the line and column of the operand that it is about."""
    text = expression.text
    # A call's name stands before those of its operands, as a node before its operands.
    places = (found.end() for found in _NAMED.finditer(blanked(text)))
    found = dict.fromkeys(
        f"{what} ({_place(text, place)})"
        for node, place in zip(_asked(expression.root), places, strict=False)
        for what in _of(node)
    )
    return list(found)


def _asked(root: Node) -> Iterator[Call | Aggregation]:
    for node in walk(root):
        named = node.function if isinstance(node, Call) else getattr(node, "operator", "")
        if isinstance(node, Call | Aggregation) and named in _RATES | _QUANTILES:
            yield node


def _of(node: Call | Aggregation) -> Iterator[str]:
    if isinstance(node, Call) and node.function in _RATES:
        selector = node.arguments[0]
        if isinstance(selector, Range | Subquery):
            (selector,) = children(selector)
        for matcher in selector.matchers if isinstance(selector, Selector) else ():
            if (matcher.name, matcher.op) == (NAME, "=") and not matcher.value.endswith(_COUNTERS):
                yield (
                    f"{INFO}metric might not be a counter, name does not end in "
                    f'_total/_sum/_count/_bucket: "{matcher.value}"'
                )
        return
    share = _constant(node.arguments[0] if isinstance(node, Call) else node.parameter)
    if share is not None and not 0 <= share <= 1:
        yield f"{WARNING}quantile value should be between 0 and 1, got {share:g}"


def _constant(node: Node | None) -> float | None:
    if isinstance(node, Negation):
        value = _constant(node.operand)
        return None if value is None else -value
    return node.value if isinstance(node, Number) else None


def _place(text: str, index: int) -> str:
    before = text[:index]
    return f"{before.count(chr(10)) + 1}:{len(before.rpartition(chr(10))[2]) + 1}"
