"""Which class of the project an object is of: followed through names, parameters and functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

from ldlm_doctor.python_code.expressions import last_name
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.tree import Function, attributes_of, inside
from ldlm_doctor.python_code.values import argument_of

Origin: TypeAlias = tuple[Module, ast.ClassDef]
_THE_SAME = frozenset({"to", "cuda", "cpu", "train", "eval", "float", "half", "bfloat16"})
_DEEPEST = 6


def origins(program: Program, module: Module, node: ast.expr, depth: int = 0) -> set[Origin]:
    """The classes of the project that an expression may be an object of; unknown ones left out."""
    if depth > _DEEPEST:
        return set()
    found: set[Origin] = set()
    for where, value in sources(program, module, node):
        if isinstance(value, ast.ClassDef):
            found.add((where, value))
        else:
            found |= origins(program, where, value, depth + 1)
    return found


def sources(
    program: Program, module: Module, node: ast.expr
) -> Iterator[tuple[Module, ast.expr | ast.ClassDef]]:
    """What an expression is made from, a step back, in any branch."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _THE_SAME:
            yield module, inner
        case ast.Call(args=[inner, *_]) if module.resolve(node.func) == "torch.compile":
            yield module, inner
        case ast.Call(func=func):
            made = program.definition(module, func, ast.ClassDef)
            function = program.definition(module, func, ast.FunctionDef)
            if made is not None:
                yield made
            elif function is not None:
                yield from ((function[0], value) for value in returned(function[1]))
        case ast.IfExp(body=body, orelse=orelse):
            yield from ((module, body), (module, orelse))
        case ast.Name(id="self") if (own := module.class_of(node)) is not None:
            yield module, own
        case ast.Name(id=name):
            yield from ((module, value) for value in assigned(module, node))
            function_around = module.function(node)
            if function_around is not None:
                yield from passed_as(program, module, function_around, name)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            own = module.class_of(node)
            values = attributes_of(own).get(name, []) if own is not None else []
            yield from ((module, value) for value in values if value is not None)


def assigned(module: Module, name: ast.Name) -> list[ast.expr]:
    """What is assigned to a name in its scope, in any branch."""
    values = module.bindings(module.scope(name)).get(name.id, [])
    return [value for value in values if value is not None]


def returned(function: Function) -> list[ast.expr]:
    """What a function returns, in any branch."""
    nodes = (node for node in inside(function.body) if isinstance(node, ast.Return))
    return [node.value for node in nodes if node.value is not None]


def passed_as(
    program: Program, module: Module, function: Function, name: str
) -> Iterator[tuple[Module, ast.expr]]:
    """What callers pass for a parameter."""
    for where, call in callers(program, module, function):
        value = argument_of(function, call, name)
        if value is not None:
            yield where, value


def callers(
    program: Program, module: Module, function: Function
) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that surely are of a function: by import, or by a name that only it has."""
    own = module.class_of(function)
    name = own.name if own is not None and function.name == "__init__" else function.name
    for other, call in program.calls.get(name, ()):
        if own is None or name == own.name:
            found = program.definition(
                other, call.func, ast.FunctionDef if own is None else ast.ClassDef
            )
            if found is not None and found[1] is (own or function):
                yield other, call
        elif program.definitions[name] == 1 or (other is module and other.class_of(call) is own):
            yield other, call


def is_kin(one: ast.ClassDef, other: ast.ClassDef) -> bool:
    """The same class, or one directly derived from the other."""
    bases = {last_name(base) for cls in (one, other) for base in cls.bases}
    return one is other or one.name in bases or other.name in bases
