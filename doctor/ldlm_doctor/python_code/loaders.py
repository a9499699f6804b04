"""How quickly batches are loaded: the options of `DataLoader`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ldlm_doctor.model import Edit, Finding
from ldlm_doctor.python_code.bindings import Function, inside
from ldlm_doctor.python_code.edits import can_be_repeated, keyword_added, replaced
from ldlm_doctor.python_code.module import Loop, Module, last_name
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.training import words_in
from ldlm_doctor.python_code.values import (
    Arguments,
    arguments,
    constant,
    likely,
    number,
)

_DOCS = "https://docs.pytorch.org/docs/stable/data.html"

LOADER = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})
POSITIONAL = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn",
    "pin_memory", "drop_last", "timeout",
)  # fmt: skip
FOR_EVALUATION = re.compile(
    r"(^|_)(val|valid|validation|eval|test|dev|infer|predict|holdout)", re.I
)
_FOR_TRAINING = re.compile(r"(^|_)train", re.I)
MANY_OF_A_RANK = 16
"""On a node of eight ranks these are as many processes as large nodes have CPUs."""
MANY_OF_A_PROCESS = 64


def inspect(module: Module, program: Program) -> Iterator[Finding]:
    """Loaders of training data."""
    for call in module.calls_to(LOADER):
        if _trains_on(module, program, call):
            yield from _advice(module, program, call, arguments(module, call, POSITIONAL))


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


def _advice(
    module: Module, program: Program, call: ast.Call, given: Arguments
) -> Iterator[Finding]:
    workers = given["num_workers"]
    exact, where = number(module, workers), ""
    count = exact
    if exact is None and workers is not None:
        count, where = configured(module, program, workers)
        where = f", by {where}" if where else ""
    if count is None:
        count, where = likely(module, workers), " unless a setting says otherwise"
    if workers is not None and _is_all_cpus(module, workers):
        if _has_ranks(module, program):
            yield module.finding(
                "loader-too-many-workers", call, "every rank takes as many as the node has CPUs"
            )
    elif count is not None:
        yield from _too_many(module, program, call, count, where)
    persistent = given["persistent_workers"]
    anew = given.lacks("persistent_workers") or constant(module, persistent) is False
    if count is not None and count > 0 and anew and not _is_made_in_loop(module, call):
        yield _not_persistent(module, program, call, given, exact)
        if given.lacks("prefetch_factor"):
            yield module.finding("loader-prefetch-factor", call)
    if not program.is_on_cuda(module) or given.lacks("num_workers") or exact == 0:
        return
    if program.any_relative(_loads_to_gpu, module):
        return  # what is on the GPU already cannot be pinned
    pin = given["pin_memory"]
    if given.lacks("pin_memory"):
        yield module.finding(
            "loader-pin-memory", call, edits=keyword_added(module, call, "pin_memory=True")
        )
    elif isinstance(pin, ast.Constant) and pin.value is False:
        yield module.finding("loader-pin-memory", call, edits=(replaced(module, pin, "True"),))


def configured(module: Module, program: Program, node: ast.expr) -> tuple[float | None, str]:
    """What the settings of the project say of `config.num_workers`, and where."""
    match node:
        case ast.Name() if (bound := module.bound(node)) is not None:
            return configured(module, program, bound)
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


def _loads_to_gpu(module: Module) -> bool:
    """Samples or batches are put on a GPU where they are made."""
    for function in module.functions:
        if not re.search(r"^__(getitem|iter|getitems)__$|collate", function.name):
            continue
        for node in inside(function.body):
            if not isinstance(node, ast.Call) or last_name(node.func) not in ("cuda", "to"):
                continue
            words = set().union(*(words_in(argument) for argument in node.args), ())
            if last_name(node.func) == "cuda" or any(re.search("device|cuda", w) for w in words):
                return True
    return False


def _not_persistent(
    module: Module, program: Program, call: ast.Call, given: Arguments, exact: float | None
) -> Finding:
    if _data_set_changes(module, program):
        detail = "the data set is changed between epochs, which workers that stay would not see"
        return module.finding("loader-persistent-workers", call, detail)
    workers = given["num_workers"]
    value = "True"
    if exact is None:
        if workers is None or not can_be_repeated(workers):
            return module.finding(
                "loader-persistent-workers", call, "num_workers is decided by a setting"
            )
        value = f"{module.text(workers)} > 0"
    present = given["persistent_workers"]
    edits: tuple[Edit, ...] = (
        (replaced(module, present, value),)
        if isinstance(present, ast.Constant)
        else keyword_added(module, call, f"persistent_workers={value}")
    )
    return module.finding("loader-persistent-workers", call, edits=edits)


def _data_set_changes(module: Module, program: Program) -> bool:
    """Attributes of a data set are set after it was made."""
    return program.any_relative(_changes_data_set, module)


def _changes_data_set(module: Module) -> bool:
    for node in module.nodes.get(ast.Attribute, ()):
        match node:
            case ast.Attribute(value=ast.Name() | ast.Attribute() as owner, ctx=ast.Store()):
                if re.search(r"data_?set$|^train_(data|set)$", last_name(owner), re.I):
                    return True
    for call in module.methods_called.get("set_epoch", ()):
        if isinstance(call.func, ast.Attribute) and re.search(
            r"data_?set|loader|^dl$", last_name(call.func.value), re.I
        ):
            return True
    return False


def _too_many(
    module: Module, program: Program, call: ast.Call, count: float, where: str
) -> Iterator[Finding]:
    distributed = _has_ranks(module, program)
    if count >= (MANY_OF_A_RANK if distributed else MANY_OF_A_PROCESS):
        whose = "each rank" if distributed else "one process"
        yield module.finding(
            "loader-too-many-workers", call, f"{count:.0f} workers of {whose}{where}"
        )


def _has_ranks(module: Module, program: Program) -> bool:
    return program.is_distributed(module) or program.framework_does_it(module)


def _is_all_cpus(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        bound = module.bound(node)
        return bound is not None and _is_all_cpus(module, bound)
    return isinstance(node, ast.Call) and last_name(node.func) == "cpu_count"
