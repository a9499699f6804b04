"""The nodes of an accepted expression, its values, and the labels of their elements.

The tree of `promql_parser` is copied into these nodes once, when a rule is loaded: it is
walked thousands of times, and each access to the original converts from Rust.

Prometheus drops the name of a metric when an operation changes what its value means. With the
feature flag `promql-delayed-name-removal`, under which its own test scripts run, the element
is only marked, and the name is dropped at the end of the query. The mark is a label with an
empty name: it sorts first, and no selector can match it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from ldlm_monitor.model.points import Labels, Matcher

LOOKBACK = 300.0
"""How far an instant selector looks back, in seconds (Prometheus' default)."""

Vector: TypeAlias = list[tuple[Labels, float]]
"""An instant vector; here the labels include `__name__` until an operation drops it."""


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """The samples of one series in `(start, end]`; never empty."""

    labels: Labels
    times: Sequence[float]
    values: Sequence[float]
    start: float
    end: float


Value: TypeAlias = float | str | Vector
"""The value of a node that is no range: a scalar, a string or an instant vector."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number literal."""

    value: float


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Shift:
    """The time that a selector reads: `offset` seconds before `anchor`.

    The anchor is the evaluation time (None), a fixed time, or either end of the query.
    """

    offset: float = 0.0
    anchor: float | Literal["start", "end"] | None = None


@dataclass(frozen=True, slots=True)
class Selector:
    """An instant vector selector."""

    matchers: tuple[Matcher, ...]
    shift: Shift


@dataclass(frozen=True, slots=True)
class Range:
    """A range vector selector over the last `seconds`."""

    selector: Selector
    seconds: float


@dataclass(frozen=True, slots=True)
class Subquery:
    """`operand` evaluated every `step` seconds (None: the evaluator's step) over `seconds`."""

    operand: "Node"
    seconds: float
    step: float | None
    shift: Shift


@dataclass(frozen=True, slots=True)
class Negation:
    """Unary minus."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Matching:
    """How the elements of two vectors are matched.

    With `on` only `labels` are compared, otherwise all others. `many` names the side that may
    have several elements of a group; `include` are labels copied from the other side.
    """

    on: bool = False
    labels: tuple[str, ...] = ()
    many: Literal["left", "right"] | None = None
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary operation; `as_bool` makes a comparison yield 0 or 1 instead of filtering."""

    operator: str
    left: "Node"
    right: "Node"
    as_bool: bool
    matching: Matching


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregation over groups that share `labels`, or with `without` all other labels."""

    operator: str
    operand: "Node"
    parameter: "Node | None"
    without: bool
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function call."""

    function: str
    arguments: tuple["Node", ...]


Node: TypeAlias = (
    Number | Text | Selector | Range | Subquery | Negation | Binary | Aggregation | Call
)


NAME = "__name__"  # Prometheus' label with the name of the metric
MARK = ("", "")
"""The label that marks an element whose name is dropped at the end of the query."""
Rename: TypeAlias = Callable[[Labels], Labels]  # such as `without_name`
_METADATA = frozenset({"", NAME, "__type__", "__unit__"})
"""Labels that describe the metric, and are dropped with its name."""


def without_name(labels: Labels) -> Labels:
    """The labels except `__name__`, `__type__` and `__unit__`."""
    if labels and labels[0][0] == NAME and (len(labels) == 1 or labels[1][0][0] != "_"):
        return labels[1:]
    return tuple(pair for pair in labels if pair[0] not in _METADATA)


def name_later(labels: Labels) -> Labels:
    """The labels with the mark that the name is dropped at the end of the query."""
    return labels if labels and labels[0] == MARK else (MARK, *labels)


def unmarked(labels: Labels) -> Labels:
    """The labels without the mark."""
    return labels[1:] if labels and labels[0] == MARK else labels


def settled(labels: Labels) -> Labels:
    """The labels of a query's result: without the name if they are marked."""
    return without_name(labels) if labels and labels[0] == MARK else labels


@lru_cache(maxsize=1024)  # a choice: above the different matchings of a set of rules
def signature_of(on: bool, names: tuple[str, ...]) -> Rename:
    """A function from an element's labels to those of its group."""
    wanted = frozenset(names)
    if on:
        return lambda labels: tuple(pair for pair in labels if pair[0] in wanted)
    ignored = wanted | {"", NAME}

    def others(labels: Labels) -> Labels:
        if not wanted and labels and labels[0][0] == NAME:
            return labels[1:]
        return tuple(pair for pair in labels if pair[0] not in ignored)

    return others


def with_label(labels: Labels, name: str, value: str) -> Labels:
    """The labels with `name` set to `value`, or removed if `value` is empty.

    A metric name set here stays at the end of the query.
    """
    present = dict(unmarked(labels) if name == NAME else labels)
    present.pop(name, None)
    if value:
        present[name] = value
    return tuple(sorted(present.items()))


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def depth(node: Node) -> int:
    """The number of levels of nodes from this one down."""
    return 1 + max((depth(child) for child in children(node)), default=0)


def children(node: Node) -> tuple[Node, ...]:
    """The direct operands of a node."""
    match node:
        case Range(selector=selector):
            return (selector,)
        case Subquery(operand=operand) | Negation(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Aggregation(operand=operand, parameter=parameter):
            return (operand,) if parameter is None else (parameter, operand)
        case Call(arguments=arguments):
            return arguments
    return ()


def is_scalar(node: Node) -> bool:
    """Whether a node's values are numbers rather than vectors (PromQL knows by the form)."""
    match node:
        case Binary(left=left, right=right):
            return is_scalar(left) and is_scalar(right)
        case Negation(operand=operand):
            return is_scalar(operand)
        case Call(function=function):
            return function in ("time", "pi", "scalar")
    return isinstance(node, Number)


def never_fails(node: Node) -> bool:
    """Whether no data make the node raise: its series stay apart, and none need a partner."""
    match node:
        case Selector(matchers=matchers):
            return any(each.name == NAME and each.op == "=" for each in matchers)
        case Aggregation(operand=operand, parameter=None):
            return never_fails(operand)
        case Binary(operator="and" | "or" | "unless", left=left, right=right):
            return never_fails(left) and never_fails(right)
        case Binary(left=left, right=Number()):
            # Arithmetic drops names, by which alone series of an `or` may differ.
            return isinstance(left, Selector | Aggregation) and never_fails(left)
    return isinstance(node, Number)
