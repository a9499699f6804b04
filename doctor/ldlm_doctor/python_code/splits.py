"""How data are split into those to train on and those to evaluate on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor.model import Finding
from ldlm_doctor.python_code.bindings import inside
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.training import is_rank, names_in
from ldlm_doctor.python_code.values import arguments

_SPLIT = frozenset({"torch.utils.data.random_split", "torch.utils.data.dataset.random_split"})
_SHUFFLES = frozenset({"random.shuffle", "numpy.random.shuffle", "numpy.random.permutation"})
_SUBSETS = frozenset({"torch.utils.data.Subset", "torch.utils.data.dataset.Subset"})


def inspect(module: Module, program: Program) -> Iterator[Finding]:
    """Splits by global random numbers, in a program that seeds them by rank."""
    drawn = [call for call in module.calls_to(_SPLIT) if arguments(module, call).lacks("generator")]
    drawn += [call for call in module.calls_to(_SHUFFLES) if _is_for_subsets(module, call)]
    if drawn and program.is_distributed(module) and program.any_relative(_seeds_by_rank, module):
        yield from (module.finding("split-differs-between-ranks", call) for call in drawn)


def _is_for_subsets(module: Module, call: ast.Call) -> bool:
    function = module.function(call)
    return function is not None and any(
        isinstance(node, ast.Call) and module.means(node.func, _SUBSETS)
        for node in inside(function.body)
    )


def _seeds_by_rank(module: Module) -> bool:
    """`torch.manual_seed(seed + rank)`, of random or numpy as well."""
    for name in ("manual_seed", "seed", "seed_everything", "set_seed"):
        for call in module.methods_called.get(name, ()):
            for given in call.args[:1]:
                bound = module.bound(given) if isinstance(given, ast.Name) else None
                if _has_rank(bound or given) and not _is_of_generator(call):
                    return True
    return False


def _has_rank(node: ast.expr) -> bool:
    return any(
        is_rank(p) for p in ast.walk(node) if isinstance(p, ast.Name | ast.Attribute | ast.Call)
    )


def _is_of_generator(call: ast.Call) -> bool:
    """A generator of its own is seeded, and not the global one."""
    return isinstance(call.func, ast.Attribute) and any(
        "generator" in name.lower() for name in names_in(call.func.value)
    )
