"""What an accepted expression is made of, and the values that flow through it.

The tree of `promql_parser` is copied into these plain nodes once, when a rule is
loaded: it is walked thousands of times, and every attribute of the original is
converted from Rust anew.
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
class Window:
    """The samples of one series in `(start, end]`; never empty."""

    labels: Labels
    times: Sequence[float]
    values: Sequence[float]
    start: float
    end: float


Value: TypeAlias = float | str | Vector


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A number literal; 0 and -0 are two."""

    value: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Shift:
    """Where a selector stands in time: `offset` seconds before `anchor`.

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
    """How the elements of two vectors find each other.

    `on` says whether `labels` are those compared or those ignored; `many` names
    the side that may hold several elements of a group; `include` are labels
    copied from the other side.
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
    """An aggregation over groups that share `labels` (or all labels but these: `without`)."""

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


NAME = "__name__"
MARK = ("", "")

Rename: TypeAlias = Callable[[Labels], Labels]

_METADATA = frozenset({"", NAME, "__type__", "__unit__"})
"""What describes a metric rather than the thing measured, and goes with the name."""


def without_name(labels: Labels) -> Labels:
    """The labels except `__name__` and what goes with it."""
    if labels and labels[0][0] == NAME and (len(labels) == 1 or labels[1][0][0] != "_"):
        return labels[1:]
    return tuple(pair for pair in labels if pair[0] not in _METADATA)


def name_later(labels: Labels) -> Labels:
    """The labels with the mark that says that the name goes at the end of the query."""
    return labels if labels and labels[0] == MARK else (MARK, *labels)


def unmarked(labels: Labels) -> Labels:
    """The labels as they are, mark aside."""
    return labels[1:] if labels and labels[0] == MARK else labels


def settled(labels: Labels) -> Labels:
    """The labels as the query gives them: without the name where the mark says so."""
    return without_name(labels) if labels and labels[0] == MARK else labels


@lru_cache(maxsize=1024)
def signature_of(on: bool, names: tuple[str, ...]) -> Rename:
    """What of an element's labels decides which group it belongs to."""
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
    """The labels with one of them set; an empty value takes it away.

    A name that is set anew stays.
    """
    present = dict(unmarked(labels) if name == NAME else labels)
    present.pop(name, None)
    if value:
        present[name] = value
    return tuple(sorted(present.items()))


def names_one_metric(selector: Selector) -> bool:
    """Whether it asks for one metric by name."""
    return any(matcher.name == NAME and matcher.op == "=" for matcher in selector.matchers)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def depth(node: Node) -> int:
    """How many levels of nodes there are from this one down."""
    return 1 + max((depth(child) for child in children(node)), default=0)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that it is made of."""
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
