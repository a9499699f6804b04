"""Bash as a tree (tree-sitter): walking it, and what a word comes to."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

UNKNOWN = "\0"
"""Stands in a text for what is only known when the script runs."""

_DOCUMENT = re.compile(rb"(?:^|[^<])<<-?[ \t]*[\\\"']?([A-Za-z_][A-Za-z0-9_]*)")
_DEFAULTING = frozenset({":-", "-", ":=", "="})
_NUMBER = frozenset("0123456789+-*/%() \t")
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True, slots=True)
class Value:
    """What a word comes to: `text` with UNKNOWN for what is not known.

    `start` and `end` are the bytes to replace for another value: those of the literal where
    the word holds just one, else the whole word. `default`: it stands in `${NAME:-here}`.
    """

    text: str
    start: int
    end: int
    default: bool = False

    @property
    def known(self) -> bool:
        """Whether all of it is known."""
        return UNKNOWN not in self.text


Lookup = Callable[[str], str]
"""A variable's text, or UNKNOWN."""


@cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


def parse(content: bytes) -> Node:
    """The tree of a script; what it cannot make sense of is a node of type ERROR."""
    return Parser(_language()).parse(content).root_node


def unended_documents(content: bytes) -> Iterator[tuple[int, int, str]]:
    """Lines that look like the end of a here-document and are none, with their delimiter.

    In `EOF "$a"` the words make it text: the document goes on to the next line that is EOF alone.
    """
    delimiter = b""
    start = 0
    for line in content.split(b"\n"):
        if not delimiter:
            found = None if line.lstrip().startswith(b"#") else _DOCUMENT.search(line)
            delimiter = found.group(1) if found else b""
        elif line.lstrip(b"\t") == delimiter:
            delimiter = b""
        elif line.startswith(delimiter + b" ") and line[len(delimiter) :].strip():
            yield start, start + len(line), delimiter.decode()
            delimiter = b""
        start += len(line) + 1


def text_of(node: Node) -> str:
    """The source of a node."""
    return (node.text or b"").decode(errors="replace")


def within(node: Node, *types: str) -> Iterator[Node]:
    """The nodes of these types in a node, itself included, in the order of the source."""
    pending = [node]
    while pending:
        found = pending.pop()
        if found.type in types:
            yield found
        pending.extend(reversed(found.children))


def value_of(node: Node, lookup: Lookup) -> Value:
    """What a word comes to, with the variables of the script put in where they are known."""
    start, end, default = _literal(node)
    return Value(_expand(node, lookup), start, end, default)


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


def _expand(node: Node, lookup: Lookup) -> str:
    known = _EXPANSIONS.get(node.type)
    if known is not None:
        return known(node, lookup)
    return UNKNOWN if node.is_named else text_of(node)


def _plain(node: Node, _: Lookup) -> str:
    text = text_of(node)
    return text.replace("\\\n", "").replace("\\", "") if "\\" in text else text


def _joined(node: Node, lookup: Lookup) -> str:
    """The children one after the other; what stands between them, such as blanks, is literal."""
    source = node.text or b""
    quoted = node.type == "string"
    begin, end = (1, len(source) - 1) if quoted else (0, len(source))
    pieces = []
    for child in node.named_children:
        first = child.start_byte - node.start_byte
        pieces.append(source[begin:first].decode(errors="replace"))
        pieces.append(_expand(child, lookup))
        begin = child.end_byte - node.start_byte
    pieces.append(source[begin:end].decode(errors="replace"))
    return "".join(pieces)


def _parameter(node: Node, lookup: Lookup) -> str:
    parts = node.named_children
    if parts and parts[0].type == "subscript" and text_of(parts[0]).endswith(("[@]", "[*]")):
        return lookup(text_of(parts[0])[:-3])
    if not parts or parts[0].type not in ("variable_name", "special_variable_name"):
        return UNKNOWN
    found = lookup(text_of(parts[0]))
    if _operator(node) in _DEFAULTING:
        if found not in (UNKNOWN, ""):
            return found
        return _expand(parts[1], lookup) if len(parts) == 2 else ""
    return found if len(parts) == 1 and not _operator(node) else UNKNOWN


def _arithmetic(node: Node, lookup: Lookup) -> str:
    pieces = []
    for leaf in _leaves(node):
        name = leaf.type == "variable_name"
        pieces.append(lookup(text_of(leaf)) if name else text_of(leaf))
    text = "".join(pieces)
    inner = text.removeprefix("$((").removesuffix("))")
    if len(inner) > 200 or not set(inner) <= _NUMBER:
        return UNKNOWN
    try:
        return str(_calculated(ast.parse(inner.replace("/", "//").strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError):
        return UNKNOWN


def _leaves(node: Node) -> Iterator[Node]:
    if node.child_count == 0:
        yield node
    for child in node.children:
        yield from _leaves(child)


def _calculated(tree: ast.expr) -> int:
    match tree:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_calculated(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_calculated(left), _calculated(right))
    raise ValueError


_EXPANSIONS: dict[str, Callable[[Node, Lookup], str]] = {
    "word": _plain,
    "number": _plain,
    "string_content": _plain,
    "variable_name": _plain,
    "special_variable_name": _plain,
    "raw_string": lambda node, _: text_of(node)[1:-1],
    "string": _joined,
    "concatenation": _joined,
    "array": lambda node, lookup: " ".join(
        _expand(child, lookup) for child in node.named_children if child.type != "comment"
    ),
    "command_name": _joined,
    "simple_expansion": lambda node, lookup: lookup(text_of(node)[1:]),
    "expansion": _parameter,
    "arithmetic_expansion": _arithmetic,
}
