"""The options of `DataLoader`: what raises without workers, and how fast batches are loaded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ldlm_doctor.model import Findings, data, pattern
from ldlm_doctor.python_code.declared import likely
from ldlm_doctor.python_code.expressions import last_name
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.source_text import replaced
from ldlm_doctor.python_code.tree import Function, Loop
from ldlm_doctor.python_code.values import Arguments, arguments, constant, number

_LOADER = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})
_POSITIONAL = data("names")["parameters"]["DataLoader"]
FOR_EVALUATION = re.compile(pattern("evaluation"), re.I)
_FOR_TRAINING = re.compile(r"(^|_)train", re.I)
_MANY_OF_A_RANK = 16
"""On a node of eight ranks these are as many processes as large nodes have CPUs."""
_MANY_OF_A_PROCESS = 64
_NEED_WORKERS = (("persistent_workers", "False"), ("prefetch_factor", "None"), ("timeout", "0"))


def inspect_speed(module: Module, program: Program) -> Findings:
    """Loaders of training data."""
    for call in module.calls_to(_LOADER):
        if _trains_on(module, program, call):
            given = arguments(module, call, _POSITIONAL)
            exact = number(module, given["num_workers"])
            yield from _workers(module, program, call, given, exact)


def _trains_on(module: Module, program: Program, call: ast.Call) -> bool:
    names = " ".join(called(module, call))
    if FOR_EVALUATION.search(names.replace(" ", "_")):
        return False
    return bool(_FOR_TRAINING.search(names.replace(" ", "_"))) or program.trains(module)


def called(module: Module, call: ast.Call) -> Iterator[str]:
    """The names by which a loader and its data set go."""
    statement = module.statement(call)
    if isinstance(statement, ast.Assign):
        yield from (last_name(target) for target in statement.targets)
    if call.args:
        yield last_name(call.args[0])
    yield from (last_name(k.value) for k in call.keywords if k.arg == "dataset")
    function = module.function(call)
    if function is not None:
        yield function.name


def _workers(
    module: Module, program: Program, call: ast.Call, given: Arguments, exact: float | None
) -> Findings:
    """How many workers there are, and how long they live."""
    workers, count, where = given["num_workers"], exact, ""
    if exact is None and workers is not None:
        count, where = _configured(module, program, workers)
        where = f", by {where}" if where else ""
    stored = {last_name(target) for target, _ in module.stores if isinstance(target, ast.Attribute)}
    if count is None and last_name(workers) not in stored:
        count, where = likely(module, workers), " unless a setting says otherwise"
    has_ranks = program.is_distributed(module) or program.framework_does_it(module)
    if workers is not None and _is_all_cpus(module, workers):
        if has_ranks:
            detail = "every rank takes as many as the node has CPUs"
            yield module.finding("loader-too-many-workers", call, detail)
    elif count is not None and count >= (_MANY_OF_A_RANK if has_ranks else _MANY_OF_A_PROCESS):
        detail = f"{count:.0f} workers of {'each rank' if has_ranks else 'one process'}{where}"
        yield module.finding("loader-too-many-workers", call, detail)
    persistent = given["persistent_workers"]
    restarted = given.lacks("persistent_workers") or constant(module, persistent) is False
    if count is not None and count > 0 and restarted and not _is_made_in_loop(module, call):
        detail = "" if exact is not None else "num_workers is decided by a setting"
        yield module.finding("loader-persistent-workers", call, detail)


def _configured(module: Module, program: Program, node: ast.expr) -> tuple[float | None, str]:
    """What the settings of the project say of `config.num_workers`, and where."""
    match node:
        case ast.Name() if (bound := module.bound(node)) is not None:
            return _configured(module, program, bound)
        case ast.Call(args=[_, _, *_]) if last_name(node.func) == "min":
            found = [program.settings.number(module, each) for each in node.args]
            known = [each for each, _ in found if each is not None]
            where = next((its for _, its in found if its), "")
            return (min(known), where) if len(known) == len(node.args) else (None, "")
    return program.settings.number(module, node)


def _is_made_in_loop(module: Module, call: ast.Call) -> bool:
    """A loader of its own for every epoch: its workers end with it."""
    child: ast.AST = call
    for outer in module.above(call):
        if isinstance(outer, Function):
            return False
        if isinstance(outer, Loop) and child is not getattr(outer, "iter", None):
            return True
        child = outer
    return False


def _is_all_cpus(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        bound = module.bound(node)
        return bound is not None and _is_all_cpus(module, bound)
    return isinstance(node, ast.Call) and last_name(node.func) == "cpu_count"


def inspect_workers(module: Module, program: Program) -> Findings:
    """Each loader, also of evaluations."""
    for call in module.calls_to(_LOADER):
        yield from _without_workers(module, program, call)


def _without_workers(module: Module, program: Program, call: ast.Call) -> Findings:
    given = arguments(module, call, _POSITIONAL)
    options, places = _options_of_workers(module, program, given)
    if not options:
        return
    workers = given["num_workers"]
    named = ", ".join(name for name, _, _ in options)
    if given.lacks("num_workers") or (workers is not None and number(module, workers) == 0):
        edits = tuple(
            replaced(module, value, off)
            for _, value, off in options
            if isinstance(value, ast.Constant)
        )
        where = "; ".join(places)
        detail = f"num_workers is 0, but {named} set{': ' if where else ''}{where}"
        yield module.finding("loader-options-without-workers", call, detail, edits)
    elif workers is not None and _may_divide_to_zero(module, workers):
        detail = f"{named} set whatever the division gives"
        yield module.finding("loader-workers-may-be-zero", call, detail)
    elif workers is not None:
        count, where = _configured(module, program, workers)
        if count == 0 and where:
            detail = f"num_workers is 0 by {'; '.join([where, *places])}, but {named} set"
            yield module.finding("loader-options-without-workers", call, detail)


def _options_of_workers(
    module: Module, program: Program, given: Arguments
) -> tuple[list[tuple[str, ast.expr, str]], list[str]]:
    """The options that need workers, each with what switches it off; the settings that say so."""
    options: list[tuple[str, ast.expr, str]] = []
    places = []
    for name, off in _NEED_WORKERS:
        value = given[name]
        known = program.settings.known(module, value)
        if value is None or known is None:
            continue
        is_number = isinstance(known.value, int | float) and not isinstance(known.value, bool)
        asks = known.value is True if name == "persistent_workers" else is_number
        if asks and not (name == "timeout" and known.value == 0):
            options.append((name, value, off))
            places += [known.where] if known.where else []
    return options, places


def _may_divide_to_zero(module: Module, node: ast.expr) -> bool:
    """The number is a division of values that only a run decides, without a lower bound of 1."""
    if number(module, node) is not None:
        return False
    match node:
        case ast.BinOp(op=ast.FloorDiv()):
            return True
        case ast.Call(args=[_, *_]) if last_name(node.func) in ("min", "int"):
            return any(_may_divide_to_zero(module, each) for each in node.args)
        case ast.Name() if (bound := module.bound(node)) is not None:
            return _may_divide_to_zero(module, bound)
    return False
