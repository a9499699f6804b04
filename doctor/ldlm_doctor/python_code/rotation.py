"""How old checkpoints are deleted."""

from __future__ import annotations

import ast
import re
from itertools import chain

from ldlm_doctor.model import Findings, data
from ldlm_doctor.python_code.checkpoints import full_path
from ldlm_doctor.python_code.expressions import last_name, names_in
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.source_text import replaced
from ldlm_doctor.python_code.tree import Function, Loop, calls_in, inside
from ldlm_doctor.python_code.values import number

_ABOUT = re.compile(r"ckpt|checkpoint|keep|snapshot|save_dir|step|epoch|rotat|prune|old_", re.I)
_OWN_FOLDER = re.compile(r"(^|/)(ckpts?|checkpoints?)/?$")
_PATTERN = re.compile(r"[A-Za-z0-9_]{2,}[^/]*$|\.\w+$")
"""A pattern of glob with a beginning or an end of its own, such as `step_*`."""
_LISTS = {"iterdir", "listdir", "scandir", "glob", "rglob", "iglob"}
_STRICT = frozenset(data("names")["tests_of_names"])


def inspect(module: Module, _: Program) -> Findings:
    """Each function that deletes checkpoints in a loop."""
    seen: set[Loop] = set()
    for call in module.called("rmtree", "unlink", "remove"):
        name = last_name(call.func)
        if name == "remove" and module.resolve(call.func) != "os.remove":
            continue
        function, loop = module.function(call), module.loop(call)
        if function is None or loop is None or loop in seen or not _is_about_checkpoints(function):
            continue
        if module.around(call, ast.ExceptHandler) is not None:
            continue  # what is half made goes, and nothing old
        seen.add(loop)
        yield from _unbounded(module, loop, call, function)
        if name == "rmtree" and _kept(module, loop)[0] is not None:
            yield from _foreign(module, call, function)


def _is_about_checkpoints(function: Function) -> bool:
    return any(map(_ABOUT.search, (function.name, *names_in(function))))


def _unbounded(module: Module, loop: Loop, call: ast.Call, function: Function) -> Findings:
    """A number of checkpoints to keep that comes from outside, and that nothing compares."""
    keep, edit = _kept(module, loop)
    if not isinstance(keep, ast.Name | ast.Attribute) or number(module, keep) is not None:
        return
    name = last_name(keep)
    places = [function, module.class_of(keep) if isinstance(keep, ast.Attribute) else None]
    parents = (module.parents.get(n) for n in module.each(ast.Constant) if n.value == name)
    listed = any(isinstance(each, ast.Tuple | ast.List) for each in parents)  # getattr(args, name)
    if listed or any(place is not None and _is_looked_at(place, name) for place in places):
        return
    edits = (replaced(module, keep, f"max(1, {module.text(keep)})"),) if edit else ()
    detail = f"{module.text(keep)} = 0 deletes {'all' if edit else 'nothing: [:-0] is empty'}"
    yield module.finding("rotation-keep-zero", call, detail, edits)


def _kept(module: Module, loop: Loop) -> tuple[ast.expr | None, bool]:
    """The number in `found[:-n]`, or, as all are deleted at 0, `found[n:]`, `len(found) > n`."""
    if isinstance(loop, ast.While):
        match loop.test:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="len")), ops=[ast.Gt()], comparators=[keep]
            ):
                return keep, True
        return None, False
    taken: ast.expr | None = loop.iter
    while isinstance(taken, ast.Name | ast.Call):
        if isinstance(taken, ast.Name):
            taken = module.bound(taken)
        else:
            taken = taken.args[0] if taken.args else None
    match taken:
        case ast.Subscript(slice=ast.Slice(lower=None, upper=ast.UnaryOp(ast.USub(), keep))):
            return keep, False
        case ast.Subscript(slice=ast.Slice(lower=ast.Name() | ast.Attribute() as keep, upper=None)):
            return keep, True
    return None, False


def _is_looked_at(place: ast.AST, name: str) -> bool:
    """The number is compared, bounded or replaced somewhere: who does so has thought of 0."""
    for node in ast.walk(place):
        match node:
            case (
                ast.Compare()
                | ast.BoolOp()
                | ast.UnaryOp(op=ast.Not())
                | ast.Call(func=ast.Name(id="max"))
            ):
                if name in names_in(node) and not _is_length(node):
                    return True
    return False


def _is_length(node: ast.AST) -> bool:
    """`len(found) > n`, which bounds nothing."""
    match node:
        case ast.Compare(left=ast.Call(func=ast.Name(id="len")), ops=[ast.Gt()]):
            return True
    return False


def _foreign(module: Module, call: ast.Call, function: Function) -> Findings:
    """All that is in a folder is taken for checkpoints, which nothing tests."""
    nodes = list(inside(function.body))
    listings = list(calls_in(nodes, _LISTS))
    bound = module.bindings(function).values()
    taken = [full_path(module, each) for call in listings for each in (call, *call.args)]
    if any(_names_checkpoints(part) for each in taken for part in ast.walk(each)) or any(
        _OWN_FOLDER.search(part.value)
        for value in chain.from_iterable(bound)
        if value is not None
        for part in ast.walk(value)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ):
        return
    called = {last_name(node.func) for node in nodes if isinstance(node, ast.Call)}
    for each in module.functions:
        nodes += inside(each.body) if each.name in called else ()
    tests = any(True for _ in calls_in(nodes, _STRICT)) or any(
        isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In) for node in nodes
    )
    if listings and not tests:
        detail = f"line {listings[0].lineno} takes all that is there"
        yield module.finding("rotation-deletes-foreign", call, detail)


def _names_checkpoints(part: ast.AST) -> bool:
    match part:
        case ast.Constant(value=str() as text):
            return bool(_OWN_FOLDER.search(text) or _PATTERN.match(text))
    return False
