"""Settings that should end a training, and end none of its loops."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Findings, pattern
from ldlm_doctor.python_code.expressions import last_name, words_in
from ldlm_doctor.python_code.facts import uses_framework
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.project_settings import looked_up
from ldlm_doctor.python_code.training import ends_process
from ldlm_doctor.python_code.tree import Function, inside
from ldlm_doctor.python_code.unread import takes_all_settings

_STEPS = re.compile(pattern("steps"), re.I)


def inspect(module: Module, program: Program) -> Findings:
    """Each program that this file starts."""
    scope = program.started_by(module)
    loops = [loop for each in scope for loop in program.loops(each)]
    if not loops or any(uses_framework(each) or takes_all_settings(each) for each in scope):
        return
    read: dict[str, tuple[Module, ast.expr]] = {}
    for each in scope:
        for node in each.each(ast.Attribute, ast.Subscript, ast.Call):
            keys = looked_up(each, node)
            if keys and _STEPS.match(keys[-1]) and not _is_stored(node):
                read.setdefault(keys[-1], (each, node))
    for name, (where, node) in read.items():
        if not _ends_a_loop(scope, name):
            loop = loops[0]
            ends = f"{loop.module.file.path}:{loop.loop.lineno}"
            yield where.finding("steps-end-no-loop", node, f"{name}; the loop in {ends} goes on")


def _is_stored(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _ends_a_loop(scope: list[Module], setting: str) -> bool:
    """What depends on the setting, by any name, decides how long a loop turns."""
    names, known = {setting}, 0
    functions = {function.name: function for each in scope for function in each.functions}
    while len(names) > known:
        known = len(names)
        for module in scope:
            names |= _made_of(module, names, functions)
    return any(_decides(module, names) for module in scope)


def _made_of(module: Module, names: set[str], functions: dict[str, Function]) -> set[str]:
    """Names that are given something made of these: variables, parameters, functions."""
    found: set[str] = set()
    for target, value in module.stores:
        if names & words_in(value):
            found |= {last_name(part) for part in ast.walk(target)}
    for returned in module.each(ast.Return):
        function = module.function(returned)
        if function is not None and returned.value and names & words_in(returned.value):
            found.add(function.name)
    for call in module.calls:
        called = functions.get(last_name(call.func))
        if called is None:
            continue
        parameters = [each.arg for each in called.args.args if each.arg not in ("self", "cls")]
        given = [*zip(parameters, call.args, strict=False)]
        given += [(each.arg, each.value) for each in call.keywords if each.arg]
        found |= {name for name, value in given if names & words_in(value)}
    return found - {"", "self"}


def _decides(module: Module, names: set[str]) -> bool:
    for node in module.each(ast.For, ast.While, ast.comprehension, ast.If):
        match node:
            case ast.For(iter=decided) | ast.While(test=decided) | ast.comprehension(iter=decided):
                pass
            case ast.If(test=decided) if _leaves(module, node):
                pass
            case _:
                continue
        if names & words_in(decided):
            return True
    return any(names & words_in(call) for call in module.called("islice", "range"))


def _leaves(module: Module, branch: ast.If) -> bool:
    """The branch ends a loop, the process, or a function within a loop."""
    for node in inside(branch.body):
        if isinstance(node, ast.Break | ast.Raise):
            return True
        if isinstance(node, ast.Call) and ends_process(node):
            return True
        if isinstance(node, ast.Return) and module.loop(node) is not None:
            return True
    return False
