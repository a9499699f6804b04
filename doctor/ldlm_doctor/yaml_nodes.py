"""YAML, and JSON as YAML, as nodes with their places in the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from ldlm_doctor.model import LOADER, SourceFile
from ldlm_doctor.options import normalised
from ldlm_doctor.setting import Setting

_MAX_NODES = 50_000


def compose(content: bytes) -> tuple[yaml.Node, ...]:
    """The roots of all documents; marks count characters, not bytes.

    Raises `ValueError` where it is no YAML, as with a template.
    """
    try:
        roots = tuple(yaml.compose_all(content.decode(), Loader=LOADER))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError("not YAML") from error
    return tuple(root for root in roots if root is not None)


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML or JSON file with its nodes; marks count characters, edits count bytes."""

    file: SourceFile
    text: str
    roots: tuple[yaml.Node, ...]

    def span(self, node: yaml.Node) -> tuple[int, int]:
        """The bytes of a scalar, without its quotes."""
        start, end = node.start_mark.index, node.end_mark.index
        if isinstance(node, yaml.ScalarNode) and node.style in ("'", '"'):
            start, end = start + 1, end - 1
        if self.text.isascii():
            return start, end
        first = len(self.text[:start].encode())
        return first, first + len(self.text[start:end].encode())

    def line(self, node: yaml.Node) -> tuple[int, str]:
        """The 1-based line where a node starts, and its text."""
        number = node.start_mark.line
        start = node.start_mark.index - node.start_mark.column
        end = self.text.find("\n", start)
        return number + 1, self.text[start : end if end >= 0 else None].strip()

    def option(self, name: yaml.ScalarNode, value: yaml.ScalarNode) -> Setting:
        """A key and its value."""
        line, evidence = self.line(name)
        known = None if "${" in value.value else str(value.value)
        at = self.span(value) if value.style not in ("|", ">") else None
        return Setting(normalised(str(name.value)), known, self.file.path, line, evidence, at)


def read(file: SourceFile) -> Document | None:
    """The nodes of a YAML or JSON file; None where it is none, as with a template."""
    try:
        return Document(file, file.content.decode(), compose(file.content))
    except ValueError:
        return None


def nodes(roots: tuple[yaml.Node, ...]) -> Iterator[tuple[str, yaml.Node]]:
    """Every mapping and sequence once, though anchors may repeat it, with the key above it."""
    pending = deque(("", root) for root in roots)
    seen: set[int] = set()
    while pending and len(seen) < _MAX_NODES:
        key, node = pending.popleft()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        yield key, node
        if isinstance(node, yaml.MappingNode):
            pending.extend((str(name.value), value) for name, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend((key, item) for item in node.value)


def scalars(node: yaml.Node) -> list[tuple[yaml.ScalarNode, yaml.ScalarNode]]:
    """The keys of a mapping that have plain values."""
    if not isinstance(node, yaml.MappingNode):
        return []
    return [
        (name, value)
        for name, value in node.value
        if isinstance(name, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)
    ]
