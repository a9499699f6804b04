"""What ranks decide together, and what only some of them come to."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.training import Ranks, ranks_of
from ldlm_doctor.python_code.tree import Function, last_name, names_in

COLLECTIVES = {
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "barrier",
    "broadcast", "broadcast_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "gather", "gather_object", "scatter", "scatter_object_list", "all_to_all",
    "all_to_all_single", "monitored_barrier",
}  # fmt: skip
_AGREES = COLLECTIVES | {
    "all_reduce_coalesced",
    "reduce_tensor",
    "reduce_mean",
    "gather_for_metrics",
}
_AGREEING = (
    "all_reduce", "allreduce", "reduce_", "sync_", "gather", "agree", "all_ranks", "broadcast",
)  # fmt: skip
"""What names a function in which ranks decide together."""


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


def rank_branch(
    module: Module, node: ast.AST, within: ast.AST | None = None
) -> tuple[Ranks, ast.expr] | None:
    """The condition on the rank under which a node runs, in its function or `within` a node."""
    child = node
    for outer in module.above(node):
        if isinstance(child, ast.stmt) and (left := _left_before(module, child)) is not None:
            return left
        if outer is within or isinstance(outer, Function | ast.Lambda):
            return None
        if isinstance(outer, ast.If | ast.IfExp) and child is not outer.test:
            which = ranks_by(module, outer.test)
            if which is not None:
                otherwise = outer.orelse if isinstance(outer.orelse, list) else [outer.orelse]
                if any(child is each for each in otherwise):
                    which = which.others
                return which, outer.test
        child = outer
    return None


def described(branch: tuple[Ranks, ast.expr]) -> str:
    """The ranks that a condition lets through, and where it stands."""
    which, test = branch
    whose = "rank 0" if which is Ranks.MAIN else "the ranks other than 0"
    return f"only {whose}, by line {test.lineno}"


def ranks_by(module: Module, test: ast.expr) -> Ranks | None:
    """The ranks that a condition lets through, also by a name for it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        which = ranks_by(module, test.operand)
        return which and which.others
    if isinstance(test, ast.Name) and (bound := module.bound(test)) is not None:
        return ranks_of(bound) or ranks_of(test)
    return ranks_of(test)


def _left_before(module: Module, child: ast.stmt) -> tuple[Ranks, ast.expr] | None:
    """`if rank != 0: return`, or `continue`, before the statement in its block."""
    for statement in module.block(child):
        if statement is child:
            return None
        match statement:
            case ast.If(test=test, body=[*_, ast.Return() | ast.Continue()], orelse=[]):
                which = ranks_by(module, test)
                if which is not None:
                    return which.others, test
    return None
