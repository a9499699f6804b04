"""How a model is wrapped for several ranks, and parameters that are frozen while it trains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TypeGuard

from ldlm_doctor.model import Edits, Findings, data
from ldlm_doctor.python_code.expressions import is_value, keyword, last_name, names_in, receiver
from ldlm_doctor.python_code.facts import DDP, accelerates, forwards, naming
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.origins import origins
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.source_text import keyword_added, replaced
from ldlm_doctor.python_code.training import TrainingLoop, is_of_evaluation, without_gradient
from ldlm_doctor.python_code.tree import Function, calls_in, inside
from ldlm_doctor.python_code.values import Arguments, arguments, constant

_POSITIONAL = data("names")["parameters"]["DistributedDataParallel"]
_DEEPEST = 5


def inspect(module: Module, program: Program) -> Findings:
    """Each place where DDP is applied, and each where its wrapper is left out."""
    if program.is_distributed(module) or accelerates(module):
        for loop in program.loops(module):
            yield from _bypassed(module, loop)
    for call in module.calls_to(DDP):
        if is_of_evaluation(module, call):
            continue
        given = arguments(module, call, _POSITIONAL)
        place = _frozen_in_training(module, program, given["module"])
        yield from _unused(module, program, call, given, place)
        yield from _static(module, program, call, given, place)
        if program.trains(module):
            yield from _memory(module, program, call, given)


def _bypassed(module: Module, loop: TrainingLoop) -> Findings:
    """`model.module(batch)` in a step in which `model` itself is never called."""
    calls = [node for node in loop.nodes() if isinstance(node, ast.Call)]
    users = [call for call in calls if last_name(call.func) != "unwrap_model"]
    used = {ast.unparse(each) for call in users for each in (call.func, *call.args)}
    wrapped = {
        ast.unparse(value.args[0]): target
        for target, value in module.stores
        if isinstance(value, ast.Call) and value.args and module.means(value.func, DDP)
    }
    losses = {name for call in loop.backwards for name in names_in(receiver(call))}
    for call in calls:
        func: ast.expr | None = call.func
        if isinstance(func, ast.Name):
            func = module.bound(func)
        elif isinstance(func, ast.Attribute):
            func = module.bound_attribute(func) or func
        match func:
            case ast.Attribute(value=wrapper, attr="module"):
                pass
            case ast.Call(args=[wrapper]) if last_name(func.func) == "unwrap_model":
                pass
            case _ if ast.unparse(call.func) in wrapped:
                wrapper = wrapped[ast.unparse(call.func)]
            case ast.Attribute(value=ast.Attribute(value=wrapper, attr="module"), attr=method):
                statement = module.statement(call)
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                is_loss = any(names_in(target) & losses for target in targets)
                if method != "forward" and not is_loss:
                    continue
            case _:
                continue
        if ast.unparse(wrapper) not in used and not without_gradient(module, call):
            yield module.finding("ddp-bypassed", call)


def _unused(
    module: Module, program: Program, call: ast.Call, given: Arguments, place: str
) -> Findings:
    option, static = given["find_unused_parameters"], given["static_graph"]
    value = constant(module, option) if option is not None else None
    if value is True:
        detail = f"needed as it is: {place}" if place else ""
        yield module.finding("ddp-find-unused-parameters", option or call, detail)
    elif place and (given.lacks("find_unused_parameters") or value is False):
        if static is not None and constant(module, static) is True:
            return
        edits: Edits = ()
        if isinstance(option, ast.Constant):
            edits = (replaced(module, option, "True"),)
        elif option is None:
            edits = keyword_added(module, call, "find_unused_parameters=True")
        if program.any_relative(_computes_again_reentrantly, module):
            edits = ()
        yield module.finding("ddp-modes-freeze-parameters", option or call, place, edits)


def _static(
    module: Module, program: Program, call: ast.Call, given: Arguments, place: str
) -> Findings:
    option = given["static_graph"]
    if option is None or constant(module, option) is not True:
        return
    off: Edits = ()
    reentrant = program.any_relative(_computes_again_reentrantly, module)
    if isinstance(option, ast.Constant) and not reentrant:
        off = (replaced(module, option, "False"),)
    if place:
        unused = given["find_unused_parameters"]
        if is_value(unused, False):
            off = (*off, replaced(module, unused, "True")) if off else ()
        elif given.lacks("find_unused_parameters") and off:
            off = (*off, *keyword_added(module, call, "find_unused_parameters=True"))
        yield module.finding("ddp-static-graph-with-modes", option, place, off)
    elif program.any_relative(naming("no_sync"), module):
        yield module.finding("ddp-static-graph-with-no-sync", option, edits=off)


def _computes_again_reentrantly(module: Module) -> bool:
    """Activations are checkpointed in the form that some programs need static_graph for."""
    return any(
        module.resolve(call.func).startswith("torch.utils.checkpoint.")
        and not is_value(keyword(call, "use_reentrant"), False)
        for call in module.calls
    )


def _memory(module: Module, program: Program, call: ast.Call, given: Arguments) -> Findings:
    option = given["gradient_as_bucket_view"]
    if option is not None:
        if is_value(option, False):
            yield module.finding("ddp-gradient-as-bucket-view", option)
        return
    if not given.lacks("gradient_as_bucket_view"):
        return
    if program.any_relative(_replaces_gradients, module):
        detail = "gradients are replaced or detached by hand here"
        yield module.finding("ddp-gradient-as-bucket-view", call, detail)
        return
    edits = keyword_added(module, call, "gradient_as_bucket_view=True")
    yield module.finding("ddp-gradient-as-bucket-view", call, edits=edits)


def _replaces_gradients(module: Module) -> bool:
    """`p.grad = something`, or `p.grad.detach_()`: buckets and gradients would part, or raise."""
    for node in module.each(ast.Assign):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr="grad")], value=value):
                if not (is_value(value, None)):
                    return True
    return "detach_" in module.methods_called


def _frozen_in_training(module: Module, program: Program, wrapped: ast.expr | None) -> str:
    """Where its file, or that of the model's surely known class, freezes parameters; else ""."""
    known = origins(program, module, wrapped) if wrapped is not None else set()
    for other in dict.fromkeys((module, *(where for where, _ in known))):
        found = _freezing_statement(other, program.loops(other))
        if found is not None:
            return f"{other.file.path}:{found.lineno} freezes parameters in every step"
    return ""


