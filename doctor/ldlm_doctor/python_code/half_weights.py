"""Weights of half precision that an optimizer of torch updates."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.expressions import is_value, last_name, passed, receiver
from ldlm_doctor.python_code.facts import DDP, FSDP, naming
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.origins import sources
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.tree import calls_in

_HALF = ("torch.bfloat16", "torch.float16", "torch.half")
_FULL = ("torch.float32", "torch.float", "torch.float64", "torch.double")
_OTHERS = ("float", "double", "get_peft_model", "requires_grad_")
"""After these, weights of half precision are not what is trained: adapters are made in float32."""
_DEEPEST = 5


def inspect(module: Module, program: Program) -> Findings:
    """Each optimizer of torch; DeepSpeed keeps float32 weights beside those of half precision."""
    frozen = any(last_name(t) == "requires_grad" and is_value(v, False) for t, v in module.stores)
    if not program.has_loops(module) or naming("deepspeed")(module) or frozen:
        return  # where weights are frozen, those that are trained may have been made otherwise
    for call in module.calls:
        if module.resolve(call.func).startswith("torch.optim."):
            for owner in (each for given in passed(call) for each in _owners(module, given)):
                if cast := _cast(program, module, owner):
                    yield cast[0].finding("weights-in-half-precision", cast[1])


def _owners(module: Module, given: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
    """The models whose parameters an expression is made of."""
    for call in calls_in(ast.walk(given), ("parameters", "named_parameters")):
        yield receiver(call)
    for name in ast.walk(given):
        if isinstance(name, ast.Name) and (bound := module.bound(name)) and depth < _DEEPEST:
            yield from _owners(module, bound, depth + 1)


def _cast(
    program: Program, module: Module, model: ast.expr, depth: int = 0
) -> tuple[Module, ast.stmt] | None:
    """The statement that leaves a model in half precision, by what the name was given last."""
    name, scope = ast.unparse(model), module.scope(model)
    if depth > _DEEPEST:
        return None
    given = [value for target, value in module.stores if ast.unparse(target) == name]
    given += [
        call
        for call in module.called("to", "half", "bfloat16", "float", "requires_grad_")
        if ast.unparse(receiver(call)) == name and isinstance(module.parents[call], ast.Expr)
    ]
    own = [v for v in given if isinstance(model, ast.Attribute) or module.scope(v) is scope]
    made = [model]
    for value in sorted(own, key=lambda each: -each.lineno):
        inner, is_half = _precision(module, value)
        if is_half is not None:
            return (module, module.statement(value)) if is_half else None
        made.append(inner)
    for inner in made:
        for where, source in ((module, inner), *sources(program, module, inner)):
            if not isinstance(source, ast.Name | ast.Attribute):
                continue
            is_same = ast.unparse(source) == name and where.scope(source) is scope
            cast = None if is_same else _cast(program, where, source, depth + 1)
            if cast is not None:
                return cast
    return None


def _precision(module: Module, value: ast.expr) -> tuple[ast.expr, bool | None]:
    """What a chain of methods starts from, and whether it ends in half precision; None: unknown."""
    while isinstance(value, ast.Call):
        name = last_name(value.func)
        types = [_type(module, each) for each in passed(value)]
        if name in _OTHERS or any(each in _FULL for each in types):
            return value, False
        if name in ("half", "bfloat16") and not value.args:
            return value, True
        if name in ("to", "from_pretrained") and any(each in _HALF for each in types):
            return value, True
        if module.means(value.func, DDP | FSDP) and value.args:
            value = value.args[0]
            continue
        if name not in ("to", "cuda", "cpu", "train"):
            break
        value = receiver(value)
    return value, None


def _type(module: Module, node: ast.expr) -> str:
    bound = module.bound(node) if isinstance(node, ast.Name) else None
    bound = module.bound_attribute(node) if isinstance(node, ast.Attribute) else bound
    return module.resolve(bound or node)
