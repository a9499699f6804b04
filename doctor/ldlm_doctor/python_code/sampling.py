"""Which samples a rank gets, in which order."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Edits, Findings
from ldlm_doctor.python_code.loaders import FOR_EVALUATION, called
from ldlm_doctor.python_code.module import Module, matching, naming
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.source_text import line_before
from ldlm_doctor.python_code.tree import Function
from ldlm_doctor.python_code.values import arguments, constant

SAMPLER = frozenset(
    {"torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"}
)
_EPOCH = re.compile("epoch")


def inspect(module: Module, program: Program) -> Findings:
    """Samplers of training data whose `set_epoch` is never called."""
    if program.framework_does_it(module) or not program.trains(module):
        return
    if program.any_relative(naming("set_epoch"), module):
        return
    for call in module.calls_to(SAMPLER):
        given = arguments(module, call, ("dataset", "num_replicas", "rank", "shuffle"))
        shuffle = given["shuffle"]
        if not given.complete or (shuffle is not None and constant(module, shuffle) is not True):
            continue
        if FOR_EVALUATION.search("_".join(called(module, call))):
            continue
        if program.any_relative(matching(_EPOCH), module):
            yield module.finding("sampler-set-epoch", call, edits=_epoch_set(module, program, call))


def _epoch_set(module: Module, program: Program, call: ast.Call) -> Edits:
    """The call of `set_epoch`, where sampler and loop over epochs are in one function."""
    statement, function = module.statement(call), module.function(call)
    match statement:
        case ast.Assign(targets=[ast.Name() as sampler], value=value) if value is call:
            pass
        case _:
            return ()
    if function is None or statement not in function.body:
        return ()
    for loop in program.loops(module):
        match outer := loop.outer():
            case ast.For(target=ast.Name() as epoch, body=[first, *_]) if (
                "epoch" in epoch.id
                and module.function(outer) is function
                and module.bindings(function)[sampler.id] == [call]
                and not isinstance(first, Function)
            ):
                return line_before(module, first, f"{sampler.id}.set_epoch({epoch.id})")
    return ()
