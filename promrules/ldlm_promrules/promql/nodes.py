"""The nodes of an accepted expression, the types of its values, and operations on labels.

The tree of `promql_parser` is copied into these nodes once, when a rule is loaded: each access
to the parser's tree converts from Rust.

Prometheus drops the name of a metric when an operation changes the meaning of its value. Under
its feature flag `promql-delayed-name-removal`, which Prometheus' test scripts set, an element is
only marked, and its name is dropped at the end of the query. The mark is a label with an empty
name: it sorts first, and no selector can match it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from ldlm_promrules.samples import Column, Labels, Matcher

LOOKBACK = 300.0  # seconds for which an instant selector finds a sample: Prometheus' default

Vector: TypeAlias = list[tuple[Labels, Column]]
"""An instant vector at each time of a query, as columns, each with a sample at some time. Labels
include `__name__` until an operation drops it. Columns with equal labels have no common time.
"""


@dataclass(slots=True)
class RangeWindow:
    """The samples from index `first` to before `stop` of one series, at least one.

    They lie in `(start, end]`; times are Unix seconds. `falls`: whether a value may be below the
    one before it.
    """

    all_times: Sequence[float]
    all_values: Sequence[float]
    first: int
    stop: int
    start: float
    end: float
    falls: bool

    @property
    def times(self) -> Sequence[float]:
        """The times of the samples."""
        return self.all_times[self.first : self.stop]

    @property
    def values(self) -> Sequence[float]:
        """The values of the samples."""
        return self.all_values[self.first : self.stop]


Value: TypeAlias = Sequence[float] | str | Vector
"""The value of a node that is no range: a scalar at each time, a string or a vector."""


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
    """The time that a selector reads: `offset` seconds before `anchor`, or after it if below 0.

    `anchor`: Unix seconds, the query's `start` or `end`, or None for the evaluation time.
    """

    offset: float = 0.0
    anchor: float | Literal["start", "end"] | None = None


@dataclass(frozen=True, slots=True)
class Selector:
    """An instant vector selector."""

    matchers: tuple[Matcher, ...]
    shift: Shift

    @property
    def metric(self) -> str:
        """The one metric whose series are selected, or "" if no `=` names it."""
        named = (each.value for each in self.matchers if each.name == NAME and each.op == "=")
        return next(named, "")


@dataclass(frozen=True, slots=True)
class Range:
    """A range vector selector over the last `seconds`."""

    selector: Selector
    seconds: float


@dataclass(frozen=True, slots=True)
class Subquery:
    """`operand` every `step` seconds (None: the evaluator's step) over the last `seconds`."""

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

    `on`: `labels` alone are compared; otherwise all labels but these. `many`: the side of which
    several elements may match one (None: neither). `include`: labels copied from the other side.
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
    """An aggregation over groups with equal `labels`; if `without`, with all other labels equal."""

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


NAME = "__name__"  # the label in which Prometheus keeps the name of the metric
MARK = ("", "")  # the label of elements whose name is dropped at the end of the query
Rename: TypeAlias = Callable[[Labels], Labels]  # returns changed labels, as `without_name`
# Dropped with the name, as in Prometheus 3: the mark and the labels that describe the metric.
_METADATA = frozenset({"", NAME, "__type__", "__unit__"})


def without_name(labels: Labels) -> Labels:
    """The labels except the mark, `__name__`, `__type__` and `__unit__`."""
    if labels and labels[0][0] == NAME and (len(labels) == 1 or labels[1][0][0] != "_"):
        return labels[1:]
    return tuple(pair for pair in labels if pair[0] not in _METADATA)


def name_later(labels: Labels) -> Labels:
    """The labels with `MARK`, so that the name is dropped at the end of the query."""
    return labels if labels and labels[0] == MARK else (MARK, *labels)


def unmarked(labels: Labels) -> Labels:
    """The labels without `MARK`."""
    return labels[1:] if labels and labels[0] == MARK else labels


def settled(labels: Labels) -> Labels:
    """The labels of a query's result: without the name if they are marked."""
    return without_name(labels) if labels and labels[0] == MARK else labels


@lru_cache(maxsize=1024)  # entries. A choice: memory, or building the function of a matching again
def signature_of(on: bool, names: tuple[str, ...]) -> Rename:
    """A function from labels to the group's: `names` if `on`, else all but these and `NAME`."""
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
    """The number of levels of nodes, including this node's."""
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
    """Whether the node yields a scalar, not a vector: this never depends on the data."""
    match node:
        case Binary(left=left, right=right):
            return is_scalar(left) and is_scalar(right)
        case Negation(operand=operand):
            return is_scalar(operand)
        case Call(function=function):
            return function in ("time", "pi", "scalar")
    return isinstance(node, Number)
