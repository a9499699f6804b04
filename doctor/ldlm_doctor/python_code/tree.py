"""The structure of a syntax tree: children, scopes, calls, and what scopes bind.

ast has no parents and no values of names. libcst and astroid have, but read a file of 236 kB in 10
and 4 times ast's time, and what is certain about a value would still have to be decided here.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

from ldlm_doctor.python_code.expressions import last_name, variables_in

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While
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


def in_one_branch(branch: ast.If, first: ast.AST, second: ast.AST) -> bool:
    """Both or none of two nodes stand in what runs where a condition holds."""
    bodies = {id(node) for statement in branch.body for node in ast.walk(statement)}
    return (id(first) in bodies) == (id(second) in bodies)


def bound_in(scope: Scope) -> Bindings:
    """The names that a scope binds, those of functions in it left out."""
    found: Bindings = {}
    for name, value in (*_parameters(scope), *_bound_by(inside(body_of(scope)))):
        found.setdefault(name, []).append(value)
    return found


def _parameters(scope: Scope) -> Iterator[tuple[str, None]]:
    if not isinstance(scope, ast.Module):
        given = scope.args
        extras = (given.vararg, given.kwarg)
        for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extras):
            if each is not None:
                yield each.arg, None


def _bound_by(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr | None]]:
    for node in nodes:
        match node:
            case ast.Assign():
                for target in node.targets:
                    yield from _targets(target, node.value)
            case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                yield from _targets(node.target, value)
            case ast.AugAssign() | ast.For() | ast.AsyncFor() | ast.comprehension():
                yield from _targets(node.target, None)
            case ast.withitem(optional_vars=ast.expr() as target):
                yield from _targets(target, None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, None
            case ast.Global() | ast.Nonlocal():
                yield from ((name, None) for name in (*node.names, *node.names))
            case ast.ExceptHandler(name=str() as name):
                yield name, None


def _targets(target: ast.AST, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a target binds; a value made of its own name, `path = Path(path)`, is None."""
    match target:
        case ast.Name(id=name):
            yield name, value if value is not None and name not in variables_in(value) else None
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            values: list[ast.expr | None] = [None] * len(parts)
            if isinstance(value, ast.Tuple) and len(value.elts) == len(parts):
                values = [*value.elts]
            for part, its in zip(parts, values, strict=True):
                yield from _targets(part, its)
        case ast.Starred(value=inner):
            yield from _targets(inner, None)


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
