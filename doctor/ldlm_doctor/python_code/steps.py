"""What a training loop does at every step: what makes the GPU wait, and what is out of order."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.expressions import keyword, last_name, receiver, variables_in
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program, forwards, uses_framework
from ldlm_doctor.python_code.training import TrainingLoop, is_optimizer_step
from ldlm_doctor.python_code.tree import Function, inside
from ldlm_doctor.python_code.values import constant

_LOSS = re.compile(r"(^|_)(loss|losses|grad_norm|norm)(_|\d|$)", re.I)
_SCALERS = frozenset(
    f"torch.{where}.GradScaler"
    for where in ("amp", "cuda.amp", "amp.grad_scaler", "cuda.amp.grad_scaler")
)
_AUTOCASTS = frozenset(
    {
        "torch.autocast",
        "torch.cuda.amp.autocast",
        "torch.amp.autocast",
        "torch.amp.autocast_mode.autocast",
    }
)
_BF16 = ("torch.bfloat16", "bfloat16")
_SCHEDULER = re.compile(r"(^|_)(lr_)?sched(uler)?s?(_|\d|$)", re.I)


def inspect(module: Module, program: Program) -> Findings:
    """Each training loop of the file."""
    yield from _scaled_bf16(module)
    on_cuda = program.is_on_cuda(module) or program.framework_does_it(module)
    for loop in program.loops(module):
        if on_cuda:
            yield from _waits(loop)
        yield from _cache(loop)
        yield from _zeros(loop)
        yield from _scheduled(loop)
    if on_cuda and program.trains(module):
        yield from _waits_in_forward(module)


def _waits(loop: TrainingLoop) -> Findings:
    tensors = _tensors(loop)
    places: list[ast.expr] = []
    for node in loop.nodes():
        if not isinstance(node, ast.expr) or not _reads(loop.module, node, tensors):
            continue
        if loop.is_every_turn(node) and not any(node is place for place in places):
            places.append(node)
    if places:
        places.sort(key=lambda place: (place.lineno, place.col_offset))
        yield loop.module.finding("sync-every-step", places[0], _also_in(places))


def _also_in(places: Sequence[ast.expr]) -> str:
    """The lines of further places, at most seven of them."""
    lines = sorted({place.lineno for place in places})[1:8]
    return f"also in lines {', '.join(map(str, lines))}" if lines else ""


def _tensors(loop: TrainingLoop) -> set[str]:
    """Names that hold a tensor in a turn: what is called `.backward()` of, and gradient norms."""
    found: set[str] = set()
    for call in loop.backwards:
        owner = receiver(call)
        scaled = owner.args if isinstance(owner, ast.Call) else [owner]
        found = found.union(*map(variables_in, (*scaled, *call.args)))
    for node in loop.nodes():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                method = last_name(call.func)
                kept = method in ("detach", "mean", "sum", "clone") and found & variables_in(
                    call.func
                )
                if kept or method == "clip_grad_norm_":
                    found.add(name)
    return {name for name in found if _LOSS.search(name)}


def _reads(module: Module, node: ast.expr, tensors: set[str]) -> bool:
    """An expression that brings a number of the GPU to the CPU."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="item" | "tolist"), args=[]):
            return not _is_host(module, owner)
        case ast.Call(func=ast.Attribute(value=owner, attr="cpu" | "numpy")):
            return bool(variables_in(owner) & tensors)
        case ast.Call(func=ast.Name(id="float" | "print"), args=[*given]):
            return any(isinstance(each, ast.Name) and each.id in tensors for each in given)
        case ast.FormattedValue(value=ast.Name(id=name)):
            return name in tensors and _is_printed(module, node)
    return False


def _is_host(module: Module, owner: ast.expr) -> bool:
    """What `.item()` is asked of is no tensor of the GPU: numpy, or brought over before."""
    for part in ast.walk(owner):
        name = module.resolve(part) if isinstance(part, ast.Name | ast.Attribute) else ""
        if name.startswith("numpy."):
            return True
        if isinstance(part, ast.Call) and last_name(part.func) in ("cpu", "numpy"):
            return True
    return False


