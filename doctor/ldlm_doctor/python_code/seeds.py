"""Random numbers of ranks: equal where they must differ, different where they must be equal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ldlm_doctor.model import Findings, data
from ldlm_doctor.python_code.expressions import keyword, last_name, names_in, receiver
from ldlm_doctor.python_code.facts import accelerates, forwards
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.origins import assigned, passed_as
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.sampling import SAMPLER
from ldlm_doctor.python_code.training import TrainingLoop, is_of_autograd, is_rank
from ldlm_doctor.python_code.tree import Function, calls_in, inside
from ldlm_doctor.python_code.values import arguments

_SPLIT = frozenset({"torch.utils.data.random_split", "torch.utils.data.dataset.random_split"})
_SHUFFLES = frozenset({"random.shuffle", "numpy.random.shuffle", "numpy.random.permutation"})
_SUBSETS = frozenset({"torch.utils.data.Subset", "torch.utils.data.dataset.Subset"})
_SEEDS = ("manual_seed", "manual_seed_all", "seed", "seed_everything", "set_seed")
_DRAWS = frozenset(f"torch.{name}" for name in data("names")["draws"])
_NOT_OF_A_STEP = re.compile(r"drop|eval|valid|test|infer|generat|init|log|plot|^(p_)?sample$", re.I)
"""Functions whose draws are no noise of the training: equal dropout does little harm."""
_VARIES = re.compile(r"offset|worker|process|time|random|pid", re.I)
"""Names of what is likely to differ between ranks."""
_DEEPEST, _MOST_ORIGINS = 4, 60


def inspect(module: Module, program: Program) -> Findings:
    """Samplers and splits that ranks must agree on, and noise that must be each rank's own."""
    prepared = program.any_near(accelerates, module)
    if not (prepared or program.is_distributed(module)):
        return
    for call in module.calls_to(SAMPLER):
        names = ("dataset", "num_replicas", "rank", "shuffle", "seed")
        seed = arguments(module, call, names)["seed"]
        if seed is not None and _has_rank(program, module, module, seed):
            yield module.finding("sampler-seed-by-rank", seed)
    drawn = [call for call in module.calls_to(_SPLIT) if arguments(module, call).lacks("generator")]
    drawn += [call for call in module.calls_to(_SHUFFLES) if _is_for_subsets(module, call)]
    if drawn and any(_has_rank(program, module, *each) for each in _seeded(program, module)):
        yield from (module.finding("split-differs-between-ranks", call) for call in drawn)
    alone = program.framework_does_it(module) and not prepared
    for loop in () if alone else program.loops(module):
        yield from _equal_noise(program, loop)


def _is_for_subsets(module: Module, call: ast.Call) -> bool:
    function = module.function(call)
    return function is not None and any(
        isinstance(node, ast.Call) and module.means(node.func, _SUBSETS)
        for node in inside(function.body)
    )


def _equal_noise(program: Program, loop: TrainingLoop) -> Findings:
    """Every seed that the program sets is the same on all ranks, and each step draws from it."""
    seeds = list(_seeded(program, loop.module))
    near = program.near(loop.module)
    certain = [each for each in seeds if each[0] in near and _is_certain(program, *each)]
    if not certain or any(
        _is_of_device(*each) or _has_rank(program, loop.module, *each, unknown=True)
        for each in seeds
    ):
        return
    for where, call in _drawn(program, loop):
        at, seed = certain[0]
        detail = f"seeded by {ast.unparse(seed)} in {at.file.path}:{seed.lineno} on all ranks"
        yield where.finding("noise-equal-on-ranks", call, detail)
        return


def _seeded(program: Program, module: Module) -> Iterator[tuple[Module, ast.expr]]:
    """The seeds that a program gives to generators which all code shares."""
    for each in program.relatives(module):
        for call in each.called(*_SEEDS):
            own = any("generator" in name.lower() for name in names_in(receiver(call)))
            if call.args and not own and not isinstance(receiver(call), ast.Call):
                yield each, call.args[0]


