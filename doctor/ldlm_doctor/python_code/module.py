"""A Python file as the checks see it: its syntax tree, what its names stand for, its bytes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import PurePosixPath
from typing import TypeVar, cast

from ldlm_doctor.model import SourceFile
from ldlm_doctor.python_code.expressions import last_name
from ldlm_doctor.python_code.source_text import SourceText, parsed
from ldlm_doctor.python_code.tree import (
    Bindings,
    Function,
    Loop,
    Scope,
    attributes_of,
    bound_in,
    children,
)

Node = TypeVar("Node", bound=ast.AST)
_LONGEST_STRING = 200
"""Characters of a string that are read for words: names and paths are shorter, prose is not."""


class UnreadableError(Exception):
    """The file is no Python that this interpreter can read. `line` is 1-based."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


@dataclass(eq=False)
class Module(SourceText):
    """One file. Nodes of its tree are compared by identity."""

    tree: ast.Module
    parts: tuple[str, ...]
    """The parts of its path without `.py`: the last ones are what an import names."""
    imports: dict[str, str] = field(default_factory=dict)
    """Each name that an import binds, in whatever scope, with what it stands for."""
    imported: list[tuple[int, str]] = field(default_factory=list)
    """What is imported, as written: the level of a relative import, and the dotted name."""
    stars: list[str] = field(default_factory=list)
    nodes: dict[type[ast.AST], list[ast.AST]] = field(default_factory=dict)
    _attributes: dict[ast.AST, Bindings] = field(default_factory=dict)
    _bindings: dict[ast.AST, Bindings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look at every node once."""
        waiting: list[ast.AST] = [self.tree]
        nodes = self.nodes
        while waiting:
            node = waiting.pop()
            kind = type(node)
            if kind in nodes:
                nodes[kind].append(node)
            else:
                nodes[kind] = [node]
            waiting.extend(reversed(children(node)))  # nodes come in the order of the file
        for statement in self.each(ast.Import):
            for alias in statement.names:
                self.imported.append((0, alias.name))
                name = alias.asname or alias.name.partition(".")[0]
                self.imports[name] = alias.name if alias.asname else name
        for imported in self.each(ast.ImportFrom):
            self._note_from(imported)

    def _note_from(self, statement: ast.ImportFrom) -> None:
        base = statement.module or ""
        if statement.level == 0 or base:
            self.imported.append((statement.level, base))
        for alias in statement.names:
            full = f"{base}.{alias.name}" if base else alias.name
            if alias.name == "*":
                self.stars.append(base)
                continue
            self.imported.append((statement.level, full))
            self.imports[alias.asname or alias.name] = full

    @property
    def is_package(self) -> bool:
        """It is an `__init__.py`."""
        return self.file.path.endswith("__init__.py")

    @cached_property
    def runs_itself(self) -> bool:
        """It says what happens where it is started as a script."""
        tests = (node.test for node in self.tree.body if isinstance(node, ast.If))
        return any(
            isinstance(each, ast.Name) and each.id == "__name__"
            for test in tests
            for each in ast.walk(test)
        )

    # What names stand for

    def resolve(self, node: ast.AST | None) -> str:
        """The dotted name that an expression means, imports followed; "" for anything else."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.resolve(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""

    def means(self, node: ast.AST | None, names: frozenset[str]) -> bool:
        """Whether an expression is one of these dotted names, also through a star import."""
        name = self.resolve(node)
        if name in names:
            return True
        return bool(name) and any(f"{star}.{name}" in names for star in self.stars)

    def calls_to(self, names: frozenset[str]) -> Iterator[ast.Call]:
        """Calls of one of these dotted names, in the order of the file."""
        found = [each for name in names for each in self._calls_by_name.get(name, ())]
        for name in self._calls_by_name if self.stars else ():
            if name not in names and any(f"{star}.{name}" in names for star in self.stars):
                found.extend(self._calls_by_name[name])
        return (call for _, call in sorted(found, key=lambda each: each[0]))

    @cached_property
    def _calls_by_name(self) -> dict[str, list[tuple[int, ast.Call]]]:
        """Calls by the dotted name of what they call, each with its place in the file."""
        found: dict[str, list[tuple[int, ast.Call]]] = {}
        for at, call in enumerate(self.calls):
            if name := self.resolve(call.func):
                found.setdefault(name, []).append((at, call))
        return found

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls in the order of the file."""
        return [*self.each(ast.Call)]

    @cached_property
    def methods_called(self) -> dict[str, list[ast.Call]]:
        """Calls by the last part of what they call."""
        found: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            found.setdefault(last_name(call.func), []).append(call)
        return found

    def called(self, *names: str) -> Iterator[ast.Call]:
        """Calls of functions or methods of these names, one name after the other."""
        return chain.from_iterable(self.methods_called.get(name, ()) for name in names)

    def each(self, *kinds: type[Node]) -> Iterator[Node]:
        """The nodes of some kinds, each kind in the order of the file."""
        return chain.from_iterable(cast("list[Node]", self.nodes.get(kind, [])) for kind in kinds)

    @cached_property
    def stores(self) -> list[tuple[ast.expr, ast.expr]]:
        """Each target of an assignment, with what it is given."""
        found = [(target, each.value) for each in self.each(ast.Assign) for target in each.targets]
        found += [(each.target, each.value) for each in self.each(ast.AugAssign)]
        found += [(each.target, each.value) for each in self.each(ast.NamedExpr)]
        found += [(its.target, its.value) for its in self.each(ast.AnnAssign) if its.value]
        return found

    @cached_property
    def functions(self) -> list[Function]:
        """All functions and methods in the order of the file."""
        return sorted(self.each(ast.FunctionDef, ast.AsyncFunctionDef), key=_place)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every identifier, and the words of every string: what the file can read or set."""
        found = {node.id for node in self.each(ast.Name)} | set(self.imports)
        found |= {node.attr for node in self.each(ast.Attribute)}
        found |= {node.arg for node in self.each(ast.keyword) if node.arg}
        found |= {node.arg for node in self.each(ast.arg)}
        for node in self.each(ast.Constant):
            if isinstance(node.value, str):
                found.update(re.findall(r"\w+", node.value[:_LONGEST_STRING]))
        return frozenset(found)

    # Where a node stands

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around each node."""
        every = (node for kind in self.nodes.values() for node in kind)
        return {child: node for node in every for child in children(node)}

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, the nearest first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def scope(self, node: ast.AST) -> Scope:
        """The function around a node, or the module."""
        for outer in self.above(node):
            if isinstance(outer, Scope):
                return outer
        return self.tree

    def function(self, node: ast.AST) -> Function | None:
        """The named function around a node."""
        return next((outer for outer in self.above(node) if isinstance(outer, Function)), None)

    def loop(self, node: ast.AST) -> Loop | None:
        """The innermost loop around a node, also outside of its function."""
        return next((outer for outer in self.above(node) if isinstance(outer, Loop)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class around a node."""
        return self.around(node, ast.ClassDef)

    def around(self, node: ast.AST, *kinds: type[Node]) -> Node | None:
        """The innermost node of some kinds around a node."""
        return next((outer for outer in self.above(node) if isinstance(outer, kinds)), None)

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that a statement stands in."""
        parent = self.parents[statement]
        for _, value in ast.iter_fields(parent):
            if isinstance(value, list) and any(item is statement for item in value):
                return value
        return [statement]

    def bindings(self, scope: Scope) -> Bindings:
        """Each name that a scope binds, with what is assigned; None: in some other way."""
        if scope not in self._bindings:
            self._bindings[scope] = bound_in(scope)
        return self._bindings[scope]

    def bound(self, name: ast.Name) -> ast.expr | None:
        """What a name is, where it is assigned exactly once in its scope and no parameter.

        Within one scope the assignment stands before the name, so that names that stand for
        one another are followed to an end.
        """
        scope: Scope = self.scope(name)
        own = True
        while True:
            found = self.bindings(scope).get(name.id)
            if found is not None:
                value = found[0] if len(found) == 1 else None
                is_later = value is not None and _place(value) >= _place(name)
                return None if own and is_later else value
            if isinstance(scope, ast.Module):
                return None
            scope, own = self.scope(scope), False

    def bound_attribute(self, node: ast.Attribute) -> ast.expr | None:
        """What `self.name` is, where its class assigns it exactly once."""
        cls = self.class_of(node)
        if cls is None or not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            return None
        if cls not in self._attributes:
            self._attributes[cls] = attributes_of(cls)
        found = self._attributes[cls].get(node.attr, [])
        return found[0] if len(found) == 1 else None


def read(file: SourceFile) -> Module:
    """Parse a file. Raises `UnreadableError`."""
    path = PurePosixPath(file.path.replace("\\", "/"))
    parts = path.with_suffix("").parts
    if parts and parts[-1] == "__init__":
        parts = parts[:-1]
    try:
        return Module(file, parsed(file.content), parts)
    except SyntaxError as error:
        raise UnreadableError(error.msg, error.lineno or 1) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableError(str(error) or type(error).__name__, 1) from error


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
