"""The value of a word of a shell script, and where its parts stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from ldlm_doctor.bash_syntax import text_of

UNKNOWN = "\0"
"""Stands in a text for what is only known when the script runs."""

_BLANKS = re.compile(r"[ \t\n]+")
_ESCAPED = re.compile(r"(\\.)", re.DOTALL)
_EXPANDED = frozenset({"simple_expansion", "expansion"})
_DEFAULTING = frozenset({":-", "-", ":=", "="})


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, and the byte where it stands; `exact`: the bytes there spell it."""

    text: str
    at: int
    exact: bool = False


Pieces = tuple[Piece, ...]
NOTHING_KNOWN: Pieces = (Piece(UNKNOWN, -1),)


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a word: `text` with UNKNOWN for what is not known.

    `start` and `end` are the bytes to replace for another value: those of the literal where
    the word holds just one, else the whole word (the same where no bytes spell it). `default`: it
    stands in `${NAME:-here}`. `pieces` are its parts with their places.
    """

    text: str
    start: int
    end: int
    default: bool = False
    pieces: Pieces = ()

    @property
    def known(self) -> bool:
        """Whether all of it is known."""
        return UNKNOWN not in self.text

    @property
    def split(self) -> tuple[Value, ...]:
        """Its words, as the shell splits what is not quoted; each where it stands itself."""
        words: list[list[Piece]] = [[]]
        for piece in self.pieces:
            done = 0
            for blank in _BLANKS.finditer(piece.text):
                words[-1].append(_part(piece, done, blank.start()))
                words.append([])
                done = blank.end()
            words[-1].append(_part(piece, done, len(piece.text)))
        split = [_word(parts, self.start) for parts in words]
        return tuple(word for word in split if word.text) or (self,)


def _part(piece: Piece, start: int, end: int) -> Piece:
    at = piece.at + len(piece.text[:start].encode()) if piece.exact else piece.at
    return Piece(piece.text[start:end], at, piece.exact)


def _word(parts: list[Piece], at: int) -> Value:
    parts = [part for part in parts if part.text]
    text = "".join(part.text for part in parts)
    start = next((part.at for part in parts if part.at >= 0), at)
    exact = len(parts) == 1 and parts[0].exact
    return Value(text, start, start + len(text.encode()) * exact, pieces=tuple(parts))


Lookup = Callable[[str], Pieces]
"""The value of a variable."""


def value_of(node: Node, lookup: Lookup) -> Value:
    """The value of a word, with known variables of the script expanded."""
    start, end, default = _literal(node)
    pieces = _expand(node, lookup)
    return Value(joined(pieces), start, end, default, pieces)


def joined(pieces: Pieces) -> str:
    """The text of pieces."""
    return "".join(piece.text for piece in pieces)


def _literal(node: Node) -> tuple[int, int, bool]:
    """The one literal in a word, or the whole of it; and whether that is a default."""
    if node.type == "raw_string":
        return node.start_byte + 1, node.end_byte - 1, False
    if node.type == "expansion":
        parts = node.named_children
        if len(parts) == 2 and _operator(node) in _DEFAULTING:
            start, end, _ = _literal(parts[1])
            return start, end, True
    if node.type == "string" and node.named_child_count <= 1:
        if node.named_child_count == 0:
            return node.start_byte + 1, node.end_byte - 1, False
        return _literal(node.named_children[0])
    return node.start_byte, node.end_byte, False


def _operator(expansion: Node) -> str:
    names = [child.type for child in expansion.children if not child.is_named]
    return next((name for name in names if name not in ("${", "}")), "")


def _expand(node: Node, lookup: Lookup) -> Pieces:
    known = _EXPANSIONS.get(node.type)
    if known is not None:
        return known(node, lookup)
    return NOTHING_KNOWN if node.is_named else (_written(text_of(node), node.start_byte),)


def _written(text: str, at: int) -> Piece:
    return Piece(text, at, exact="\ufffd" not in text)


def _plain(node: Node, _: Lookup) -> Pieces:
    return tuple(_unescaped(text_of(node), node.start_byte))


def _unescaped(source: str, at: int) -> Iterator[Piece]:
    """Text without its backslashes, and without the ends of lines behind one."""
    for text in _ESCAPED.split(source):
        if not text.startswith("\\"):
            if text:
                yield _written(text, at)
        elif len(text) > 1 and text[1] != "\n":
            yield _written(text[1], at + 1)
        at += len(text.encode())


def _raw(node: Node, _: Lookup) -> Pieces:
    return (_written(text_of(node)[1:-1], node.start_byte + 1),)


def _joined(node: Node, lookup: Lookup) -> Pieces:
    """The children one after the other; what stands between them, such as blanks, is literal."""
    source = node.text or b""
    quoted = node.type == "string"
    begin, end = (1, len(source) - 1) if quoted else (0, len(source))
    pieces: list[Piece] = []

    def between(first: int) -> None:
        if first > begin:
            text = source[begin:first].decode(errors="replace")
            pieces.extend(_unescaped(text, node.start_byte + begin))

    for child in node.named_children:
        # the parser counts blanks before a `$` as a part of it
        blanks = len(text_of(child)) - len(text_of(child).lstrip())
        between(child.start_byte - node.start_byte + blanks * (child.type in _EXPANDED))
        pieces.extend(_expand(child, lookup))
        begin = child.end_byte - node.start_byte
    between(end)
    return tuple(pieces)


def _elements(node: Node, lookup: Lookup) -> Pieces:
    pieces: list[Piece] = []
    for child in node.named_children:
        if child.type != "comment":
            pieces.extend((*((Piece(" ", -1),) if pieces else ()), *_expand(child, lookup)))
    return tuple(pieces)


def _parameter(node: Node, lookup: Lookup) -> Pieces:
    parts = node.named_children
    array = whole_array(node)
    if array:
        return lookup(array)
    if not parts or parts[0].type not in ("variable_name", "special_variable_name"):
        return NOTHING_KNOWN
    found = lookup(text_of(parts[0]))
    if _operator(node) in _DEFAULTING:
        if UNKNOWN != joined(found) != "":
            return found
        return _expand(parts[1], lookup) if len(parts) == 2 else ()
    return found if len(parts) == 1 and not _operator(node) else NOTHING_KNOWN


def whole_array(node: Node) -> str:
    """The name in `${NAME[@]}` or `"${NAME[@]}"`; empty where it is something else."""
    if node.type == "string" and node.named_child_count == 1:
        inner = node.named_children[0]
        return (
            whole_array(inner)
            if inner.end_byte - inner.start_byte == node.end_byte - node.start_byte - 2
            else ""
        )
    if node.type != "expansion" or node.named_child_count != 1:
        return ""
    name = text_of(node.named_children[0])
    return name[:-3] if name.endswith(("[@]", "[*]")) and not name.startswith("!") else ""


_EXPANSIONS: dict[str, Callable[[Node, Lookup], Pieces]] = {
    "word": _plain,
    "number": _plain,
    "string_content": _plain,
    "variable_name": _plain,
    "special_variable_name": _plain,
    "raw_string": _raw,
    "string": _joined,
    "concatenation": _joined,
    "array": _elements,
    "command_name": _joined,
    "simple_expansion": lambda node, lookup: lookup(text_of(node).strip()[1:]),
    "expansion": _parameter,
}
