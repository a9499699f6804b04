"""What a template of Go's `text/template` consists of, once parsed."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Word: TypeAlias = Literal["if", "with", "range"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A text, an int (also of a character), a float, a bool, or nil."""

    value: str | float | None


@dataclass(frozen=True, slots=True)
class Function:
    """A function's name."""

    name: str


@dataclass(frozen=True, slots=True)
class Read:
    """Fields of `.`, of a variable (`$`, `$x`), or of what a pipeline or function returns."""

    of: "str | Function | Pipe"
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipe:
    """Commands, each of which gets the result of the one before; `names` get the last result."""

    names: tuple[str, ...]
    assigns: bool
    commands: tuple[tuple["Operand", ...], ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """What `if`, `with` or `range` encloses, and what follows its `else`."""

    word: Word
    pipe: Pipe
    then: "Nodes"
    otherwise: "Nodes"


@dataclass(frozen=True, slots=True)
class Include:
    """`{{ template "name" pipeline }}`."""

    name: str
    pipe: Pipe | None


@dataclass(frozen=True, slots=True)
class Leave:
    """`break` or `continue`."""

    word: str


Operand: TypeAlias = Constant | Function | Read | Pipe
Node: TypeAlias = str | Pipe | Branch | Include | Leave
Nodes: TypeAlias = tuple[Node, ...]
