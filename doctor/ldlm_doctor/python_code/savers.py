"""Which ranks write a checkpoint."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ldlm_doctor.model import Finding
from ldlm_doctor.python_code.checkpoints import SAVE, full_path, is_checkpoint
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import DDP, Program, calling
from ldlm_doctor.python_code.tree import Function, words_in
from ldlm_doctor.python_code.values import arguments

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


def inspect(module: Module, program: Program) -> Iterator[Finding]:
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
    """A training loop comes to the node, and nothing on the way looks at the rank."""
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
