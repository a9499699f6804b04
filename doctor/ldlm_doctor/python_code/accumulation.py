"""Gradients of several batches for one step: whether it happens, and what it costs."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.expressions import last_name, names_in, receiver, variables_in
from ldlm_doctor.python_code.module import Module, calling, naming
from ldlm_doctor.python_code.program import DDP, Program
from ldlm_doctor.python_code.training import TrainingLoop, is_optimizer_step
from ldlm_doctor.python_code.tree import inside
from ldlm_doctor.python_code.unread import ACCUMULATION

_NO_SYNC = ("no_sync", "require_backward_grad_sync", "set_requires_gradient_sync")
_COUNTS = re.compile(r"accum|micro|grad.*steps|update_freq|iter_size|loss", re.I)
"""Names of what a loss or its gradients are divided by, and of the loss itself."""


def inspect(module: Module, program: Program) -> Findings:
    """Loops that accumulate."""
    if program.framework_does_it(module):
        return
    for loop in program.loops(module):
        yield from _zeroed(loop)
        if _accumulates(loop) and not any(map(_averages, program.relatives(module))):
            yield from _summed(loop)
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


def _zeroed(loop: TrainingLoop) -> Findings:
    """`zero_grad()` at every turn, where a remainder decides whether the optimizer steps."""
    steps = loop.optimizer_steps()
    if not steps or not all(_is_modulo(loop, step) for step in steps):
        return
    owners = {ast.dump(owner) for step in steps for owner in (*step.args[:1], receiver(step))}
    for zero in loop.calls("zero_grad"):
        if ast.dump(receiver(zero)) not in owners or _is_modulo(loop, zero):
            continue
        last = max(call.lineno for call in loop.backwards)
        drops_all = any(last < zero.lineno < step.lineno for step in steps)  # worse: see updates
        if loop.is_every_turn(zero) and not drops_all:
            yield loop.module.finding("accumulation-zeroed", zero)


def _averages(module: Module) -> bool:
    """Something is divided by what counts the micro-batches, or gradients are scaled by hand."""
    if {"scale_grads", "reduction", "num_items_in_batch"} & module.words:
        return True
    for node in module.each(ast.BinOp, ast.AugAssign):
        match node:
            case ast.BinOp(op=ast.Div() | ast.Mult(), left=left, right=right):
                parts: tuple[ast.expr, ...] = (left, right)
            case ast.AugAssign(op=ast.Div() | ast.Mult(), target=target, value=value):
                parts = (target, value)
            case _:
                continue
        if any(_COUNTS.search(name) for part in parts for name in names_in(part)):
            return True
    return any(call.args for call in module.called("div_", "mul_", "div"))


def _summed(loop: TrainingLoop) -> Findings:
    """`loss.backward()` of a loss as the model gave it."""
    for call in loop.backwards:
        match receiver(call):
            case (
                ast.Name(id=name)
                | ast.Call(func=ast.Attribute(attr="scale"), args=[ast.Name(id=name)])
            ) if not call.args and _is_given_by_model(loop, name):
                yield loop.module.finding("accumulation-not-averaged", call)


def _is_given_by_model(loop: TrainingLoop, name: str) -> bool:
    """The name is assigned once in a turn, what a call gave."""
    given = [
        node.value
        for node in loop.nodes()
        if isinstance(node, ast.Assign) and name in set().union(*map(variables_in, node.targets))
    ]
    return len(given) == 1 and isinstance(given[0], ast.Call)


def _is_modulo(loop: TrainingLoop, step: ast.Call) -> bool:
    """`if (i + 1) % n == 0: optimizer.step()`."""
    for outer in loop.module.above(step):
        if outer is loop.loop:
            return False
        if isinstance(outer, ast.If) and counts(loop.module, outer.test):
            return True
    return False


def _is_left_before(loop: TrainingLoop, step: ast.Call) -> bool:
    """`if (i + 1) % n: continue` before it."""
    return any(
        isinstance(node, ast.If)
        and node.lineno < step.lineno
        and any(isinstance(statement, ast.Continue) for statement in node.body)
        and counts(loop.module, node.test)
        for node in loop.nodes()
    )


def counts(module: Module, test: ast.expr) -> bool:
    """A condition on a remainder, directly or by a name for it."""
    bound = (module.bound(part) for part in ast.walk(test) if isinstance(part, ast.Name))
    return any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)
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
