"""Gradients of several batches for one step: whether it happens, and what it costs."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Finding, Findings, Kind, SourceFile
from ldlm_doctor.python_code.expressions import last_name, names_in, receiver, variables_in
from ldlm_doctor.python_code.module import Module, calling, naming
from ldlm_doctor.python_code.program import DDP, YAML_NUMBER, Program
from ldlm_doctor.python_code.training import TrainingLoop, is_optimizer_step
from ldlm_doctor.python_code.tree import inside
from ldlm_doctor.python_code.values import likely, option_names

_NAME = re.compile(
    r"^(grad(ient)?_?)?(accum(ulation|ulate)?)(_?grad(ient)?s?|_?batches)?(_?(steps?|iters?|iter))?$"
    r"|^grad(ient)?_acc(_steps)?$",
    re.I,
)
_NO_SYNC = ("no_sync", "require_backward_grad_sync", "set_requires_gradient_sync")
_COUNTS = re.compile(r"accum|micro|grad.*steps|update_freq|iter_size|loss", re.I)
"""Names of what a loss or its gradients are divided by, and of the loss itself."""


def inspect(module: Module, program: Program) -> Findings:
    """Loops that accumulate, and options that nobody asks for."""
    yield from _unread_options(module, program)
    yield from _unread_names(module, program)
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


def inspect_settings(program: Program) -> Findings:
    """Settings in YAML files that no Python file reads."""
    if not any(program.loops(module) for module in program.modules):
        return
    words = frozenset().union(*(module.words for module in program.modules))
    for file in program.files:
        if file.kind is Kind.YAML:
            yield from _unread_keys(file, words)


def _unread_keys(file: SourceFile, words: frozenset[str]) -> Findings:
    for found in YAML_NUMBER.finditer(file.content):
        name = found[1].decode()
        if _NAME.match(name) and int(found[2]) > 1 and name not in words:
            line = file.content.count(b"\n", 0, found.start(1)) + 1
            evidence = found[0].decode("utf-8", "replace").strip()
            yield Finding("accumulation-unread", file.path, line, evidence)


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
        if isinstance(outer, ast.If) and _counts(loop.module, outer.test):
            return True
    return False


def _is_left_before(loop: TrainingLoop, step: ast.Call) -> bool:
    """`if (i + 1) % n: continue` before it."""
    return any(
        isinstance(node, ast.If)
        and node.lineno < step.lineno
        and any(isinstance(statement, ast.Continue) for statement in node.body)
        and _counts(loop.module, node.test)
        for node in loop.nodes()
    )


def _counts(module: Module, test: ast.expr) -> bool:
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
            return any(_NAME.match(name) or "accum" in name.lower() for name in names_in(call))
    return False


def _unread_options(module: Module, program: Program) -> Findings:
    """An option of argparse whose attribute is read nowhere."""
    for call in module.called("add_argument"):
        names = [name for name in option_names(call) if _NAME.match(name)]
        if not names or not program.trains(module):
            continue
        if not any(_reads(other, names) for other in program.relatives(module)):
            yield module.finding("accumulation-unread", call, f"args.{names[0]} is read nowhere")


def _unread_names(module: Module, program: Program) -> Findings:
    """A constant, or a field of a class with settings, that is set and never used."""
    if not program.trains(module):
        return
    for statement in module.each(ast.Assign, ast.AnnAssign):
        match statement:
            case ast.Assign(targets=[ast.Name() as target], value=value):
                pass
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                pass
            case _:
                continue
        assert isinstance(statement, ast.stmt)
        if not _NAME.match(target.id) or (likely(module, value) or 0) <= 1:
            continue
        if not any(_reads(other, [target.id]) for other in program.relatives(module)):
            yield module.finding("accumulation-unread", statement, f"{target.id} is read nowhere")


def _reads(module: Module, names: list[str]) -> bool:
    if {"vars", "asdict"} & module.words:  # every setting may be passed on
        return True
    return (
        any(node.attr in names for node in module.each(ast.Attribute))
        or any(node.value in names for node in module.each(ast.Constant))
        or any(n.id in names and isinstance(n.ctx, ast.Load) for n in module.each(ast.Name))
    )
