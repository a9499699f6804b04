"""Schedules that each rank steps by its own loss."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.collectives import decides_together
from ldlm_doctor.python_code.expressions import last_name, names_in, passed
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program

_PLATEAUS = frozenset(
    {"torch.optim.lr_scheduler.ReduceLROnPlateau", "torch.optim.ReduceLROnPlateau"}
)
_OF_EVALUATION = re.compile(r"(^|_)(val|valid|validation|eval|test|dev|metric|acc|score)", re.I)
_ANY_LOSS = re.compile(r"loss", re.I)


def inspect(module: Module, program: Program) -> Findings:
    """Each step of a schedule that looks at a loss."""
    if not program.is_distributed(module) or program.framework_does_it(module):
        return
    if program.any_near(decides_together, module):
        return
    made = program.once(_plateaus)
    near = program.near(module)
    owners = {name for each, names in made.items() if each in near for name in names}
    for call in module.called("step"):
        if not (isinstance(call.func, ast.Attribute) and (call.args or call.keywords)):
            continue
        if last_name(call.func.value) in owners:
            given = passed(call)
            names = {name for each in given for name in names_in(each)}
            if not any(map(_ANY_LOSS.search, names)) or any(map(_OF_EVALUATION.search, names)):
                continue
            yield module.finding("plateau-by-rank", call)


def _plateaus(program: Program) -> dict[Module, set[str]]:
    """The files that make such a scheduler, with the names that they give it."""
    found = {module: set(_made(module)) - {""} for module in program.modules}
    return {module: names for module, names in found.items() if names}


def _made(module: Module) -> Iterator[str]:
    """The names of schedulers that react to a loss: torch's, and classes of the file."""
    own = {cls.name for cls in module.each(ast.ClassDef) if _reacts(cls)}
    for statement in module.each(ast.Assign):
        match statement:
            case ast.Assign(targets=[target], value=ast.Call(func=func)):
                if module.means(func, _PLATEAUS) or last_name(func) in own:
                    yield last_name(target)


def _reacts(cls: ast.ClassDef) -> bool:
    """Its `step(loss)` compares the loss with an earlier one and changes the learning rate."""
    steps = [m for m in cls.body if isinstance(m, ast.FunctionDef) and m.name == "step"]
    if not steps or not any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == "lr"
        for node in ast.walk(cls)
    ):
        return False
    given = {argument.arg for step in steps for argument in step.args.args[1:]}
    return any(
        isinstance(node, ast.Compare) and names_in(node) & given
        for step in steps
        for node in ast.walk(step)
    )