def _is_printed(module: Module, node: ast.expr) -> bool:
    outer = module.around(node, ast.Call, ast.stmt)
    printers = ("print", "write", "info", "set_description", "debug")
    return isinstance(outer, ast.Call) and last_name(outer.func) in printers


def _waits_in_forward(module: Module) -> Findings:
    """Losses that a model reads in its own forward pass."""
    reads = [
        call
        for call in module.called("item")
        if isinstance(call.func, ast.Attribute)
        and any("loss" in name.lower() for name in variables_in(call.func.value))
    ]
    if not reads:
        return
    # `training_step` of Lightning, `compute_loss` of transformers' Trainer
    names = ("training_step", "compute_loss") if uses_framework(module) else ()
    steps = [function for function in module.functions if function.name in names]
    for forward in (*forwards(module), *steps):
        if forward.args.args and forward.args.args[0].arg == "ctx":
            continue  # an autograd function's own
        places = [call for call in reads if _is_always(module, call, forward)]
        if places:
            detail = "; ".join(filter(None, ("in every forward pass", _also_in(places))))
            yield module.finding("sync-every-step", places[0], detail)


def _is_always(module: Module, node: ast.AST, forward: ast.AST) -> bool:
    for outer in module.above(node):
        if outer is forward:
            return True
        if isinstance(outer, ast.If | ast.IfExp | ast.ExceptHandler | ast.Lambda | Function):
            return False
    return False


def _cache(loop: TrainingLoop) -> Findings:
    for call in loop.calls("empty_cache"):
        if loop.module.resolve(call.func).startswith("torch.") and loop.is_every_turn(call):
            yield loop.module.finding("empty-cache-every-step", call)
            return


def _zeros(loop: TrainingLoop) -> Findings:
    for call in loop.calls("zero_grad"):
        if constant(loop.module, keyword(call, "set_to_none")) is False:
            yield loop.module.finding("zero-grad-keeps-tensors", call)


def _scaled_bf16(module: Module) -> Findings:
    kinds = [_kind(module, call) for call in module.calls_to(_AUTOCASTS)]
    if not kinds or not all(kind in _BF16 for kind in kinds):
        return
    for call in module.calls_to(_SCALERS):
        enabled = keyword(call, "enabled")
        unpacked = any(k.arg is None for k in call.keywords)
        if not unpacked and (enabled is None or constant(module, enabled) is True):
            yield module.finding("grad-scaler-with-bf16", call)


def _kind(module: Module, call: ast.Call) -> str:
    """The dotted name of the type that an autocast computes in; "" where it is not plain."""
    given = keyword(call, "dtype")
    if given is None and len(call.args) > 1:
        given = call.args[1]
    if isinstance(given, ast.Name) and (bound := module.bound(given)) is not None:
        given = bound
    return module.resolve(given)


def _scheduled(loop: TrainingLoop) -> Findings:
    blocks: dict[int, list[ast.stmt]] = {}
    for call in loop.optimizer_steps():
        block = loop.module.block(loop.module.statement(call))
        blocks[id(block)] = block
    for block in blocks.values():
        for statement in block:
            match statement:
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="step")) as call):
                    if is_optimizer_step(call):
                        break
                    if _is_scheduler(loop.module, call) and not call.args:
                        yield loop.module.finding("scheduler-before-optimizer", call)
                case ast.If() if any(
                    isinstance(n, ast.Call) and is_optimizer_step(n) for n in inside([statement])
                ):
                    break


def _is_scheduler(module: Module, call: ast.Call) -> bool:
    """A scheduler of torch, by what it was made with."""
    if not _SCHEDULER.search(last_name(receiver(call))):
        return False
    return any("lr_scheduler" in name for name in (*module.imports.values(), *module.words))
