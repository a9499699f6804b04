"""The order of what makes one update: backward, unscale, clip, step, zero_grad."""

from __future__ import annotations

import ast

from ldlm_doctor.model import Edits, Findings
from ldlm_doctor.python_code.accumulation import counts
from ldlm_doctor.python_code.expressions import last_name, names_in, owner_name, receiver
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.source_text import line_after, line_before
from ldlm_doctor.python_code.training import TrainingLoop
from ldlm_doctor.python_code.tree import Function, in_one_branch

_CLIPS = ("clip_grad_norm_", "clip_grad_value_")
_DROPS = frozenset({"zero_grad", "zero_grads", "clear_grad", "zero_gradients"})


def inspect(module: Module, program: Program) -> Findings:
    """Each training loop."""
    for loop in program.loops(module):
        steps = loop.optimizer_steps()
        if not steps:
            continue
        yield from _clipped(loop)
        yield from _unscaled_again(loop)
        if program.any_relative(_drops, module) or program.framework_does_it(module):
            continue
        if program.any_near(_uses_torchs, module):
            yield from _never_zeroed(loop, steps)


def _drops(module: Module) -> bool:
    """Gradients are dropped somewhere: by a method of any object, by `.grad = None`, in place."""
    if _DROPS & module.words:
        return True
    return any(map(_stores_gradient, module.each(ast.Attribute))) or any(
        owner_name(call) == "grad" for call in module.called("zero_")
    )


def _stores_gradient(node: ast.AST) -> bool:
    """`parameter.grad = ...`."""
    match node:
        case ast.Attribute(attr="grad", ctx=ast.Store()):
            return True
    return False


def _uses_torchs(module: Module) -> bool:
    """An optimizer of torch is made; one of somebody's own may drop gradients itself."""
    return any(module.resolve(call.func).startswith("torch.optim.") for call in module.calls)


def _never_zeroed(loop: TrainingLoop, steps: list[ast.Call]) -> Findings:
    module = loop.module
    own = [c for c in steps if isinstance(c.func, ast.Attribute) and not c.args]
    if not own or len(own) != len(steps) or any(c.keywords for c in own):
        return  # a closure, or a scaler whose optimizer may be wrapped
    if any(call.args for call in loop.backwards):
        return  # an accelerator's or an engine's
    edits: Edits = ()
    if len(own) == 1 and isinstance(own[0].func, ast.Attribute):
        statement = module.statement(own[0])
        if isinstance(statement, ast.Expr) and statement.value is own[0]:
            name = module.text(own[0].func.value)
            edits = line_after(module, statement, f"{name}.zero_grad()")
    yield module.finding("zero-grad-missing", own[0], edits=edits)


def _unscaled_again(loop: TrainingLoop) -> Findings:
    """`unscale_` of every micro-batch, or of none, and `update` only of every n-th."""
    module = loop.module
    own = names_in(loop.loop.target) if isinstance(loop.loop, ast.For) else set()
    for unscale in loop.calls("unscale_"):
        for update in loop.calls("update"):
            same = module.function(unscale) is module.function(update)
            after = any(_surely_before(module, call, unscale) for call in loop.backwards)
            ahead = update.lineno < unscale.lineno if same else not after
            if ahead or _owner(update) != _owner(unscale):
                continue
            inner = loop.loop in module.above(unscale) and loop.loop not in module.above(update)
            if (inner and same and not names_in(unscale) & own) or (
                _by_count(loop, update, unscale) and not _by_count(loop, unscale, update)
            ):
                yield module.finding("unscale-every-micro-batch", unscale)


def _by_count(loop: TrainingLoop, node: ast.Call, other: ast.Call) -> bool:
    """A condition on the number of micro-batches lets the node run, and is not the other's."""
    module = loop.module
    others = {id(each) for each in module.above(other)}
    return any(
        id(branch) not in others and counts(module, branch.test)
        for branch in loop.nodes()
        if isinstance(branch, ast.If)
        and (
            branch in module.above(node)
            or (
                isinstance(branch.body[-1], ast.Continue)
                and other.lineno < branch.lineno < node.lineno
            )
        )
    )


def _clipped(loop: TrainingLoop) -> Findings:
    module = loop.module
    scaled = [c for c in loop.backwards if _is_scaled(c)]
    steps = [c for c in loop.optimizer_steps() if len(c.args) == 1]
    if not scaled or not steps or any(True for _ in loop.calls("unscale_", "unscale")):
        return
    for call in loop.calls(*_CLIPS):
        if all(_apart(module, each, call) for each in scaled):
            continue
        edits: Edits = ()
        statement = module.statement(call)
        block = module.block(statement)
        same = [c for c in steps if module.statement(c) in block]
        if len(same) == 1 and len(steps) == 1 and isinstance(same[0].func, ast.Attribute):
            scaler, optimizer = module.text(same[0].func.value), module.text(same[0].args[0])
            edits = line_before(module, statement, f"{scaler}.unscale_({optimizer})")
        yield module.finding("clip-before-unscale", call, edits=edits)
        return


def _is_scaled(call: ast.Call) -> bool:
    """`scaler.scale(loss).backward()`."""
    scaled = receiver(call)
    return isinstance(scaled, ast.Call) and last_name(scaled.func) == "scale"


def _owner(call: ast.Call) -> str:
    """`optimizer` of `optimizer.step()`, as it is written."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _surely_before(module: Module, first: ast.Call, second: ast.Call) -> bool:
    """In one function, `first` has run whenever `second` runs in the same turn."""
    if first.lineno >= second.lineno or module.function(first) is not module.function(second):
        return False
    inner = {id(node) for node in module.above(second)}
    for outer in module.above(first):
        if isinstance(outer, Function):
            break
        conditional = isinstance(outer, ast.If | ast.For | ast.While | ast.Try | ast.IfExp)
        if conditional and id(outer) not in inner:
            return False
        if isinstance(outer, ast.If) and not in_one_branch(outer, first, second):
            return False
    return True


def _apart(module: Module, first: ast.AST, second: ast.AST) -> bool:
    """They stand in different branches of one condition."""
    around = {id(outer) for outer in module.above(first)}
    both = (outer for outer in module.above(second) if id(outer) in around)
    return any(isinstance(o, ast.If) and not in_one_branch(o, first, second) for o in both)
