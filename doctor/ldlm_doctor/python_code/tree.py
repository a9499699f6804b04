"""Nodes of a syntax tree: their children, names, arguments and constants."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias, TypeGuard

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While

_NO_NODES = {"ctx", "op", "ops", "id", "attr", "arg", "kind", "level", "module", "type_comment"}
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in _NO_NODES)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and kind is not ast.Constant
}
"""The fields of each kind of node that may hold expressions, statements and the like."""


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right under a node, in order, without operators and contexts.

    Python shares one object for each of those; `ast.iter_child_nodes` takes three times as long.
    """
    found: list[ast.AST] = []
    for name in _FIELDS.get(type(node), ()):
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def inside(nodes: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of some statements in order, without the bodies of functions and classes."""
    waiting: list[ast.AST] = [*nodes]
    waiting.reverse()
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting.extend(reversed(children(node)))


def body_of(scope: Scope) -> list[ast.stmt]:
    """The statements of a function or a module; a lambda has none."""
    return [] if isinstance(scope, ast.Lambda) else scope.body


def calls_in(nodes: Iterable[ast.AST], names: Collection[str]) -> Iterator[ast.Call]:
    """Calls of functions or methods of these names among some nodes."""
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in names:
            yield node


def last_name(node: ast.AST | None) -> str:
    """The last part of a dotted expression: `step` of `self.optimizer.step`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def receiver(call: ast.Call) -> ast.expr:
    """`optimizer` of `optimizer.step()`; for a plain function, its name."""
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def owner_name(call: ast.Call) -> str:
    """The last name of the object whose method is called; "" for a plain function."""
    return last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def passed(call: ast.Call) -> list[ast.expr]:
    """All arguments of a call, by position and by keyword."""
    return [*call.args, *(each.value for each in call.keywords)]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The argument of a call that is passed under a name."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def is_value(node: ast.AST | None, value: bool | None) -> TypeGuard[ast.Constant]:
    """Whether a node is the constant True, False or None."""
    return isinstance(node, ast.Constant) and node.value is value


def expressions_in(node: ast.AST) -> Iterator[ast.expr]:
    """The names, attributes and calls in an expression: what may stand for a value."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name | ast.Attribute | ast.Call):
            yield part


def variables_in(node: ast.AST) -> set[str]:
    """The names of variables in an expression, attributes left out."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def names_in(node: ast.AST) -> set[str]:
    """The identifiers of an expression, attributes included."""
    return {last_name(part) for part in ast.walk(node)} - {""}


def words_in(node: ast.AST) -> set[str]:
    """The identifiers and the strings of an expression."""
    parts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return names_in(node).union(part for part in parts if isinstance(part, str))
