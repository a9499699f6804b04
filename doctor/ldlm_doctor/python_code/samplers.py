"""The order of the samples, which differs between epochs only if the sampler is told of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor.model import Edit, Finding
from ldlm_doctor.python_code.bindings import Function
from ldlm_doctor.python_code.edits import inserted
from ldlm_doctor.python_code.loaders import FOR_EVALUATION, called
from ldlm_doctor.python_code.module import Loop, Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.values import arguments, constant

SAMPLER = frozenset(
    {
        "torch.utils.data.DistributedSampler",
        "torch.utils.data.distributed.DistributedSampler",
    }
)


def inspect(module: Module, program: Program) -> Iterator[Finding]:
    """Samplers of training data."""
    if program.framework_does_it(module) or not program.trains(module):
        return
    if program.any_relative(_sets_epoch, module):
        return
    for call in module.calls_to(SAMPLER):
        given = arguments(module, call, ("dataset", "num_replicas", "rank", "shuffle"))
        shuffle = given["shuffle"]
        if not given.complete or (shuffle is not None and constant(module, shuffle) is not True):
            continue
        if FOR_EVALUATION.search("_".join(called(module, call))):
            continue
        if not _has_epochs(module, program):
            continue
        yield module.finding("sampler-set-epoch", call, edits=_epoch_set(module, program, call))


def _sets_epoch(module: Module) -> bool:
    return "set_epoch" in module.words


def _has_epochs(module: Module, program: Program) -> bool:
    return program.any_relative(_counts_epochs, module)


def _counts_epochs(module: Module) -> bool:
    return any("epoch" in word for word in module.words)


def _epoch_set(module: Module, program: Program, call: ast.Call) -> tuple[Edit, ...]:
    """The call, where the sampler and the loop over epochs are plain to see in one function."""
    statement = module.statement(call)
    function = module.function(call)
    match statement:
        case ast.Assign(targets=[ast.Name() as sampler], value=value) if value is call:
            pass
        case _:
            return ()
    if function is None or statement not in function.body:
        return ()
    for loop in program.loops(module):
        outer: Loop | None = loop.outer()
        match outer:
            case ast.For(target=ast.Name() as epoch, body=[first, *_]) if (
                "epoch" in epoch.id
                and module.function(outer) is function
                and module.bindings(function)[sampler.id] == [call]
                and not isinstance(first, Function)
            ):
                start = module.start(first)
                indent = module.file.content[module.starts[first.lineno - 1] : start]
                if indent.strip():
                    return ()
                line = f"{sampler.id}.set_epoch({epoch.id})"
                return (
                    inserted(module, start, f"{line}{module.newline.decode()}{indent.decode()}"),
                )
    return ()
