"""Which samples a rank gets, in which order: samplers and splits."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Edits, Findings
from ldlm_doctor.python_code.expressions import expressions_in, names_in, receiver
from ldlm_doctor.python_code.loaders import FOR_EVALUATION, called
from ldlm_doctor.python_code.module import Module, matching, naming
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.source_text import line_before
from ldlm_doctor.python_code.training import is_rank
from ldlm_doctor.python_code.tree import Function, inside
from ldlm_doctor.python_code.values import arguments, constant

_SAMPLER = frozenset(
    {"torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"}
)
_EPOCH = re.compile("epoch")
_SPLIT = frozenset({"torch.utils.data.random_split", "torch.utils.data.dataset.random_split"})
_SHUFFLES = frozenset({"random.shuffle", "numpy.random.shuffle", "numpy.random.permutation"})
_SUBSETS = frozenset({"torch.utils.data.Subset", "torch.utils.data.dataset.Subset"})


def inspect_samplers(module: Module, program: Program) -> Findings:
    """Samplers of training data whose `set_epoch` is never called."""
    if program.framework_does_it(module) or not program.trains(module):
        return
    if program.any_relative(naming("set_epoch"), module):
        return
    for call in module.calls_to(_SAMPLER):
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


def inspect_splits(module: Module, program: Program) -> Findings:
    """Splits by global random numbers, in a program that seeds them by rank."""
    drawn = [call for call in module.calls_to(_SPLIT) if arguments(module, call).lacks("generator")]
    drawn += [call for call in module.calls_to(_SHUFFLES) if _is_for_subsets(module, call)]
    if drawn and program.is_distributed(module) and program.any_relative(_seeds_by_rank, module):
        yield from (module.finding("split-differs-between-ranks", call) for call in drawn)


def _is_for_subsets(module: Module, call: ast.Call) -> bool:
    function = module.function(call)
    return function is not None and any(
        isinstance(node, ast.Call) and module.means(node.func, _SUBSETS)
        for node in inside(function.body)
    )


def _seeds_by_rank(module: Module) -> bool:
    """`torch.manual_seed(seed + rank)`, of random or numpy as well, but of no own generator."""
    for call in module.called("manual_seed", "seed", "seed_everything", "set_seed"):
        for given in call.args[:1]:
            bound = module.bound(given) if isinstance(given, ast.Name) else None
            own = {name for name in names_in(receiver(call)) if "generator" in name.lower()}
            if not own and any(map(is_rank, expressions_in(bound or given))):
                return True
    return False
