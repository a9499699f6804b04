"""What an accepted expression is made of, and the values that flow through it.

The tree of `promql_parser` is copied into these plain nodes once, when a rule is
loaded: it is walked thousands of times, and every attribute of the original is
converted from Rust anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
