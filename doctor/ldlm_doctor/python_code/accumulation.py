"""Gradients of several batches for one step: whether it happens, and what it costs."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.expressions import last_name, names_in
from ldlm_doctor.python_code.facts import DDP, calling, naming
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.training import TrainingLoop, is_optimizer_step
from ldlm_doctor.python_code.tree import inside
from ldlm_doctor.python_code.unread import ACCUMULATION

_TURN = re.compile(r"step|iter|micro|batch_?(i|n)|idx|index|count|(^|_)it$", re.I)
"""Names of what counts turns; the remainder of a picture's width is none of theirs."""
_NO_SYNC = ("no_sync", "require_backward_grad_sync", "set_requires_gradient_sync")


def inspect(module: Module, program: Program) -> Findings:
    """Loops that accumulate."""
    if program.framework_does_it(module):
        return
    for loop in program.loops(module):
        if (
            _accumulates(loop)
            and program.any_near(calling(DDP), module)
            and not program.any_relative(naming(*_NO_SYNC), module)
        ):
            yield module.finding("accumulation-without-no-sync", loop.backwards[0])


def _accumulates(loop: TrainingLoop) -> bool:
    """The optimizer steps more rarely than backward runs, by a counter."""
    steps = loop.optimizer_steps()
    if _counts_micro_batches(loop):
        own = inside(loop.loop.body)
        return not any(isinstance(node, ast.Call) and is_optimizer_step(node) for node in own)
    return any(_is_modulo(loop, step) or _is_left_before(loop, step) for step in steps)


def _is_modulo(loop: TrainingLoop, step: ast.Call) -> bool:
    """`if (i + 1) % n == 0: optimizer.step()`, where backward is not under that condition too."""
    for outer in loop.module.above(step):
        if outer is loop.loop:
            return False
        if isinstance(outer, ast.If) and counts(loop.module, outer.test):
            rare = {id(node) for node in inside(outer.body)}
            return any(id(call) not in rare for call in loop.backwards)
    return False


def _is_left_before(loop: TrainingLoop, step: ast.Call) -> bool:
    """`if (i + 1) % n: continue` between backward and it."""
    return any(
        isinstance(node, ast.If)
        and node.lineno < step.lineno
        and any(call.lineno < node.lineno for call in loop.backwards)
        and any(isinstance(statement, ast.Continue) for statement in node.body)
        and counts(loop.module, node.test)
        for node in loop.nodes()
    )


def counts(module: Module, test: ast.expr) -> bool:
    """A condition on the remainder of something that counts, directly or by a name for it."""
    bound = (module.bound(part) for part in ast.walk(test) if isinstance(part, ast.Name))
    targets = [each.target for each in module.each(ast.For)]
    targets += [each.target for each in module.each(ast.AugAssign)]
    counters = set().union(*map(names_in, targets))
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Mod)
        and any(name in counters or _TURN.search(name) for name in names_in(part.left))
        for node in (test, *bound)
        if node is not None
        for part in ast.walk(node)
    )


def _counts_micro_batches(loop: TrainingLoop) -> bool:
    """`for micro in range(accumulation_steps)`."""
    match loop.loop:
        case ast.For(iter=ast.Call() as call) if last_name(call.func) in ("range", "trange"):
            return any(
                ACCUMULATION.match(name) or "accum" in name.lower() for name in names_in(call)
            )
    return False
