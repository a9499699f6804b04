"""What the scopes of a syntax tree bind."""

from __future__ import annotations

import ast
from typing import TypeAlias

from ldlm_doctor.python_code.tree import Scope, body_of, inside, variables_in

Bindings: TypeAlias = dict[str, list[ast.expr | None]]
"""Each name with what is assigned to it; None: it is bound in some other way."""


def bound_in(scope: Scope) -> Bindings:
    """The names that a scope binds, those of functions in it left out."""
    found: Bindings = {}

    def note(target: ast.AST, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            # What is made of itself, as in `path = Path(path)`, was something else before.
            known = value if value is not None and target.id not in variables_in(value) else None
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
    for node in inside(body_of(scope)):
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
