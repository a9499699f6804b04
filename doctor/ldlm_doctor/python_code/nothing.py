"""Values that are always None, and where code uses them as if they were not."""

from __future__ import annotations

import ast

from ldlm_doctor.python_code.expressions import is_value, last_name
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.origins import assigned, callers
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.tree import Function
from ldlm_doctor.python_code.values import argument_of, default_of

_DEEPEST = 3
_KEEPS_NONE = frozenset({"omegaconf.OmegaConf.create"})
_REFUSE_NONE = frozenset({"dict", "len", "list", "iter", "vars"})


def is_none(program: Program, module: Module, value: ast.expr) -> bool:
    """The value is None, or depends on a parameter that no caller gives."""
    if is_value(value, None):
        return True
    tested = value
    if isinstance(value, ast.IfExp):
        if not is_value(value.orelse, None):
            return False
        tested = value.test
        if isinstance(tested, ast.Compare) and isinstance(tested.ops[0], ast.IsNot):
            tested = tested.left
    function = module.function(value)
    if not isinstance(tested, ast.Name) or function is None or assigned(module, tested):
        return False
    if not is_value(default_of(function, tested.id), None):
        return False
    calls = [call for _, call in callers(program, module, function)]
    return bool(calls) and all(_leaves_out(function, call, tested.id) for call in calls)


def _leaves_out(function: Function, call: ast.Call, name: str) -> bool:
    unpacked = any(isinstance(each, ast.Starred) for each in call.args)
    unpacked |= any(each.arg is None for each in call.keywords)
    return not unpacked and argument_of(function, call, name) is None


def fails_as_none(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """An expression that is None is used as an object is."""
    parent = module.parents[node]
    match parent:
        case ast.Attribute() | ast.Subscript() if parent.value is node:
            return True
        case ast.keyword(arg=None):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return _name_fails(program, module, module.scope(node), name, depth)
        case ast.keyword():
            call = module.parents[parent]
            return isinstance(call, ast.Call) and _given_fails(program, module, call, node, depth)
        case ast.Call() if parent.func is not node:
            return _given_fails(program, module, parent, node, depth)
    return False


def _given_fails(
    program: Program, module: Module, call: ast.Call, node: ast.expr, depth: int
) -> bool:
    called = module.resolve(call.func)
    if called in _KEEPS_NONE:
        return fails_as_none(program, module, call, depth)
    if called in _REFUSE_NONE:
        return True
    found = program.definition(module, call.func, ast.FunctionDef)
    if found is None:
        made = program.definition(module, call.func, ast.ClassDef)
        own = (f for f in made[1].body if isinstance(f, ast.FunctionDef)) if made else ()
        start = next((f for f in own if f.name == "__init__"), None)
        found = (made[0], start) if made and start else None
    if found is None or depth >= _DEEPEST:
        return False
    where, function = found
    names = [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]
    name = next((name for name in names if argument_of(function, call, name) is node), "")
    return bool(name) and _name_fails(program, where, function, name, depth + 1)


def _name_fails(program: Program, module: Module, scope: ast.AST, name: str, depth: int) -> bool:
    loads = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    if any(_is_tested(module, node) for node in loads):
        return False
    return any(fails_as_none(program, module, node, depth) for node in loads)


def _is_tested(module: Module, node: ast.expr) -> bool:
    """Somebody thought of None, or of another type."""
    parent = module.parents[node]
    if isinstance(parent, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Assert):
        return True
    if isinstance(parent, ast.If | ast.IfExp | ast.While) and parent.test is node:
        return True
    return isinstance(parent, ast.Call) and last_name(parent.func) in ("isinstance", "hasattr")
