"""A shell script as the doctor sees it: assignments and commands, in order, with their scopes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from ldlm_doctor.bash_values import UNKNOWN, Value
from ldlm_doctor.model import Edit, Finding
from ldlm_doctor.setting import Setting

Scope = tuple[int, ...]
"""The conditional parts, loops, functions and subshells around a statement, from outside in."""


_LETTERS = {"e": "errexit", "a": "allexport", "x": "xtrace", "u": "nounset"}


@dataclass(frozen=True, slots=True)
class Assignment:
    """NAME=value. `exported` by its own statement, `local` to a function.

    `command` is what it is a prefix of (None: it stands for itself).
    """

    name: str
    value: Value
    node: Node
    scope: Scope
    exported: bool = False
    local: bool = False
    command: Node | None = None


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """A variable that is unset, or a file whose variables are taken over, at a byte."""

    name: str
    at: int
    scope: Scope


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its words; `options` are the shell's (pipefail, errexit, ...) there."""

    words: tuple[Value, ...]
    node: Node
    scope: Scope
    options: frozenset[str]

    @property
    def start(self) -> int:
        """The byte where its name starts, after variables that are set for it alone."""
        name = self.node.child_by_field_name("name")
        return name.start_byte if name is not None else self.node.start_byte

    @property
    def texts(self) -> tuple[str, ...]:
        """The values of the words."""
        return tuple(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by `|`, by the node of each stage."""

    stages: tuple[Node, ...]
    node: Node
    scope: Scope
    options: frozenset[str]


@dataclass
class Script:
    """What was found in a script, each in the order of the source."""

    content: bytes
    root: Node
    path: str = ""
    sound: bool = True
    """Whether all of it was understood."""
    assignments: list[Assignment] = field(default_factory=list)
    removals: list[NamedPlace] = field(default_factory=list)
    """`export -n NAME` and `unset NAME`."""
    commands: list[Command] = field(default_factory=list)
    arrays: list[Command] = field(default_factory=list)
    """The words of arrays, as of a command."""
    pipelines: list[Pipeline] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Scope] = field(default_factory=dict)
    sources: list[NamedPlace] = field(default_factory=list)
    """Files, by `source` or `export $(cat FILE)`."""
    inexact: list[tuple[int, int]] = field(default_factory=list)
    """The bytes of those whose lines are right and whose columns are not."""
    options_at_end: frozenset[str] = frozenset()
    """Those that a function has which is called there, wherever it stands."""
    conditions: set[int] = field(default_factory=set)
    """The parts of scopes that may be left out, as a branch; a function or subshell is none."""
    _ends: list[int] = field(default_factory=list)
    _by_start: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ends = [at for at, byte in enumerate(self.content) if byte == 0x0A]

    def in_function(self, scope: Scope) -> bool:
        """Whether what stands there runs when somebody calls it."""
        return any(inner == scope[: len(inner)] for inner in self.functions.values())

    def conditional(self, scope: Scope) -> bool:
        """Whether what stands there may be left out."""
        return not self.conditions.isdisjoint(scope)

    def line_at(self, offset: int) -> int:
        """The 1-based line of a byte."""
        return bisect_right(self._ends, offset - 1) + 1 if offset else 1

    def line_text(self, offset: int) -> str:
        """The text of that line, without blanks around it."""
        line = self.line_at(offset)
        start = self._ends[line - 2] + 1 if line > 1 else 0
        end = self._ends[line - 1] if line <= len(self._ends) else len(self.content)
        return self.content[start:end].decode(errors="replace").strip()

    def finding(self, at: int, check: str, detail: str = "", edit: Edit | None = None) -> Finding:
        """A finding at a byte."""
        edits = (edit,) if edit is not None else ()
        return Finding(check, self.path, self.line_at(at), self.line_text(at), detail, edits)

    def setting(self, at: int, name: str = "", value: str | None = None) -> Setting:
        """A name and its value at a byte; a value that is not known is None."""
        known = None if value is None or UNKNOWN in value else value
        return Setting(name, known, self.path, self.line_at(at), self.line_text(at))

    def commands_within(self, node: Node) -> Iterator[Command]:
        """The commands in a part of the script, in the order in which they are written."""
        if len(self._by_start) != len(self.commands):
            self._by_start = sorted(self.commands, key=_start_byte)
        first = bisect_left(self._by_start, node.start_byte, key=_start_byte)
        for at in range(first, len(self._by_start)):
            command = self._by_start[at]
            if command.node.start_byte > node.end_byte:
                return
            if command.node.end_byte <= node.end_byte:
                yield command


def _start_byte(command: Command) -> int:
    return command.node.start_byte


def options_after(words: list[str], before: frozenset[str] = frozenset()) -> frozenset[str]:
    """The shell's options after `set WORDS`."""
    options = set(before)
    named = ""
    for word in words:
        if named:
            (options.add if named == "-" else options.discard)(word)
            named = ""
            continue
        if word == "--" or word[:1] not in ("-", "+"):
            break
        for letter in word[1:]:
            if letter == "o":
                named = word[0]
            elif letter in _LETTERS:
                (options.add if word[0] == "-" else options.discard)(_LETTERS[letter])
    return frozenset(options)
