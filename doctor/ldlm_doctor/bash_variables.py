"""The values of a shell script's variables, as far as the script decides them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from ldlm_doctor.bash_script import Scope
from ldlm_doctor.bash_syntax import within
from ldlm_doctor.bash_values import (
    NOTHING_KNOWN,
    UNKNOWN,
    Piece,
    Pieces,
    Value,
    joined,
    value_of,
    whole_array,
)

_UNQUOTED = frozenset({"simple_expansion", "expansion"})


@dataclass(frozen=True, slots=True)
class _Known:
    """What a variable was given: its text, the words where it is an array.

    `appended`: what it was before is in it, so that this is there also if it was left out.
    """

    scope: Scope
    pieces: Pieces
    words: tuple[Value, ...] | None = None
    appended: bool = False


@dataclass(slots=True)
class Variables:
    """The variables, in the order in which the shell assigns them."""

    _known: dict[str, list[_Known]] = field(default_factory=dict)

    def assign(
        self,
        name: str,
        scope: Scope,
        value: Value,
        words: tuple[Value, ...] | None = None,
        *,
        appended: bool = False,
    ) -> None:
        """It is given a value, or the elements of an array; `appended` by `+=`."""
        pieces, before = value.pieces, self._pieces(name, scope)
        elements = self._elements(name, scope)
        if appended:
            between = (Piece(" ", -1),) if words is not None else ()
            words = (*elements, *words) if words is not None and elements is not None else None
            pieces = (*before, *between, *pieces)
        contained = joined(before) in joined(pieces)
        if words is not None:
            contained = elements is not None and words[: len(elements)] == elements
        self._known.setdefault(name, []).append(_Known(scope, pieces, words, contained))

    def value(self, node: Node, scope: Scope) -> Value:
        """The value of a word in a scope."""
        return value_of(node, lambda other: self._pieces(other, scope))

    def words(self, node: Node, scope: Scope) -> tuple[Value, ...]:
        """The words that one becomes: those of an array, or of a variable without quotes."""
        inner = node.named_children[0] if node.type == "command_name" else node
        array = whole_array(inner)
        elements = self._elements(array, scope) if array else None
        if elements is not None:
            return elements
        value = self.value(node, scope)
        mixed = inner.type == "concatenation" and not any(within(inner, "string", "raw_string"))
        return value.split if inner.type in _UNQUOTED or mixed else (value,)

    def _pieces(self, name: str, scope: Scope) -> Pieces:
        """The latest value, if its assignment came by wherever the scope is entered.

        Where only something was appended in a part that may be left out, what it was before is
        there, and then perhaps more.
        """
        longer = ""
        for known in reversed(self._known.get(name, ())):
            text = joined(known.pieces)
            if known.scope == scope[: len(known.scope)]:
                if not longer:
                    return known.pieces
                apart = longer.removeprefix(text)[:1].isspace()
                return (*known.pieces, *((Piece(" ", -1),) if apart else ()), *NOTHING_KNOWN)
            if not known.appended:
                break
            longer = text
        return NOTHING_KNOWN

    def _elements(self, name: str, scope: Scope) -> tuple[Value, ...] | None:
        """The words of an array, as far as they are known."""
        more: tuple[Value, ...] = ()
        for known in reversed(self._known.get(name, ())):
            if known.scope == scope[: len(known.scope)]:
                return (*known.words, *more) if known.words is not None else None
            if not known.appended:
                return None
            more = (Value(UNKNOWN, 0, 0),)
        return None

    def forget(self, name: str, scope: Scope) -> None:
        """From here on it may be anything."""
        self._known.setdefault(name, []).append(_Known(scope, NOTHING_KNOWN))
