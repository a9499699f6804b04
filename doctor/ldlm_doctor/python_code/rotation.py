"""How old checkpoints are deleted."""

from __future__ import annotations

import ast
import re
from typing import TypeAlias

from ldlm_doctor.model import Edits, Findings
from ldlm_doctor.python_code.expressions import last_name, names_in
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.source_text import replaced
from ldlm_doctor.python_code.tree import Function, Loop, calls_in, inside
from ldlm_doctor.python_code.values import number

_ABOUT = re.compile(r"ckpt|checkpoint|keep|snapshot|save_dir|step|epoch|rotat|prune|old_", re.I)
_LISTS = {"iterdir", "listdir", "scandir", "glob", "rglob", "iglob"}
_STRICT = {
    "startswith",
    "endswith",
    "match",
    "fullmatch",
    "search",
    "exists",
    "is_file",
    "isfile",
    "fnmatch",
}
_Body: TypeAlias = Function | ast.Module


def inspect(module: Module, program: Program) -> Findings:
    """Each function that deletes checkpoints in a loop."""
    seen: set[Loop] = set()
    for call in module.called("rmtree", "unlink", "remove"):
        name = last_name(call.func)
        if name == "remove" and module.resolve(call.func) != "os.remove":
            continue
        function, loop = module.function(call) or module.tree, module.loop(call)
        if loop is None or loop in seen or not _is_about_checkpoints(function):
            continue
        seen.add(loop)
        yield from _unbounded(module, loop, call, function)
        if name == "rmtree":
            yield from _foreign(module, call, function)


def _is_about_checkpoints(function: _Body) -> bool:
    name = function.name if isinstance(function, Function) else ""
    return any(_ABOUT.search(word) for word in (name, *names_in(function)))


def _unbounded(module: Module, loop: Loop, call: ast.Call, function: _Body) -> Findings:
    if isinstance(loop, ast.While):
        yield from _popped(module, loop, call, function)
        return
    taken = _sliced(module, loop.iter)
    if taken is None:
        return
    lower, upper = taken
    if isinstance(lower, ast.Constant) and lower.value == 0:
        lower = None
    if isinstance(upper, ast.Name) and lower is None:
        upper = module.bound(upper) or upper
    match lower, upper:
        case None, ast.UnaryOp(op=ast.USub(), operand=keep):
            if _may_be_zero(module, keep, function):
                detail = f"{module.text(keep)} = 0 deletes nothing: [:-0] is empty"
                yield module.finding("rotation-keep-zero", call, detail)
        case None, ast.BinOp(left=ast.Call(func=ast.Name(id="len")), op=ast.Sub(), right=keep):
            if _may_be_zero(module, keep, function) and not _has_more(module, loop, keep):
                detail = (
                    f"{module.text(keep)} = 0 deletes all; where there are fewer than "
                    f"{module.text(keep)} the difference is negative and counts from the end"
                )
                edits = _held(module, upper, keep)
                yield module.finding("rotation-keep-zero", call, detail, edits)
        case keep, None if keep is not None and not isinstance(keep, ast.UnaryOp):
            if _may_be_zero(module, keep, function):
                edits = (replaced(module, keep, f"max(1, {module.text(keep)})"),)
                detail = f"{module.text(keep)} = 0 deletes all of them"
                yield module.finding("rotation-keep-zero", call, detail, edits)


def _has_more(module: Module, loop: ast.For | ast.AsyncFor, keep: ast.expr) -> bool:
    """Whether a condition around the loop asks for more files than are kept.

    Then the difference is positive; and a `keep` of 0, which is somebody's own number, means what
    it says.
    """
    name = last_name(keep)
    for outer in module.above(loop):
        match outer:
            case ast.If(test=ast.Compare(left=left, ops=[ast.Gt() | ast.GtE()])):
                bound = module.bound(left) if isinstance(left, ast.Name) else None
                asked = {*names_in(outer.test), *(names_in(bound) if bound is not None else ())}
                if name in asked:
                    return True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return False
    return False


def _held(module: Module, difference: ast.BinOp, keep: ast.expr) -> Edits:
    """`len(found) - n` as `max(0, len(found) - max(1, n))`."""
    before, after = module.start(difference), module.start(keep)
    length = module.file.content[before:after].decode()
    return (replaced(module, difference, f"max(0, {length}max(1, {module.text(keep)}))"),)


def _popped(module: Module, loop: ast.While, call: ast.Call, function: _Body) -> Findings:
    """`while len(found) > keep: rmtree(found.pop(0))`."""
    match loop.test:
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="len")), ops=[ast.Gt()], comparators=[keep]
        ) if _may_be_zero(module, keep, function):
            edits = (replaced(module, keep, f"max(1, {module.text(keep)})"),)
            detail = f"{module.text(keep)} = 0 deletes all of them"
            yield module.finding("rotation-keep-zero", call, detail, edits)


