"""What ranks decide together, and collectives that only some of them call."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from ldlm_doctor.model import Findings, data
from ldlm_doctor.python_code.expressions import keyword, last_name, names_in
from ldlm_doctor.python_code.facts import PRINTS
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.rank_branches import described, rank_branch
from ldlm_doctor.python_code.training import Ranks, is_rank
from ldlm_doctor.python_code.tree import Function, in_one_branch, inside
from ldlm_doctor.python_code.values import constant

COLLECTIVES = set(data("names")["collectives"])
_AGREES = COLLECTIVES | set(data("names")["agrees"])
_AGREEING = tuple(data("names")["agreeing"])
"""What names a function in which ranks decide together."""
_FULL = frozenset(
    f"{where}{name}"
    for where in ("torch.distributed.", "torch.distributed.distributed_c10d.", "deepspeed.comm.")
    for name in COLLECTIVES
)
_TOGETHER = frozenset(f"torch.distributed.checkpoint.{n}" for n in data("names")["checkpoints"])


_ON_FAILURE = re.compile(r"^on_(keyboard_interrupt|exception)$")
"""Hooks of Lightning that run where a rank fails or is interrupted."""


def agreed(module: Module, nodes: Iterable[ast.AST], before: ast.stmt, names: set[str]) -> bool:
    """What these names hold was made common to all ranks before a statement of some nodes."""
    agreeing = _AGREES | _wrappers(module)
    for node in nodes:
        if not isinstance(node, ast.Call) or node.lineno > before.lineno:
            continue
        exchanged = (names_in(node) - {last_name(node.func)}) | _assigned(module, node)
        if exchanged & names and agrees(node, agreeing):
            return True
    return False


def agrees(call: ast.Call, names: Collection[str] = _AGREES) -> bool:
    """The call brings together what several ranks have, by its name."""
    name = last_name(call.func).lower()
    return name in names or any(part in name for part in _AGREEING)


def decides_together(module: Module) -> bool:
    """Numbers of several ranks are brought together in the file, by whatever means."""
    names = {name.lower() for name in module.methods_called}
    return bool(names & (_AGREES - {"barrier", "monitored_barrier", "scatter"})) or any(
        part in name for name in names for part in _AGREEING
    )


def _wrappers(module: Module) -> set[str]:
    """Functions of this file that call a collective themselves."""
    around = (module.function(call) for call in module.calls if last_name(call.func) in _AGREES)
    return {function.name.lower() for function in around if function is not None}


def _assigned(module: Module, node: ast.expr) -> set[str]:
    statement = module.statement(node)
    if isinstance(statement, ast.Assign):
        return {name for target in statement.targets for name in names_in(target)}
    return set()


def inspect(module: Module, program: Program) -> Findings:
    """Each collective, and each call of a function that is one."""
    for call in _collectives(module, program):
        branch = rank_branch(module, call)
        if branch is None or _is_of_a_group(call) or _interrupts(module, call):
            continue
        if _is_never_called(module, call):
            continue
        if not _others_call(module, program, call, branch):
            inner = _inner(module, program, call)
            where = f"; {last_name(call.func)} calls it {inner}" if inner else ""
            yield module.finding("collective-on-one-rank", call, f"{described(branch)}{where}")


def _collectives(module: Module, program: Program) -> Iterator[ast.Call]:
    yield from module.calls_to(_FULL)
    yield from module.calls_to(_TOGETHER)
    packages = {name.partition(".")[0] for level, name in module.imported if level == 0}
    for owner, of, methods in data("names")["together"]:
        for call in module.called(*methods) if packages.intersection(of) else ():
            match call.func:
                case ast.Attribute(value=ast.Name() | ast.Attribute() as held):
                    if re.search(owner, last_name(held)):
                        yield call
    if packages & {"lightning", "pytorch_lightning"}:
        yield from _logged_together(module)
    for call in module.called(*program.once(_functions_with_collectives)):
        if _inner(module, program, call):
            yield call


def _logged_together(module: Module) -> Iterator[ast.Call]:
    """`self.log(..., sync_dist=True)`, which reduces over all ranks."""
    for call in module.called("log", "log_dict"):
        alone = constant(module, keyword(call, "rank_zero_only"))
        if constant(module, keyword(call, "sync_dist")) is True and alone is not True:
            yield call


def _is_of_a_group(call: ast.Call) -> bool:
    """The ranks of a group of their own, or a save that asks no other rank."""
    names = {k.arg for k in call.keywords}
    return bool(names & {"group", "process_group", "no_dist"})


def _interrupts(module: Module, call: ast.Call) -> bool:
    """The call answers a signal or a failure, at which ranks are not in step anyway."""
    set_up = module.calls_to(frozenset({"signal.signal"}))
    handlers = {last_name(given) for each in set_up for given in each.args[1:]}
    function = module.function(call)
    return function is not None and (
        function.name in handlers or _ON_FAILURE.search(function.name) is not None
    )


def _is_never_called(module: Module, call: ast.Call) -> bool:
    """The call stands under a flag that is False, or after the group was destroyed."""
    for outer in module.above(call):
        if isinstance(outer, ast.If) and constant(module, outer.test) is False:
            return True
    function = module.function(call)
    return any(
        each.lineno < call.lineno and module.function(each) is function
        for each in module.called("destroy_process_group")
    )


def _functions_with_collectives(program: Program) -> dict[str, tuple[Module, Function, ast.Call]]:
    """Functions of the project, by a name that only one has, that call a collective for certain."""
    found: dict[str, tuple[Module, Function, ast.Call]] = {}
    for module in program.modules:
        for call in module.calls_to(_FULL):
            around = module.function(call)
            if around is None or _is_of_a_group(call) or _keeps_results(around):
                continue
            if any(module.statement(call) is each for each in around.body):
                found.setdefault(around.name, (module, around, call))
    return {name: its for name, its in found.items() if program.definitions[name] == 1}


def _keeps_results(function: Function) -> bool:
    """What a call gave before is given again, and nothing is called."""
    decorators = (last_name(getattr(each, "func", each)) for each in function.decorator_list)
    return not {"cache", "lru_cache"}.isdisjoint(decorators)


def _inner(module: Module, program: Program, call: ast.Call) -> str:
    """Where a function of the project calls the collective; "" where the call is one itself."""
    its = program.once(_functions_with_collectives).get(last_name(call.func))
    if its is None:
        return ""
    home, function, inner = its
    is_method = home.class_of(function) is not None
    dotted = module.resolve(call.func).split(".")
    is_imported = len(dotted) > 1 and dotted[0] != "self" and dotted[-2] in home.parts
    match call.func:
        case ast.Attribute(value=ast.Name(id="self")):
            known = is_method and home.class_of(function) is module.class_of(call)
        case ast.Name():
            known = not is_method and (home is module or is_imported)
        case _:
            known = not is_method and is_imported
    return f"in {home.file.path}:{inner.lineno}" if known else ""


def _others_call(
    module: Module, program: Program, call: ast.Call, branch: tuple[Ranks, ast.expr]
) -> bool:
    """The other ranks call a collective too, or something that may be one, in another branch."""
    which, around = branch[0], module.parents[branch[1]]
    scope = module.scope(call)
    own = {id(node) for node in ast.walk(scope)}
    for other in _collectives(module, program):
        if other is call or id(other) not in own:
            continue
        node: ast.AST | None = other
        while node is not None and node is not scope:  # also in functions within the function
            its = rank_branch(module, node)
            if its is not None and its[0] is not which:
                return True
            node = module.function(node)
    return isinstance(around, ast.If) and any(
        isinstance(node, ast.Call) and not is_rank(node) and last_name(node.func) not in PRINTS
        for node in inside([*around.body, *around.orelse])
        if not in_one_branch(around, call, node)
    )
