"""Options of `DataLoader` that raise where it has no workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor.model import Edit, Finding
from ldlm_doctor.python_code.edits import can_be_repeated, replaced
from ldlm_doctor.python_code.loaders import LOADER, POSITIONAL, configured
from ldlm_doctor.python_code.module import Module, last_name
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.values import Arguments, arguments, number

_NEED_WORKERS = (("persistent_workers", "False"), ("prefetch_factor", "None"), ("timeout", "0"))


def inspect(module: Module, program: Program) -> Iterator[Finding]:
    """Each loader, also of evaluations."""
    for call in module.calls_to(LOADER):
        yield from _without_workers(module, program, call, arguments(module, call, POSITIONAL))


def _without_workers(
    module: Module, program: Program, call: ast.Call, given: Arguments
) -> Iterator[Finding]:
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
        yield module.finding(
            "loader-workers-may-be-zero", call, f"{named} set whatever the division gives"
        )
    elif workers is not None:
        count, where = configured(module, program, workers)
        if count == 0 and where:
            detail = f"num_workers is 0 by {'; '.join([where, *places])}, but {named} set"
            yield module.finding(
                "loader-options-without-workers", call, detail, _guarded(module, workers, options)
            )


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


def _guarded(
    module: Module, workers: ast.expr, options: list[tuple[str, ast.expr, str]]
) -> tuple[Edit, ...]:
    """Each option only where there are workers, as far as both are plain to see."""
    if not can_be_repeated(workers):
        return ()
    number_of = module.text(workers)
    edits = []
    for name, value, off in options:
        if not isinstance(value, ast.Constant):
            return ()
        on = f"{number_of} > 0"
        text = on if name == "persistent_workers" else f"{module.text(value)} if {on} else {off}"
        edits.append(replaced(module, value, text))
    return tuple(edits)


def _may_divide_to_zero(module: Module, node: ast.expr) -> bool:
    """The number is a division of what only a run can tell, and nothing holds it above 0."""
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