def _sliced(module: Module, node: ast.expr) -> tuple[ast.expr | None, ast.expr | None] | None:
    match node:
        case ast.Name():
            bound = module.bound(node)
            return None if bound is None else _sliced(module, bound)
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper)):
            return lower, upper
        case ast.Call(args=[only]) if last_name(node.func) in ("list", "reversed", "sorted"):
            return _sliced(module, only)
    return None


def _may_be_zero(module: Module, keep: ast.expr, function: _Body) -> bool:
    """The number comes from outside, and nothing refuses 0 or replaces it."""
    if not isinstance(keep, ast.Name | ast.Attribute) or number(module, keep) is not None:
        return False
    name = last_name(keep)
    bound = module.bound(keep) if isinstance(keep, ast.Name) else None
    if bound is not None and _is_bounded(bound):
        return False
    places: list[ast.AST] = [function]
    if isinstance(keep, ast.Attribute):
        cls = module.class_of(keep)
        places.append(cls if cls is not None else module.tree)
    return not any(_is_guarded(place, name) for place in places)


def _is_bounded(node: ast.expr) -> bool:
    """`max(1, n)`, `n or 3`."""
    match node:
        case ast.Call(args=[_, _, *_]) if last_name(node.func) == "max":
            return any(isinstance(a, ast.Constant) and a.value not in (0, None) for a in node.args)
        case ast.BoolOp(op=ast.Or()):
            return True
    return False


def _is_guarded(place: ast.AST, name: str) -> bool:
    """A comparison, an assertion or max() of the number stands somewhere before its use."""
    for node in ast.walk(place):
        match node:
            case ast.If(test=test) | ast.Assert(test=test) | ast.IfExp(test=test):
                if _asks(test, name):
                    return True
            case ast.Assign(targets=[target], value=value) if last_name(target) == name:
                if _is_bounded(value):
                    return True
            case ast.Call() if last_name(node.func) == "max" and name in names_in(node):
                return True
    return False


def _asks(test: ast.expr, name: str) -> bool:
    """The number itself is compared, and not only a length with it."""
    match test:
        case ast.Name() | ast.Attribute():
            return last_name(test) == name
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _asks(operand, name)
        case ast.BoolOp():
            return any(_asks(value, name) for value in test.values)
        case ast.Compare(left=left, comparators=[right]):
            sides = (left, right)
            constants = any(isinstance(side, ast.Constant) for side in sides)
            return constants and any(last_name(side) == name for side in sides)
    return False


def _foreign(module: Module, call: ast.Call, function: _Body) -> Findings:
    listings = [
        node
        for node in calls_in(inside(function.body), _LISTS)
        if not _is_narrow(module, node) and not _is_dedicated(module, node)
    ]
    if not listings:
        return
    for node in inside(function.body):
        match node:
            case ast.Call() if last_name(node.func) == "compile" or (
                last_name(node.func) in _STRICT and not _is_of_base(node, listings)
            ):
                return
            case ast.Compare(left=ast.Constant(value=str()), ops=[ast.In()]):
                return
            case ast.Compare(left=left, ops=[ast.Eq() | ast.In()]) if last_name(left) == "suffix":
                return
    detail = f"line {listings[0].lineno} takes all that is there"
    yield module.finding("rotation-deletes-foreign", call, detail)


def _is_dedicated(module: Module, call: ast.Call) -> bool:
    """What is listed is a folder for checkpoints alone, by its name."""
    listed = call.args[0] if call.args else call.func
    if isinstance(call.func, ast.Attribute) and last_name(call.func) in ("iterdir", "glob"):
        listed = call.func.value
    meant: list[ast.expr | None] = [listed]
    if isinstance(listed, ast.Name):
        meant += module.bindings(module.scope(listed)).get(listed.id, [])
    return any(
        isinstance(part, ast.Constant)
        and isinstance(part.value, str)
        and re.search(r"(^|/)(ckpts?|checkpoints?)/?$", part.value)
        for each in meant
        if each is not None
        for part in ast.walk(each)
    )


def _is_narrow(module: Module, call: ast.Call) -> bool:
    """A pattern with a beginning of its own, such as `step_*`."""
    if last_name(call.func) not in ("glob", "rglob", "iglob") or not call.args:
        return False
    pattern = call.args[0]
    for part in ast.walk(pattern):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            last = part.value.rpartition("/")[2]
            if re.match(r"[A-Za-z0-9_]{2,}", last) or re.search(r"\.\w+$", last):
                return True
    return isinstance(pattern, ast.Name | ast.Attribute)


def _is_of_base(call: ast.Call, listings: list[ast.Call]) -> bool:
    """`base.exists()` of the folder that is listed says nothing about what is in it."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = ast.dump(call.func.value)
    bases = {ast.dump(n.func.value) for n in listings if isinstance(n.func, ast.Attribute)}
    bases |= {ast.dump(n.args[0]) for n in listings if n.args}
    asked = {ast.dump(argument) for argument in call.args}
    return owner in bases or bool(asked & bases)
