"""State that a resumed training does not restore, and so starts over."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.expressions import (
    keyword,
    last_name,
    names_in,
    owner_name,
    passed,
    receiver,
    words_in,
)
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.resume_chain import chain
from ldlm_doctor.python_code.saved_state import (
    LOADERS,
    PROGRESS,
    Saved,
    keys_read,
    saved_in,
    state_of,
)
from ldlm_doctor.python_code.tree import Function, inside
from ldlm_doctor.python_code.values import constant

_RESUME = re.compile(r"resum|init_from|restart|start_(epoch|step|iter)|continue_(from|train)", re.I)
_KINDS = {
    "the optimizer": re.compile(r"(^|_)optim(izer)?s?(_|$)|^opts?$", re.I),
    "the scheduler": re.compile(r"sched", re.I),
    "the loss scale": re.compile(r"scaler", re.I),
}
_STATES = ("state_dict", "load_state_dict")
_HELD = re.compile(r"ckpt|checkpoint|state|snap|saved|loaded", re.I)
_ELSEWHERE = frozenset(
    {
        "save_state", "load_state", "get_optimizer_state_dict", "optim_state_dict",
        "full_optim_state_dict", "get_state_dict", "set_state_dict", "set_optimizer_state_dict",
        "save_checkpoint_and_exit", "StateDictSaver", "dcp",
    }
)  # fmt: skip
_ADAMS = frozenset(f"torch.optim.{name}" for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax"))
_SCALERS = frozenset({"torch.amp.GradScaler", "torch.cuda.amp.GradScaler"})
_SCHEDULES = re.compile(r"^torch\.optim\.lr_scheduler\.\w+$|(^|\.)get_(\w+_)?schedule(r|_\w+)$")


def inspect(module: Module, program: Program) -> Findings:
    """The checkpoints that a file writes, the schedules that it makes, what it restores."""
    if not program.has_loops(module) or not program.any_relative(_resumes, module):
        return
    if program.framework_does_it(module):
        return
    for load in module.calls_to(LOADERS):
        if links := chain(program, module, load):
            yield module.finding("resume-cannot-work", load, "; ".join(links))
    read = program.once(keys_read)
    for saved in saved_in(module):
        if read is not None and set(saved.entries) & read:
            yield from _dropped(saved, read)
            yield from _without_optimizer(program, saved, read)
    if program.once(_keeping("the optimizer", "load_state_dict")):
        yield from _anew(module, program)
    yield from _reset(module, program)


def _resumes(module: Module) -> bool:
    """Names of the file are about resuming; names of keyword arguments do not count."""
    names = {
        *(node.id for node in module.each(ast.Name)),
        *(node.attr for node in module.each(ast.Attribute)),
        *(node.arg for node in module.each(ast.arg)),
        *(function.name for function in module.functions),
    }
    strings = (node.value for node in module.each(ast.Constant))
    return any(map(_RESUME.search, names)) or any(
        isinstance(text, str) and len(text) < 40 and _RESUME.match(text.lstrip("-"))
        for text in strings
    )


def _dropped(saved: Saved, read: frozenset[str]) -> Findings:
    progress = saved.progress()
    for key, value in saved.entries.items():
        if key in read:
            continue
        owner = state_of(value)
        what = next((name for name, its in _KINDS.items() if owner and its.search(owner)), "")
        if what:
            detail = f'nothing reads "{key}", {what}'
            yield saved.module.finding("resume-drops-saved-state", value, detail)
        elif key in progress[:1] and not set(progress) & read:
            yield saved.module.finding("resume-drops-saved-state", value, f'nothing reads "{key}"')


def _without_optimizer(program: Program, saved: Saved, read: frozenset[str]) -> Findings:
    if not saved.is_whole or not set(saved.progress()) & read:
        return
    optimizer = _KINDS["the optimizer"]
    if any(optimizer.search(word) for value in saved.entries.values() for word in words_in(value)):
        return
    if any(optimizer.search(key) for key in saved.entries) or program.once(
        _keeping("the optimizer", "state_dict")
    ):
        return
    if any(True for each in program.relatives(saved.module) for _ in each.calls_to(_ADAMS)):
        first = next(value for value in saved.entries.values() if state_of(value))
        yield saved.module.finding("resume-without-optimizer", first)


@cache
def _keeping(kind: str, *methods: str) -> Callable[[Program], bool]:
    """The fact that a method is called of such an object, or of all objects at once."""
    return lambda program: any(
        bool(_ELSEWHERE & module.words)
        or any(_is_of(kind, call) for call in module.called(*methods))
        for module in program.modules
    )


def _is_of(kind: str, call: ast.Call) -> bool:
    owner = receiver(call)
    if isinstance(owner, ast.Subscript):
        owner = owner.value
    return not last_name(owner) or any(map(_KINDS[kind].search, words_in(owner)))


def _anew(module: Module, program: Program) -> Findings:
    if "scale" in module.methods_called and not program.once(_keeping("the loss scale", *_STATES)):
        for call in module.calls_to(_SCALERS):
            enabled = keyword(call, "enabled")
            if enabled is None or constant(module, enabled) is True:
                yield module.finding("resume-scale-anew", call)
    if program.once(_keeping("the scheduler", *_STATES)):
        return
    for call in module.calls:
        if not _SCHEDULES.search(module.resolve(call.func)) or _starts_later(call):
            continue
        statement = module.statement(call)
        if not isinstance(statement, ast.Assign) or statement.value is not call:
            continue
        name = last_name(statement.targets[0])
        if name and _counts_from_zero(module, program, name):
            yield module.finding("resume-schedule-anew", call)


def _counts_from_zero(module: Module, program: Program, name: str) -> bool:
    """The scheduler is stepped without a step number, and is never set forward."""
    relatives = program.relatives(module)
    steps = [
        (each, step)
        for each in relatives
        for step in each.called("step")
        if owner_name(step) == name
    ]
    if not steps or any(step.args or _catches_up(each, step) for each, step in steps):
        return False
    return not any(f"{name}.last_epoch" in _stores(each) for each in relatives)


def _starts_later(call: ast.Call) -> bool:
    """`last_epoch`, or another argument with the step in it."""
    words = set().union(*map(words_in, passed(call)))
    unpacked = any(k.arg in ("last_epoch", None) for k in call.keywords)
    return unpacked or any(re.search(r"start|resum|current|global_step", word) for word in words)


def _catches_up(module: Module, step: ast.Call) -> bool:
    """`for _ in range(start): scheduler.step()`."""
    loop = module.around(step, ast.For)
    return loop is not None and len(loop.body) == 1


def _stores(module: Module) -> set[str]:
    return {
        f"{last_name(node.value)}.{node.attr}"
        for node in module.each(ast.Attribute)
        if isinstance(node.ctx, ast.Store)
    }


def _reset(module: Module, program: Program) -> Findings:
    for statement in module.each(ast.Assign):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_restored(value):
                yield from _name_reset(module, statement, name)
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                if not PROGRESS.match(name) or not _is_restored(value):
                    continue
                if not any(_reads(each, name) for each in program.relatives(module)):
                    detail = f"{name} is read nowhere"
                    yield module.finding("resume-counter-reset", statement, detail)


def _reads(module: Module, attribute: str) -> bool:
    """The attribute is read, or its name stands in a string."""
    loads = (node for node in module.each(ast.Attribute) if isinstance(node.ctx, ast.Load))
    return any(node.attr == attribute for node in loads) or any(
        isinstance(call.args[1], ast.Constant) and call.args[1].value == attribute
        for call in module.called("getattr")
        if len(call.args) > 1
    )


def _name_reset(module: Module, statement: ast.Assign, name: str) -> Findings:
    scope = module.scope(statement)
    if isinstance(scope, ast.Lambda) or not _trains_in(scope):
        return
    loads = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    outside = (n for n in ast.walk(scope) if isinstance(n, ast.Global | ast.Nonlocal))
    declared_outside = any(name in node.names for node in outside)
    if not loads and PROGRESS.match(name) and not declared_outside:
        yield module.finding("resume-counter-reset", statement, f"{name} is read nowhere")
        return
    again = _set_again(module, scope, statement, name)
    if again is not None and not any(
        statement.lineno < load.lineno < again.lineno for load in loads
    ):
        detail = f"line {statement.lineno} had restored it"
        yield module.finding("resume-counter-reset", again, detail)


def _trains_in(scope: Function | ast.Module) -> bool:
    """There is a loop that counts here, or an optimizer is restored: it is no evaluation."""
    for node in inside(scope.body):
        match node:
            case ast.While():
                return True
            case ast.For() if any(re.search("epoch|step|iter", w) for w in names_in(node.target)):
                return True
            case ast.Call(func=ast.Attribute(attr="load_state_dict", value=owner)):
                if any(map(_KINDS["the optimizer"].search, words_in(owner))):
                    return True
    return False


def _is_restored(value: ast.expr) -> bool:
    """`checkpoint["step"]`, perhaps plus one, or what a function that resumes gives back."""
    for part in ast.walk(value):
        match part:
            case ast.Subscript(value=held, slice=ast.Constant(value=str() as key)):
                if PROGRESS.match(key) and _HELD.search(last_name(held)):
                    return True
            case ast.Call() if re.search(r"load_(ckpt|checkpoint)|resume", last_name(part.func)):
                return True
    return False


def _set_again(
    module: Module, function: Function | ast.Module, restored: ast.Assign, name: str
) -> ast.Assign | None:
    """A later `step = 0` that runs whenever the restore has run."""
    around = {id(restored), *(id(outer) for outer in module.above(restored))}
    for node in inside(function.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Constant(value=0 | 1)):
                if target != name or node.lineno <= restored.lineno:
                    continue
                if any(id(each) in around for each in module.block(node)) and not any(
                    isinstance(outer, ast.For | ast.While) for outer in module.above(node)
                ):
                    return node
    return None
