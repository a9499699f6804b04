"""How checkpoints are written."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Edits, Findings, pattern
from ldlm_doctor.python_code.declared import likely
from ldlm_doctor.python_code.expressions import keyword, last_name, names_in, words_in
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.source_text import line_after, replaced
from ldlm_doctor.python_code.tree import Function, Loop, body_of, calls_in, inside
from ldlm_doctor.python_code.values import arguments, default_of, number

_DEEPEST = 8
SAVE = frozenset({"torch.save"})
_STEP = re.compile(r"(^|_)(step|steps|epoch|epochs|iter|iters|iteration|it|tokens)(_|\d|$)", re.I)
_TOTAL = re.compile(r"^[A-Z_]+$|epochs$|^(n|num|max|total)_")
"""Names of how many steps there are, which stays."""
_CHECKPOINT = re.compile(r"ckpt|checkpoint|latest|(^|_)last|snapshot|resume", re.I)
_SAVES = re.compile(r"save_?(training_)?(checkpoint|ckpt|snapshot|state$)", re.I)
_OPTIMIZER = re.compile(r"optim|opt_state|^opt$|scheduler|scaler", re.I)
_END = re.compile(r"(^|_)(last|final|end)(_|$)|(^|_)(is_)?(done|finished)$", re.I)
_MOVES = {"replace", "rename", "move", "renames"}
_KEEPS = re.compile(pattern("rotates"), re.I)


def inspect(module: Module, program: Program) -> Findings:
    """Each torch.save of a program that trains."""
    if not program.has_loops(module):
        return
    for call in module.calls_to(SAVE):
        given = arguments(module, call, ("obj", "f"))
        path = given["f"]
        if path is None or not is_checkpoint(module, given["obj"], path):
            continue
        place = full_path(module, path)
        if _varies(module, program, place, path):
            if (
                _in_training(module, program, call)
                and not _is_last(module, call)
                and not program.any_relative(_deletes, module)
            ):
                yield module.finding("checkpoint-no-rotation", call)
        elif (
            _is_fixed(module, place)
            and _in_training(module, program, call)
            and not _is_moved(module, call, place)
        ):
            yield module.finding("checkpoint-not-atomic", call, edits=_atomic(module, call, path))
    yield from _deleted_first(module)


def full_path(module: Module, path: ast.expr, depth: int = 0) -> ast.expr:
    """The path with a name that stands for it replaced by what it is."""
    if depth > _DEEPEST:
        return path
    bound = module.bound_attribute(path) if isinstance(path, ast.Attribute) else None
    if isinstance(path, ast.Name):
        scope = module.scope(path)
        default = default_of(scope, path.id) if isinstance(scope, Function) else None
        bound = module.bound(path)
        if bound is None and isinstance(default, ast.Constant) and default.value:
            bound = default
    if bound is not None:
        return full_path(module, bound, depth + 1)
    if isinstance(path, ast.Call) and last_name(path.func) in ("str", "Path") and path.args:
        return full_path(module, path.args[-1], depth + 1)
    return path


def is_checkpoint(module: Module, held: ast.expr | None, path: ast.expr) -> bool:
    """What is saved is there to go on from: it holds the optimizer, or its name says so."""
    if isinstance(held, ast.Name):
        held = module.bound(held) or held
    if held is not None and any(_OPTIMIZER.search(name) for name in words_in(held)):
        return True
    function = module.function(path)
    if function is not None and _SAVES.search(function.name):
        return True
    return any(_CHECKPOINT.search(word) for word in words_in(full_path(module, path)))


def _varies(module: Module, program: Program, place: ast.expr, path: ast.expr) -> bool:
    """The path has the step in it, here or where the folder is passed."""
    if _has_step(module, place):
        return True
    folder = _folder(place)
    if not isinstance(folder, ast.Name):
        return False
    bound = module.bound(folder)
    if bound is not None:
        return _has_step(module, bound) or _comes_with_step(module, program, bound)
    return _comes_with_step(module, program, folder)


def _comes_with_step(module: Module, program: Program, node: ast.expr) -> bool:
    """A parameter that callers give a path with the step in it."""
    name = next((n for n in ast.walk(node) if isinstance(n, ast.Name)), None)
    function = module.function(name) if name is not None else None
    if name is None or function is None:
        return False
    names = [argument.arg for argument in function.args.args]
    if name.id not in names:
        return False
    at = names.index(name.id) - (1 if names[0] == "self" else 0)
    for other in program.relatives(module):
        for call in other.called(function.name):
            given = keyword(call, name.id) or (call.args[at] if 0 <= at < len(call.args) else None)
            if given is not None and _has_step(other, full_path(other, given)):
                return True
    return False


def _has_step(module: Module, node: ast.expr) -> bool:
    inner = (part for part in ast.walk(node) if isinstance(part, ast.Name) and part is not node)
    parts = (node, *(bound for name in inner if (bound := module.bound(name)) is not None))
    names = {name for part in parts for name in names_in(part)}
    return any(_STEP.search(name) and not _TOTAL.search(name) for name in names)


def _folder(place: ast.expr) -> ast.expr | None:
    match place:
        case ast.BinOp(left=left, op=ast.Div() | ast.Add()):
            return left
        case ast.Call(args=[first, *_]) if last_name(place.func) == "join":
            return first
        case ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
            return first
        case ast.Name():
            return place
    return None


def _is_fixed(module: Module, place: ast.expr) -> bool:
    """The file itself has a name that stays: a constant at the end."""
    match place:
        case ast.Constant(value=str()):
            return True
        case ast.BinOp(right=ast.Constant(value=str() as name)):
            return "." in name
        case ast.Call(args=[*_, ast.Constant(value=str())]) if last_name(place.func) == "join":
            return True
        case ast.JoinedStr(values=[*_, ast.Constant(value=str() as end)]):
            fields = [v for v in place.values if isinstance(v, ast.FormattedValue)]
            return "/" in end and len(fields) >= 1
    return False


def _is_moved(module: Module, call: ast.Call, place: ast.expr) -> bool:
    """The file is written under another name first, or copied at once."""
    if any(re.search(r"te?mp|partial|writing", word, re.I) for word in words_in(place)):
        return True
    nodes = list(inside(body_of(module.scope(call))))
    return any(
        module.resolve(node.func).startswith(("os.", "shutil."))
        or (last_name(node.func) in ("rename", "replace") and len(node.args) == 1)
        for node in calls_in(nodes, _MOVES)
    ) or any(
        module.statement(node) in module.block(module.statement(call))
        for node in calls_in(nodes, ("copy", "copy2", "copyfile"))
    )


def _atomic(module: Module, call: ast.Call, path: ast.expr) -> Edits:
    """Saved under `….tmp`, then renamed; where `os` is imported and the path is plain to see."""
    statement = module.statement(call)
    is_plain = isinstance(statement, ast.Expr) and statement.value is call
    if not is_plain or module.imports.get("os") != "os" or not _is_pure(path):
        return ()
    if not any(
        isinstance(s, ast.Import) and any(a.name == "os" and not a.asname for a in s.names)
        for s in module.tree.body
    ):
        return ()
    written = module.text(path)
    if "\n" in written:
        return ()
    temporary = f'str({written}) + ".tmp"'
    renamed = line_after(module, statement, f"os.replace({temporary}, {written})")
    return (replaced(module, path, temporary), *renamed) if renamed else ()


def _is_pure(path: ast.expr) -> bool:
    """A path whose parts are names and constants: to compute it twice changes nothing."""
    match path:
        case ast.BinOp(op=ast.Div(), left=left, right=ast.Constant(value=str())):
            return isinstance(left, ast.Name | ast.Attribute) or _is_pure(left)
        case ast.Call(args=[*given], keywords=[]) if last_name(path.func) == "join":
            return all(isinstance(each, ast.Name | ast.Attribute | ast.Constant) for each in given)
        case ast.Constant(value=str()):
            return True
    return False


def _in_training(module: Module, program: Program, call: ast.Call) -> bool:
    """The save is part of a loop, or of a function that a loop calls."""
    if module.loop(call) is not None:
        return True
    function = module.function(call)
    return function is not None and any(
        other.loop(each) is not None
        for other in program.relatives(module)
        for each in other.called(function.name)
    )


def _is_last(module: Module, call: ast.Call) -> bool:
    """The save runs only at the end, or at steps of a list, unless somebody asks for more."""
    child: ast.AST = call
    for outer in module.above(call):
        if isinstance(outer, Function | Loop):
            return False
        match outer:
            case ast.If(test=test, body=body) if any(child is each for each in body):
                if _asks_for_end(module, test):
                    return True
        child = outer
    return False


def _asks_for_end(module: Module, test: ast.expr) -> bool:
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return any(_asks_for_end(module, value) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            ends = [_asks_for_end(module, value) or _is_off(module, value) for value in values]
            return all(ends) and any(_asks_for_end(module, value) for value in values)
        case ast.Name() | ast.Attribute():
            return _END.search(last_name(test)) is not None
        case ast.Compare(left=ast.Name() | ast.Attribute() as left, ops=[ast.In() | ast.Eq()]):
            return _STEP.search(last_name(left)) is not None
    return False


def _is_off(module: Module, test: ast.expr) -> bool:
    """`save_every > 0 and ...`, where the default of the setting is 0."""
    values = test.values if isinstance(test, ast.BoolOp) else [test]
    return any(
        isinstance(value, ast.Compare)
        and isinstance(value.ops[0], ast.Gt)
        and likely(module, value.left) == 0
        and number(module, value.comparators[0]) == 0
        for value in values
    )


def _deletes(module: Module) -> bool:
    if any(name in module.methods_called for name in ("rmtree", "unlink", "rmdir")):
        return True
    if any(module.resolve(call.func) == "os.remove" for call in module.called("remove")):
        return True
    return any(_KEEPS.search(word) for word in module.words)


def _deleted_first(module: Module) -> Findings:
    for call in module.called("rmtree"):
        target, function = call.args[0] if call.args else None, module.function(call)
        if not isinstance(target, ast.Name | ast.Attribute) or function is None:
            continue
        if re.search(r"te?mp|partial|cache", last_name(target), re.I) or module.loop(call):
            continue
        later = (
            save
            for save in module.calls_to(SAVE)
            if module.function(save) is function and save.lineno >= call.lineno
        )
        paths = (arguments(module, save, ("obj", "f"))["f"] for save in later)
        if any(_holds(full_path(module, path), target) for path in paths if path is not None):
            yield module.finding("checkpoint-deleted-before-saved", call)


def _holds(path: ast.expr, part: ast.expr) -> bool:
    return any(ast.dump(each) == ast.dump(part) for each in ast.walk(path))
