"""What the scopes of a syntax tree bind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
Bindings: TypeAlias = dict[str, list[ast.expr | None]]
"""Each name with what is assigned to it; None: it is bound in some other way."""

_NO_NODES = {"ctx", "op", "ops", "id", "attr", "arg", "kind", "level", "module", "type_comment"}
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in _NO_NODES)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and kind is not ast.Constant
}
"""The fields of each kind of node that may hold expressions, statements and the like."""


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right under a node, in order; signs and contexts, which all share, left out."""
    found: list[ast.AST] = []
    for name in _FIELDS.get(type(node), ()):
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def inside(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of some statements in order, but not those of functions and classes in them."""
    waiting: list[ast.AST] = [*reversed(nodes)]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting.extend(reversed(children(node)))


def bound_in(scope: Scope) -> Bindings:
    """The names that a scope binds, those of functions in it left out."""
    found: Bindings = {}

    def note(target: ast.AST, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            # What is made of itself, as in `path = Path(path)`, was something else before.
            known = value if value is not None and not _names(value, target.id) else None
            found.setdefault(target.id, []).append(known)
        elif isinstance(target, ast.Tuple | ast.List):
            values: list[ast.expr | None] = [None] * len(target.elts)
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                values = list(value.elts)
            for part, its in zip(target.elts, values, strict=True):
                note(part, its)
        elif isinstance(target, ast.Starred):
            note(target.value, None)

    if not isinstance(scope, ast.Module):
        arguments = scope.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            found.setdefault(argument.arg, []).append(None)
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                found.setdefault(extra.arg, []).append(None)
    body: list[ast.stmt] = [] if isinstance(scope, ast.Lambda) else scope.body
    for node in inside(body):
        match node:
            case ast.Assign():
                for target in node.targets:
                    note(target, node.value)
            case ast.AnnAssign() if node.value is not None:
                note(node.target, node.value)
            case ast.NamedExpr():
                note(node.target, node.value)
            case ast.AugAssign() | ast.For() | ast.AsyncFor() | ast.comprehension():
                note(node.target, None)
            case ast.withitem() if node.optional_vars is not None:
                note(node.optional_vars, None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.setdefault(node.name, []).append(None)
            case ast.Global() | ast.Nonlocal():
                for name in node.names:
                    found.setdefault(name, []).extend((None, None))
            case ast.ExceptHandler() if node.name:
                found.setdefault(node.name, []).append(None)
    return found


def _names(node: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def attributes_of(cls: ast.ClassDef) -> Bindings:
    """The attributes that a class gives `self`."""
    found: Bindings = {}
    for node in ast.walk(cls):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign():
                targets = node.targets
            case ast.AnnAssign() | ast.AugAssign() | ast.For():
                targets = [node.target]
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            match target:
                case ast.Attribute(value=ast.Name(id="self"), attr=name):
                    found.setdefault(name, []).append(value)
    return found
