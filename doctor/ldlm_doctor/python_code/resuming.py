"""State that a resumed training does not restore, and so starts over."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.expressions import (
    last_name,
    receiver,
    words_in,
)
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.resume_chain import chain
from ldlm_doctor.python_code.saved_state import (
    LOADERS,
    Saved,
    keys_read,
    saved_in,
    state_of,
)

_RESUME = re.compile(r"resum|init_from|restart|start_(epoch|step|iter)|continue_(from|train)", re.I)
_KINDS = {
    "the optimizer": re.compile(r"(^|_)optim(izer)?s?(_|$)|^opts?$", re.I),
    "the scheduler": re.compile(r"sched", re.I),
    "the loss scale": re.compile(r"scaler", re.I),
}
_ELSEWHERE = frozenset(
    {
        "save_state", "load_state", "get_optimizer_state_dict", "optim_state_dict",
        "full_optim_state_dict", "get_state_dict", "set_state_dict", "set_optimizer_state_dict",
        "save_checkpoint_and_exit", "StateDictSaver", "dcp",
    }
)  # fmt: skip
_ADAMS = frozenset(f"torch.optim.{name}" for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax"))


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
