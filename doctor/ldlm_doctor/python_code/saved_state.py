"""The checkpoints that code writes: their keys, which of them any code reads, which ranks save."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.checkpoints import SAVE, full_path, is_checkpoint
from ldlm_doctor.python_code.expressions import last_name, owner_name, words_in
from ldlm_doctor.python_code.module import Module, calling
from ldlm_doctor.python_code.program import DDP, Program
from ldlm_doctor.python_code.tree import Function, body_of, inside
from ldlm_doctor.python_code.values import arguments

PROGRESS = re.compile(
    r"^(cur(rent)?_|last_|global_|start_|train_)?(epoch|step|iter|iteration)s?(_num|_idx|_?no|_run|_done)?$"
    r"|^(num|n)_?(epochs?|steps?|iters?|updates?)$",
    re.I,
)
LOADERS = frozenset({"torch.load", "torch.serialization.load"})
_GUARD = re.compile(
    r"rank|main|master|primary|chief|leader|root|coordinator|writer|gpu|device|zero|host|world"
    r"|proc|node|ddp|dist|local|logger|is_save|should_save|can_save",
    re.I,
)
_OWN = re.compile(r"rank|gpu|host|pid|device|shard|world|tempfile|mkstemp|uuid", re.I)
_SHARDED = frozenset(
    {"FullyShardedDataParallel", "fully_shard", "deepspeed", "FSDP", "set_state_dict_type", "xm"}
)
_FARTHEST = 4


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
    """Keys are added to the dictionary later, or its name is passed to `update`."""
    statement = module.statement(node)
    if not isinstance(statement, ast.Assign) or statement.value is not node:
        return False
    names = {last_name(target) for target in statement.targets}
    stored = (node for node in module.each(ast.Subscript) if isinstance(node.ctx, ast.Store))
    if any(isinstance(node.value, ast.Name) and node.value.id in names for node in stored):
        return True
    return any(owner_name(call) in names - {""} for call in module.called("update"))


def keys_read(program: Program) -> frozenset[str] | None:
    """The keys that code looks up anywhere; None: some checkpoint is passed on as a whole."""
    found: set[str] = set()
    loads = False
    for module in program.modules:
        for node in module.each(ast.Subscript, ast.Compare):
            match node:
                case ast.Subscript(slice=ast.Constant(value=str() as key), ctx=ast.Load()):
                    found.add(key)
                case ast.Compare(left=ast.Constant(value=str() as key), ops=[ast.In()]):
                    found.add(key)
        for call in module.called("get", "pop"):
            if call.args and isinstance(call.args[0], ast.Constant):
                found.add(str(call.args[0].value))
        for call in module.calls_to(LOADERS):
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
    for node in inside(body_of(module.scope(load))):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            match module.parents[node]:
                case (
                    ast.Subscript(slice=ast.Constant())
                    | ast.Compare()
                    | ast.Delete()
                    | ast.Attribute(attr="get" | "pop" | "keys")
                    | ast.Call(func=ast.Attribute(attr="load_state_dict" | "save"))
                ):
                    pass
                case _:
                    return True
    return False


def inspect(module: Module, program: Program) -> Findings:
    """Each torch.save of a checkpoint in a training on several ranks."""
    saves = list(module.calls_to(SAVE))
    if not saves or not program.any_near(calling(DDP), module) or program.framework_does_it(module):
        return
    if any(_SHARDED & each.words for each in program.relatives(module)):
        return
    for call in saves:
        given = arguments(module, call, ("obj", "f"))
        path = given["f"]
        if path is None or not is_checkpoint(module, given["obj"], path):
            continue
        words = words_in(full_path(module, path)) | words_in(path)
        if any(map(_OWN.search, words)):
            continue
        turning = {
            id(loop) for each in program.near(module) for _, loop in program.loops_around(each)
        }
        if turning and _is_reached_by_all(module, program, call, turning):
            yield module.finding("checkpoint-saved-by-all-ranks", call)


def _is_reached_by_all(
    module: Module, program: Program, node: ast.AST, turning: set[int], depth: int = 0
) -> bool:
    """A training loop reaches the node, and no condition on the way tests the rank."""
    in_training = False
    child = node
    for outer in module.above(node):
        if isinstance(child, ast.stmt) and _is_left_before(module, child):
            return False
        if isinstance(outer, ast.If | ast.IfExp) and _may_choose_ranks(outer.test):
            return False
        if isinstance(outer, ast.With) and any(
            map(_GUARD.search, (w for i in outer.items for w in words_in(i.context_expr)))
        ):
            return False
        in_training |= id(outer) in turning
        if isinstance(outer, Function):
            if any(map(_GUARD.search, (w for d in outer.decorator_list for w in words_in(d)))):
                return False
            return in_training or _is_called_by_all(module, program, outer, turning, depth)
        child = outer
    return in_training


def _may_choose_ranks(test: ast.expr) -> bool:
    """It names ranks, or tests something that only one rank may have created."""
    match test:
        case ast.Name() | ast.Attribute():
            return True
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.BoolOp(values=values):
            return any(map(_may_choose_ranks, values))
    return any(map(_GUARD.search, words_in(test)))


def _is_left_before(module: Module, child: ast.stmt) -> bool:
    for statement in module.block(child):
        if statement is child:
            return False
        match statement:
            case ast.If(test=test, body=[*_, ast.Return() | ast.Continue() | ast.Raise()]):
                if any(map(_GUARD.search, words_in(test))):
                    return True
    return False


def _is_called_by_all(
    module: Module, program: Program, function: Function, turning: set[int], depth: int
) -> bool:
    if depth >= _FARTHEST or program.definitions[function.name] != 1:
        return False
    return any(
        _is_reached_by_all(other, program, call, turning, depth + 1)
        for other in program.relatives(module)
        for call in other.called(function.name)
        if other.function(call) is not function
    )
