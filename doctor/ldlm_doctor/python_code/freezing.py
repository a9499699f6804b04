"""Whether a model's parameters are frozen while it trains."""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from ldlm_doctor.python_code.bindings import Function, inside
from ldlm_doctor.python_code.module import Module, last_name
from ldlm_doctor.python_code.program import Program, forwards
from ldlm_doctor.python_code.training import TrainingLoop, names_in

_DEEPEST = 5


def freezing(module: Module, program: Program) -> str:
    """Where parameters are frozen while the model trains; "" where they are not."""
    for other in program.imports_of(module):
        found = _freezes_in_training(other, program.loops(other))
        if found is not None:
            return f"{other.file.path}:{found.lineno} freezes parameters in every step"
    return ""


def _freezes_in_training(module: Module, loops: list[TrainingLoop]) -> ast.stmt | None:
    """The statement that freezes, where `forward` or a training loop comes to it."""
    freezing = {f.name: s for f in module.functions if (s := _freezes(module, f)) is not None}
    for loop in loops:
        for body in loop.bodies:
            for node in inside(body):
                if _is_freeze(node, module):
                    return node
    if not freezing:
        return None
    starts: list[Function | TrainingLoop] = [*forwards(module), *loops]
    for start in starts:
        found = _come_to(module, start, freezing)
        if found is not None:
            return found
    return None


def _come_to(
    module: Module, start: Function | TrainingLoop, freezing: dict[str, ast.stmt]
) -> ast.stmt | None:
    own = {function.name: function for function in module.functions}
    waiting, seen = [(start, 0)], set()
    while waiting:
        where, depth = waiting.pop()
        nodes = where.nodes() if isinstance(where, TrainingLoop) else inside(where.body)
        if isinstance(where, Function) and where.name in freezing:
            return freezing[where.name]
        for node in nodes:
            name = last_name(node.func) if isinstance(node, ast.Call) else ""
            if name in own and name not in seen and depth < _DEEPEST and _is_own(node):
                seen.add(name)
                waiting.append((own[name], depth + 1))
    return None


def _is_own(call: ast.AST) -> bool:
    """A function of the file or a method of `self`, and not some other object's."""
    match call:
        case ast.Call(func=ast.Name()):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name())):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="module"))):
            return True
    return False


def _freezes(module: Module, function: Function) -> ast.stmt | None:
    if function.name == "__init__":
        return None
    for node in inside(function.body):
        if _is_freeze(node, module):
            return node
    return None


def _is_freeze(node: ast.AST, module: Module) -> TypeGuard[ast.stmt]:
    """`p.requires_grad = False`, or `.requires_grad_(False)`, of parameters."""
    match node:
        case ast.Assign(
            targets=[ast.Attribute(attr="requires_grad")], value=ast.Constant(value=False)
        ):
            return _is_of_model(module, node)
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(attr="requires_grad_"), args=[ast.Constant(value=False)]
            )
        ):
            return _is_of_model(module, node)
    return False


def _is_of_model(module: Module, statement: ast.stmt) -> bool:
    """Parameters or a part of the model, and not a tensor of this step."""
    for outer in module.above(statement):
        if isinstance(outer, ast.For):
            return any(re.search("param|module|children", name) for name in names_in(outer.iter))
    return any(
        isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
        for part in ast.walk(statement)
    )
