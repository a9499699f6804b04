"""Bash as a tree (tree-sitter), and walking it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_DOCUMENT = re.compile(rb"(?:^|[^<])<<-?[ \t]*[\\\"']?([A-Za-z_][A-Za-z0-9_]*)")


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
