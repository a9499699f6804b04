"""Expressions of a syntax tree: names, strings, constants and the arguments of calls."""

from __future__ import annotations

import ast
from typing import TypeGuard


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