def _is_of_device(module: Module, seed: ast.expr) -> bool:
    """`set_seed(seed, device_specific=True)` of Accelerate, which adds the rank itself."""
    call = module.parents[seed]
    return isinstance(call, ast.Call) and keyword(call, "device_specific") is not None


def _is_certain(program: Program, module: Module, seed: ast.expr) -> bool:
    """A number, or a setting that has one; `seed` gives it to another library than torch."""
    call = module.parents[seed]
    if isinstance(call, ast.Call) and last_name(call.func) == "seed":
        return False
    values, function = [seed], module.function(seed)
    if isinstance(seed, ast.Name):
        values += assigned(module, seed)
        if function is not None:
            values += [value for _, value in passed_as(program, module, function, seed.id)]
    return any(
        (known := program.settings.known(module, value)) is not None and known.value is not None
        for value in values
    )


def _has_rank(
    program: Program, home: Module, module: Module, seed: ast.expr, *, unknown: bool = False
) -> bool:
    """A seed differs between the ranks of `home`'s programs, or where it is from is `unknown`."""
    ours = program.relatives(home)
    waiting, seen = [(module, seed, 0)], {id(seed)}
    for where, value, depth in waiting:
        if depth > _DEEPEST or len(seen) > _MOST_ORIGINS:
            return unknown
        for part in ast.walk(value):
            if isinstance(part, ast.expr) and is_rank(part):
                return True
            if unknown and _VARIES.search(last_name(part)):
                return True
            fresh = [
                each
                for each in _given(program, where, part)
                if each[0] in ours and id(each[1]) not in seen
            ]
            seen.update(id(its) for _, its in fresh)
            waiting += [(*each, depth + 1) for each in fresh]
    return False


def _given(program: Program, module: Module, part: ast.AST) -> list[tuple[Module, ast.expr]]:
    """What a setting, a variable or a parameter holds."""
    if isinstance(part, ast.Attribute):
        return _stored(program, module, part.attr)
    if not isinstance(part, ast.Name) or part.id in module.imports:
        return []
    found = [(module, value) for value in assigned(module, part)]
    function = module.function(part)
    if function is not None:
        found += passed_as(program, module, function, part.id)
    return found


def _stored(program: Program, module: Module, name: str) -> list[tuple[Module, ast.expr]]:
    """What code stores into a setting: `args.seed += rank`."""
    return [
        (each, value)
        for each in program.relatives(module)
        for target, value in each.stores
        if isinstance(target, ast.Attribute) and target.attr == name
    ]


def _drawn(program: Program, loop: TrainingLoop) -> Iterator[tuple[Module, ast.Call]]:
    """The random numbers that every step draws from the shared generator."""
    reached = program.imports_of(loop.module)
    functions: dict[str, list[tuple[Module, Function]]] = {}
    for each in reached:
        for function in each.functions:
            functions.setdefault(function.name, []).append((each, function))
    waiting: list[tuple[Module, Iterator[ast.AST], int]] = [(loop.module, loop.nodes(), 0)]
    waiting += [
        (each, inside(forward.body), 1)
        for each in reached
        for forward in forwards(each)
        if not is_of_autograd(forward)
    ]
    seen: set[str] = set()
    while waiting:
        module, nodes, depth = waiting.pop(0)
        for call in calls_in(nodes, functions.keys() | {name[6:] for name in _DRAWS}):
            if depth == 0 and not loop.is_every_turn(call):
                continue
            name = last_name(call.func)
            if module.means(call.func, _DRAWS):
                of_one = last_name(module.parents[call]) == "item"
                if keyword(call, "generator") is None and not of_one:
                    yield module, call
            elif name not in seen and depth < _DEEPEST and not _NOT_OF_A_STEP.search(name):
                seen.add(name)
                waiting += [(m, inside(f.body), depth + 1) for m, f in functions.get(name, ())]
