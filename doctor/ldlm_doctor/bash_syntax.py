"""Bash as a tree (tree-sitter), and walking it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser


@cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


def parse(content: bytes) -> Node:
    """The tree of a script; what it cannot make sense of is a node of type ERROR."""
    return Parser(_language()).parse(content).root_node


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