def _freezing_statement(module: Module, loops: list[TrainingLoop]) -> ast.stmt | None:
    """The statement that freezes, in a training loop or in what it or `forward` calls."""
    freezing = {
        function.name: statement
        for function in module.functions
        if function.name != "__init__"
        and (statement := _first_freeze(module, inside(function.body))) is not None
    }
    for loop in loops:
        if (found := _first_freeze(module, loop.nodes())) is not None:
            return found
    starts: list[Function | TrainingLoop] = [*forwards(module), *loops] if freezing else []
    reached = (_reached_freeze(module, start, freezing) for start in starts)
    return next((found for found in reached if found is not None), None)


def _reached_freeze(
    module: Module, start: Function | TrainingLoop, freezing: dict[str, ast.stmt]
) -> ast.stmt | None:
    own = {(f.name, module.class_of(f) is not None): f for f in module.functions}
    waiting, seen = [(start, 0)], set()
    while waiting:
        where, depth = waiting.pop()
        nodes = where.nodes() if isinstance(where, TrainingLoop) else inside(where.body)
        if isinstance(where, Function) and where.name in freezing:
            return freezing[where.name]
        for call in calls_in(nodes, {name for name, _ in own}):
            called = _called(call)
            if called in own and called not in seen and depth < _DEEPEST:
                seen.add(called)
                waiting.append((own[called], depth + 1))
    return None


def _called(call: ast.Call) -> tuple[str, bool]:
    """The name of a function, or of a method of `self` or a variable, and whether it is one."""
    match call.func:
        case ast.Attribute(value=ast.Name() | ast.Attribute(attr="module"), attr=name):
            return name, True
    return (call.func.id if isinstance(call.func, ast.Name) else ""), False


def _first_freeze(module: Module, nodes: Iterable[ast.AST]) -> ast.stmt | None:
    return next((node for node in nodes if _is_freeze(node, module)), None)


def _is_freeze(node: ast.AST, module: Module) -> TypeGuard[ast.stmt]:
    """`p.requires_grad = False`, or `.requires_grad_(False)`, of parameters."""
    match node:
        case (
            ast.Assign(
                targets=[ast.Attribute(attr="requires_grad")], value=ast.Constant(value=False)
            )
            | ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(attr="requires_grad_"), args=[ast.Constant(value=False)]
                )
            )
        ):
            return _is_of_model(module, node)
    return False


def _is_of_model(module: Module, statement: ast.stmt) -> bool:
    """Parameters or a part of the model, and not a tensor of this step."""
    for outer in module.above(statement):
        if isinstance(outer, ast.For):
            return any(re.search("param|module|children", name) for name in names_in(outer.iter))
    owners = (part.value for part in ast.walk(statement) if isinstance(part, ast.Attribute))
    return any(isinstance(owner, ast.Name) and owner.id == "self" for owner in owners)
