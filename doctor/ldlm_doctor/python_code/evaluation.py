"""Evaluations in which each rank has a share of the data, and whose result is one rank's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.collectives import agreed, agrees
from ldlm_doctor.python_code.expressions import keyword, last_name, names_in, receiver, words_in
from ldlm_doctor.python_code.facts import accelerates, matching
from ldlm_doctor.python_code.loaders import FOR_EVALUATION, called
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.origins import assigned, callers
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.rank_branches import rank_branch
from ldlm_doctor.python_code.sampling import SAMPLER
from ldlm_doctor.python_code.training import without_gradient
from ldlm_doctor.python_code.tree import Function, body_of, inside
from ldlm_doctor.python_code.values import arguments, constant

_SUMMED = re.compile(r"loss|correct|entropy|(^|_)(acc|nll|ppl|score)", re.I)
_BATCHES = re.compile(r"load|dl$|data|batch", re.I)
_RESULT = re.compile(r"val|test|loss|acc|metric|score", re.I)
_LIGHTNING = {"lightning", "pytorch_lightning"}
_DDP = re.compile(r"ddp|fsdp", re.I)
_VALIDATES = re.compile(r"^(validation|test|on_validation|on_test)_")


def inspect(module: Module, program: Program) -> Findings:
    """Each loop that adds up a loss without gradients, and what Lightning logs of one."""
    packages = {name.partition(".")[0] for level, name in module.imported if level == 0}
    if packages & _LIGHTNING:
        if any(map(matching(_DDP), program.users(module))):
            yield from _logged_alone(module)
        return
    if "torchmetrics" in packages:
        return
    sharing = [user for user in program.users(module) if _shares(user)]
    for loop in module.each(ast.For):
        summed, function = _summed(module, loop), module.function(loop)
        name = function.name if function is not None else ""
        if not any(user is module or name in user.words for user in sharing):
            continue
        if not summed or not without_gradient(module, loop) or rank_branch(module, loop):
            continue
        if any(map(_is_agreement, inside(loop.body))):
            continue
        if program.runs_on_several_ranks(module) and _is_alone(program, module, loop, summed):
            yield module.finding("evaluation-of-one-rank", loop, min(summed))


def _shares(module: Module) -> bool:
    """What is evaluated is dealt out to the ranks: by a sampler, or by Accelerate."""
    if accelerates(module):
        return True
    for call in module.calls_to(SAMPLER):
        shuffle = arguments(module, call, ("dataset", "num_replicas", "rank", "shuffle"))["shuffle"]
        if FOR_EVALUATION.search("_".join(called(module, call))):
            return True
        if shuffle is not None and constant(module, shuffle) is not True:
            return True
    return False


def _summed(module: Module, loop: ast.For) -> set[str]:
    """The numbers and lists that each batch adds to; they begin before the loop over batches."""
    if not any(map(_BATCHES.search, names_in(loop.iter))):
        return set()
    found = set()
    for node in inside(loop.body):
        match node:
            case ast.AugAssign(op=ast.Add(), target=ast.Name(id=name), value=value):
                pass
            case ast.Call(
                func=ast.Attribute(attr="append", value=ast.Name(id=name) as held), args=[value]
            ) if all(isinstance(each, ast.List) for each in assigned(module, held)):
                pass
            case _:
                continue
        if any(map(_SUMMED.search, (name, *words_in(value)))) or "item" in names_in(value):
            found.add(name)
    own = {
        last_name(target)
        for node in inside(loop.body)
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    return found - own


def _is_alone(program: Program, module: Module, loop: ast.For, summed: set[str]) -> bool:
    """No rank is asked for its part: not in the loop's function, nor where that is called."""
    function = module.function(loop)
    scope = module.scope(loop)
    if isinstance(scope, ast.Lambda) or _agreed(module, scope, summed):
        return False
    if function is None or not without_gradient(module, function.body[0]):
        return True
    if any(_is_agreement(node) for node in inside(function.body)):
        return False
    places = list(callers(program, module, function))
    return bool(places) and not any(
        rank_branch(where, call) or _agreed(where, where.scope(call), _given(where, call))
        for where, call in places
    )


def _agreed(module: Module, scope: ast.AST, names: set[str]) -> bool:
    """What these names hold, or what is made of them, is made common to all ranks."""
    if not isinstance(scope, Function | ast.Module):
        return True
    for _ in range(3):
        names = names | set(_made_of(body_of(scope), names))
    return agreed(module, inside(body_of(scope)), body_of(scope)[-1], names) or any(
        _is_agreement(node) and names_in(node) & names for node in inside(body_of(scope))
    )


def _made_of(body: list[ast.stmt], names: set[str]) -> Iterator[str]:
    for node in inside(body):
        match node:
            case ast.Assign(targets=targets, value=value) if names_in(value) & names:
                yield from (name for target in targets for name in names_in(target))
            case ast.AugAssign(target=target, value=value) if names_in(target) & names:
                yield from names_in(value)


def _is_agreement(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (
        agrees(node) or "synchronize_" in last_name(node.func).lower()
    )


def _given(module: Module, call: ast.Call) -> set[str]:
    """The names that a result is assigned to."""
    statement = module.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {name for target in targets for name in names_in(target)}


def _logged_alone(module: Module) -> Findings:
    """`self.log("val_loss", loss)` without `sync_dist=True`; metrics of torchmetrics do it."""
    for call in module.called("log", "log_dict"):
        function = module.function(call)
        if function is None or not _VALIDATES.match(function.name) or not call.args[1:2]:
            continue
        beside = (f for f in module.functions if module.class_of(f) is module.class_of(call))
        validating = [node for f in beside if _VALIDATES.match(f.name) for node in inside(f.body)]
        if last_name(receiver(call)) != "self" or any(map(_is_agreement, validating)):
            continue
        if not any(map(_RESULT.search, words_in(call.args[0]))):
            continue
        given = arguments(module, call)
        logged = call.args[1]
        while isinstance(logged, ast.Call):  # `self.accuracy.compute()`
            logged = receiver(logged)
        if isinstance(logged, ast.Attribute) or not given.lacks("sync_dist"):
            continue
        if constant(module, keyword(call, "rank_zero_only")) is not True:
            yield module.finding("evaluation-of-one-rank", call, "sync_dist is not set")
            return
