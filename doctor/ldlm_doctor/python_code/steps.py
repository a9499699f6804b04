"""What a training loop does at every step: what makes the GPU wait, and what is out of order."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.expressions import last_name, receiver, variables_in
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.training import TrainingLoop

_LOSS = re.compile(r"(^|_)(loss|losses|grad_norm|norm)(_|\d|$)", re.I)


def inspect(module: Module, program: Program) -> Findings:
    """Each training loop of the file."""
    on_cuda = program.is_on_cuda(module) or program.framework_does_it(module)
    for loop in program.loops(module):
        if on_cuda:
            yield from _waits(loop)


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
