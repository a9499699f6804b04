"""What hides a divergence, and losses that are not what they seem."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ldlm_doctor.model import Finding, Findings, pattern
from ldlm_doctor.python_code.expressions import is_value, last_name, variables_in
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.training import without_gradient
from ldlm_doctor.python_code.tree import calls_in
from ldlm_doctor.python_code.values import arguments, number

_LOSS = re.compile(r"(^|_)loss(es)?(_|\d|$)|^(l|L)oss", re.I)
_NO_LOSS = re.compile(pattern("no_loss"), re.I)
_CLAMPS = ("clamp", "clamp_", "clamp_max", "clamp_max_", "clip", "clip_")
_COSINES = {"cosine_similarity", "CosineSimilarity"}


def inspect(module: Module, program: Program) -> Findings:
    """Losses of what is trained."""
    if not program.trains(module):
        return
    cosines = list(_cosines(module))
    yield from (finding for _, finding in cosines)
    known = {id(call) for call, _ in cosines}
    yield from _clamps(module, known)


def _is_loss(node: ast.AST) -> bool:
    name = last_name(node)
    return bool(_LOSS.search(name)) and not _NO_LOSS.search(name)


def _subject(module: Module, call: ast.Call) -> ast.expr | None:
    """What a function or a method of torch is applied to."""
    if not isinstance(call.func, ast.Attribute):
        return call.args[0] if call.args and isinstance(call.func, ast.Name) else None
    if module.resolve(call.func).startswith("torch."):
        return call.args[0] if call.args else None
    return call.func.value


def _clamps(module: Module, known: set[int]) -> Findings:
    for call in module.called(*_CLAMPS, "nan_to_num", "nan_to_num_"):
        subject = _subject(module, call)
        if subject is None or id(call) in known or not _is_loss(subject):
            continue
        if not _is_trained_with(module, call):
            continue
        if last_name(call.func).startswith("nan_to_num"):
            yield module.finding("loss-nan-to-num", call)
        elif (limit := _greatest(module, call)) is not None:
            yield module.finding("loss-clamped", call, limit)


def _greatest(module: Module, call: ast.Call) -> str | None:
    """The upper limit of a clamp as it is written; None: it has none."""
    at_function = module.resolve(call.func).startswith("torch.")
    names = ("max",) if last_name(call.func).startswith("clamp_max") else ("min", "max")
    positional = ("input", *names) if at_function else names
    limit = arguments(module, call, positional)["max"]
    if limit is None or (is_value(limit, None)):
        return None
    return f"at {module.text(limit)}"


def _is_trained_with(module: Module, call: ast.Call) -> bool:
    """The result is a loss again, and no number that is only shown."""
    if last_name(call.func).endswith("_") and isinstance(module.parents[call], ast.Expr):
        return not without_gradient(module, call)
    child: ast.AST = call
    for outer in module.above(call):
        match outer:
            case ast.Attribute(attr="item" | "detach" | "cpu"):
                return False
            case ast.Call() if last_name(outer.func) in ("exp", "float", "print", "append"):
                return False
            case ast.Return():
                return not without_gradient(module, call)
            case ast.Assign():
                ours = any(_is_loss(target) for target in outer.targets)
                return ours and not without_gradient(module, call)
            case ast.AugAssign():
                return _is_loss(outer.target) and not without_gradient(module, call)
            case ast.stmt():
                return False
        child = outer
    return child is call


def _cosines(module: Module) -> Iterator[tuple[ast.Call, Finding]]:
    """A loss of one minus a cosine, clamped to its own range [0, 2]."""
    for call in module.called("clamp", "clip"):
        subject = _subject(module, call)
        if not isinstance(subject, ast.Name):
            continue
        made = _assigned_before(module, subject, call)
        limit = arguments(module, call, ("input", "min", "max"))["max"]
        if made is not None and number(module, limit) == 2.0 and _is_one_minus_cosine(made):
            yield call, module.finding("loss-weight-changed-by-cosine", made)


def _assigned_before(module: Module, name: ast.Name, before: ast.AST) -> ast.expr | None:
    """What a name was given last before a node of its own block."""
    statement = module.statement(before)
    found = None
    for each in module.block(statement):
        if each is statement:
            break
        match each:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name.id:
                found = value
    return found


def _is_one_minus_cosine(node: ast.expr) -> bool:
    for part in ast.walk(node):
        match part:
            case ast.BinOp(left=ast.Constant(value=1 | 1.0), op=ast.Sub(), right=right):
                named = any("cos" in name.lower() for name in variables_in(right))
                return named or any(True for _ in calls_in(ast.walk(right), _COSINES))
    return False
