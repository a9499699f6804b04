"""The checkpoints that code writes, and which of their keys any code looks up."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.tree import inside, last_name

PROGRESS = re.compile(
    r"^(cur(rent)?_|last_|global_|start_|train_)?(epoch|step|iter|iteration)s?(_num|_idx|_?no|_run|_done)?$"
    r"|^(num|n)_?(epochs?|steps?|iters?|updates?)$",
    re.I,
)
_LOADERS = frozenset({"torch.load", "torch.serialization.load"})


@dataclass(frozen=True, slots=True)
class Saved:
    """A dictionary that becomes a checkpoint: what each key holds."""

    module: Module
    entries: dict[str, ast.expr]
    is_whole: bool
    """Its keys are all known."""

    def progress(self) -> list[str]:
        """The keys under which the step or the epoch stands."""
        return [key for key in self.entries if PROGRESS.match(key)]


def saved_in(module: Module) -> Iterator[Saved]:
    """Dictionaries with the state of something, and more."""
    for node in module.each(ast.Dict):
        if not isinstance(node, ast.Dict) or len(node.keys) < 2:
            continue
        entries = {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        function = module.function(node)
        composed = function is not None and function.name in ("state_dict", "get_state")
        if composed or not any(state_of(value) for value in entries.values()):
            continue
        is_whole = len(entries) == len(node.keys) and not _grows(module, node)
        yield Saved(module, entries, is_whole)


def state_of(node: ast.expr) -> str:
    """`optimizer` of `optimizer.state_dict()`; "" for anything else."""
    for part in ast.walk(node):
        match part:
            case ast.Call(func=ast.Attribute(value=owner, attr="state_dict")):
                return last_name(owner) or "?"
    return ""


def _grows(module: Module, node: ast.Dict) -> bool:
    """Keys are added to the dictionary later, or it is handed on by a name that others change."""
    statement = module.statement(node)
    if not isinstance(statement, ast.Assign) or statement.value is not node:
        return False
    names = {last_name(target) for target in statement.targets}
    for other in module.each(ast.Subscript):
        match other:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()) if name in names:
                return True
    return any(
        isinstance(call.func, ast.Attribute) and last_name(call.func.value) in names
        for call in module.called("update")
    )


def keys_read(program: Program) -> frozenset[str] | None:
    """The keys that code looks up anywhere; None: some checkpoint is handed on as a whole."""
    found: set[str] = set()
    loads = False
    for module in program.modules:
        for node in module.each(ast.Subscript, ast.Compare):
            match node:
                case ast.Subscript(slice=ast.Constant(value=str() as key), ctx=ast.Load()):
                    found.add(key)
                case ast.Compare(left=ast.Constant(value=str() as key), ops=[ast.In()]):
                    found.add(key)
        for name in ("get", "pop"):
            for call in module.called(name):
                if call.args and isinstance(call.args[0], ast.Constant):
                    found.add(str(call.args[0].value))
        for call in module.calls_to(_LOADERS):
            loads = True
            if _is_handed_on(module, call):
                return None
    return frozenset(found) if loads else None


def _is_handed_on(module: Module, load: ast.Call) -> bool:
    """What is loaded is used otherwise than by keys that are plain to see."""
    parent = module.parents[load]
    match parent:
        case ast.Subscript(slice=ast.Constant()) | ast.Attribute(attr="get"):
            return False
        case ast.Assign(targets=[ast.Name(id=name)]):
            pass
        case ast.Call(func=ast.Attribute(attr="load_state_dict")):
            return False  # the file is of weights alone
        case _:
            return True
    scope = module.scope(load)
    body = scope.body if not isinstance(scope, ast.Lambda) else []
    for node in inside(body):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            match module.parents[node]:
                case ast.Subscript(slice=ast.Constant()) | ast.Compare() | ast.Delete():
                    pass
                case ast.Attribute(attr="get" | "pop" | "keys"):
                    pass
                case ast.Call(func=ast.Attribute(attr="load_state_dict" | "save")):
                    pass
                case _:
                    return True
    return False
