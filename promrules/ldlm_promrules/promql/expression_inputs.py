"""What the result of an expression depends on of the samples that it reads.

Most changes of a value change no result: `loss_spike_ratio > 2` is the same for 0.7 and for 0.8.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ldlm_promrules.promql.expression import Expression, age_limit, selectors, settles_after
from ldlm_promrules.promql.floats import ARITHMETIC, COMPARISON
from ldlm_promrules.promql.functions import ELEMENTWISE
from ldlm_promrules.promql.nodes import (
    NAME,
    Aggregation,
    Binary,
    Call,
    Matching,
    Negation,
    Node,
    Number,
    Range,
    Selector,
    Subquery,
    children,
)

Seen: TypeAlias = Callable[[float], Any]
"""What a result depends on of a sample's value; None where it is as if there were no sample."""


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """A selector of an expression, and what of its samples the expression's result depends on.

    Where `sees` has equal results for two values of a sample, so has the expression; None stands
    for no sample, too. `shows` is the same of the elements of the result, whatever their values. A
    change acts once, `offset` seconds later; where that is None, it acts for `reach` seconds, those
    of a range, an `@` or a subquery. `of_changes`: a series that has not changed is as none.
    """

    selector: Selector
    sees: Seen
    shows: Seen
    offset: float | None
    reach: float
    of_changes: bool = False


_OF_CHANGES = frozenset({"rate", "increase", "delta", "irate", "idelta", "changes", "resets"})
"""Functions of a range that are 0 where all its samples are equal, or NaN."""


def inputs(root: Node, past_times: Collection[str] = ()) -> Iterator[Input]:
    """The inputs of an expression, one for each of its selectors; `past_times`: see `age_limit`."""
    shown = _inputs(root, _presence, past_times)
    for each, other in zip(_inputs(root, _whole, past_times), shown, strict=True):
        yield replace(each, shows=other.sees)


def _inputs(node: Node, sees: Seen, past_times: Collection[str]) -> Iterator[Input]:
    match node:
        case Selector(shift=shift):
            moves = shift.anchor is not None or shift.offset < 0
            offset = None if moves else shift.offset
            yield Input(node, sees, sees, offset, _settles_after(node, past_times))
        case Range() | Subquery() | Binary() | Call() if _lasts(node, past_times):
            of_changes = isinstance(node, Call) and sees(0.0) is None and sees(math.nan) is None
            settles = _settles_after(node, past_times)
            for selector in selectors(Expression("", node)):
                yield Input(selector, _whole, _whole, None, settles, of_changes)
        case Binary("and" | "unless", left, right):
            yield from _inputs(left, sees, past_times)
            yield from _inputs(right, _presence, past_times)
        case Binary("or", left, right):
            # What an outer filter drops of the left side still replaces what the right one has.
            yield from _inputs(left, lambda value: (sees(value),), past_times)
            yield from _inputs(right, sees, past_times)
        case Binary("!=", Selector() as left, right, False, matching) if (
            left == right and matching == Matching()
        ):
            for each in (left, right):
                yield from _inputs(
                    each, lambda value: sees(value) if math.isnan(value) else None, past_times
                )
        case Aggregation("count" | "group", operand):
            yield from _inputs(operand, _presence, past_times)
        case _:
            of_operand = _through(node, sees)
            for child in children(node):
                if not isinstance(child, Number):
                    yield from _inputs(child, of_operand or _whole, past_times)


def _lasts(node: Node, past_times: Collection[str]) -> bool:
    """Whether a change acts for some time: in a range, or until the limit of an age."""
    match node:
        case Call(function, arguments):
            return function in _OF_CHANGES and isinstance(arguments[0], Range)
        case Binary():
            return age_limit(node, past_times) is not None
    return True


def _settles_after(node: Node, past_times: Collection[str]) -> float:
    return settles_after(Expression("", node), past_times)


def _through(node: Node, sees: Seen) -> Seen | None:
    """What is seen of the values of the one operand of a node that computes each for itself."""
    match node:
        case Binary(operator, operand, Number(number), as_bool) if not isinstance(operand, Number):
            return _of_pair(operator, operand, sees, as_bool, lambda value: (value, number))
        case Binary(operator, Number(number), operand, as_bool):
            return _of_pair(operator, operand, sees, as_bool, lambda value: (number, value))
        case Negation(operand) if _is_renamed_safely(operand):
            return lambda value: sees(-value)
        case Call(function, (operand, *others)) if function in ELEMENTWISE and _is_renamed_safely(
            operand
        ):
            given = [each.value for each in others if isinstance(each, Number)]
            compute = ELEMENTWISE[function]
            return None if len(given) < len(others) else lambda x: sees(compute(x, *given))
    return None


def _of_pair(
    operator: str,
    operand: Node,
    sees: Seen,
    as_bool: bool,
    pair: Callable[[float], tuple[float, float]],
) -> Seen | None:
    if operator in COMPARISON and not as_bool:
        holds = COMPARISON[operator]
        return lambda value: sees(value) if holds(*pair(value)) else None
    if not _is_renamed_safely(operand):
        return None
    compute = COMPARISON[operator] if as_bool else ARITHMETIC[operator]
    return lambda value: sees(float(compute(*pair(value))))


def _is_renamed_safely(node: Node) -> bool:
    """Whether to drop the metric's name makes no two series equal, whichever of them there are."""
    match node:
        case Selector():
            return bool(node.metric)
        case Binary(left=left, right=Number()):
            return _is_renamed_safely(left)
        case Binary(left=Number(), right=right):
            return _is_renamed_safely(right)
        case Negation(operand):
            return _is_renamed_safely(operand)
        case Call(function, (operand, *_)):
            return function in ELEMENTWISE and _is_renamed_safely(operand)
    return isinstance(node, Aggregation) and NAME not in node.labels


def _whole(value: float) -> float:
    return value


def _presence(_: float) -> bool:
    return True
