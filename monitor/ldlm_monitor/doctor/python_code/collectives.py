"""What some ranks do alone while the others wait for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_monitor.doctor.finding import Check, Finding
from ldlm_monitor.doctor.python_code.bindings import Function, inside
from ldlm_monitor.doctor.python_code.module import Module, last_name
from ldlm_monitor.doctor.python_code.program import Program
from ldlm_monitor.doctor.python_code.training import (
    Ranks,
    TrainingLoop,
    ends_process,
    names_in,
    ranks_of,
    without_gradient,
)

NAN_SKIP = Check(
    id="nan-skip-on-one-rank",
    severity="critical",
    title="A rank that meets NaN skips the step alone",
    why="The loss is this rank's own. Where it is not finite this rank leaves out backward, in "
    "which the others wait for its gradients until the process group's timeout. Skipped after "
    "backward, the others apply the NaN that it sent them, and the ranks drift apart.",
    source="run with 2 ranks of torch 2.13: the other rank waits in all-reduce until the timeout",
    since="",
    fix="Decide together: all_reduce the flag (MAX) before the branch; or always run backward "
    "and skip by the gradient norm, which is the same on every rank.",
)
ALONE = Check(
    id="collective-on-one-rank",
    severity="critical",
    title="A collective that only some ranks call",
    why="A collective returns when every rank of the group has called it. Called on rank 0 "
    "alone it waits until the timeout, or pairs with the next collective of the others and "
    "gives wrong data.",
    source="https://docs.pytorch.org/docs/stable/distributed.html#collective-functions",
    since="",
    fix="Call it on every rank, and keep only what follows from it to rank 0.",
)
CHECKS = (NAN_SKIP, ALONE)
_COLLECTIVES = {
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "barrier",
    "broadcast", "broadcast_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "gather", "gather_object", "scatter", "scatter_object_list", "all_to_all",
    "all_to_all_single", "monitored_barrier",
}  # fmt: skip
_AGREES = _COLLECTIVES | {
    "all_reduce_coalesced",
    "reduce_tensor",
    "reduce_mean",
    "gather_for_metrics",
}
_AGREEING = ("all_reduce", "allreduce", "reduce_", "sync_", "gather", "agree", "all_ranks")
"""What names a function in which ranks decide together."""
_FULL = frozenset(
    f"torch.distributed.{where}{name}"
    for where in ("", "distributed_c10d.")
    for name in _COLLECTIVES
)
_FINITE = {"isnan", "isinf", "isfinite"}


def inspect(module: Module, program: Program) -> Iterator[Finding]:
    """Branches that depend on the rank, or on what only one rank knows."""
    yield from _alone(module)
    if program.is_distributed(module):
        for loop in program.loops(module):
            yield from _nan_skips(module, loop)


def _nan_skips(module: Module, loop: TrainingLoop) -> Iterator[Finding]:
    seen = set()
    for node in loop.nodes():
        if not isinstance(node, ast.If) or id(node) in seen:
            continue
        seen.add(id(node))
        looked_at = _looks_at_loss(module, node.test)
        if not looked_at or not _leaves(module, node, loop) or without_gradient(module, node):
            continue
        if _agreed(module, loop, node, looked_at):
            continue
        late = any(
            call.lineno < node.lineno and module.function(call) is module.function(node)
            for call in loop.backwards
        )
        after = "after backward: the other ranks apply the gradients that this one drops"
        yield module.finding(NAN_SKIP, node.test, after if late else "")


def _looks_at_loss(module: Module, test: ast.expr) -> set[str]:
    """The names that a test asks for NaN, where a loss is among them."""
    asked: set[str] = set()
    for part in ast.walk(test):
        if _asks_for_nan(part):
            asked |= names_in(part)
        elif isinstance(part, ast.Name) and (bound := module.bound(part)) is not None:
            asked |= (
                {part.id} | names_in(bound) if any(map(_asks_for_nan, ast.walk(bound))) else set()
            )
    return asked if any("loss" in name.lower() for name in asked) else set()


def _asks_for_nan(node: ast.AST) -> bool:
    """`isnan(x)` and the like, or `x != x`."""
    match node:
        case ast.Call():
            return last_name(node.func) in _FINITE
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            return ast.dump(left) == ast.dump(right)
    return False


def _leaves(module: Module, branch: ast.If, loop: TrainingLoop) -> bool:
    """The branch leaves out what follows in the step."""
    own_function = module.function(branch)
    in_loop = any(outer is loop.loop for outer in module.above(branch))
    for node in inside(branch.body):
        match node:
            case ast.Continue():
                return in_loop
            case ast.Break():
                return False
            case ast.Return():
                return own_function is not None
            case ast.Raise():
                return False
            case ast.Call() if ends_process(node):
                return False
    # `if isfinite(loss): loss.backward()`, or `else: loss.backward()` the other way round
    in_body, otherwise = (
        any(node in loop.backwards for node in inside(block))
        for block in (branch.body, branch.orelse)
    )
    return in_body != otherwise


def _agreed(module: Module, loop: TrainingLoop, branch: ast.If, names: set[str]) -> bool:
    """What the branch looks at was made common to all ranks before."""
    agreeing = _AGREES | _wrappers(module)
    tested = names | names_in(branch.test)
    for node in loop.nodes():
        if isinstance(node, ast.Call) and node.lineno <= branch.lineno:
            name = last_name(node.func).lower()
            agrees = name in agreeing or any(part in name for part in _AGREEING)
            if agrees and (names_in(node) - {last_name(node.func)}) & tested:
                return True
            if agrees and _assigned(module, node) & tested:
                return True
    return False


def _wrappers(module: Module) -> set[str]:
    """Functions of this file that call a collective themselves."""
    around = (module.function(call) for call in module.calls if last_name(call.func) in _AGREES)
    return {function.name.lower() for function in around if function is not None}


def _assigned(module: Module, node: ast.expr) -> set[str]:
    statement = module.statement(node)
    if isinstance(statement, ast.Assign):
        return {name for target in statement.targets for name in names_in(target)}
    return set()


def _alone(module: Module) -> Iterator[Finding]:
    for call in module.calls_to(_FULL):
        if any(k.arg == "group" for k in call.keywords):
            continue
        branch = _rank_branch(module, call)
        if branch is None:
            continue
        which, test = branch
        if not _others_call(module, call, which):
            whose = "rank 0" if which is Ranks.MAIN else "the ranks other than 0"
            yield module.finding(ALONE, call, f"only {whose}, by line {test.lineno}")


def _rank_branch(module: Module, node: ast.AST) -> tuple[Ranks, ast.expr] | None:
    """The condition on the rank under which a node runs."""
    child = node
    for outer in module.above(node):
        if isinstance(outer, Function | ast.Lambda):
            return _after_return(module, outer, child)
        if isinstance(outer, ast.If) and child is not outer.test:
            which = ranks_of(outer.test)
            if which is not None:
                if any(child is each for each in outer.orelse):
                    which = Ranks.OTHERS if which is Ranks.MAIN else Ranks.MAIN
                return which, outer.test
        child = outer
    return None


def _after_return(
    module: Module, function: ast.AST, child: ast.AST
) -> tuple[Ranks, ast.expr] | None:
    """`if rank != 0: return` before the statement."""
    if not isinstance(function, Function):
        return None
    for statement in function.body:
        if statement is child:
            return None
        match statement:
            case ast.If(test=test, body=[*_, ast.Return()], orelse=[]):
                which = ranks_of(test)
                if which is not None:
                    return Ranks.OTHERS if which is Ranks.MAIN else Ranks.MAIN, test
    return None


def _others_call(module: Module, call: ast.Call, which: Ranks) -> bool:
    """The other ranks call a collective too, in another branch of the same function."""
    scope = module.scope(call)
    body = [] if isinstance(scope, ast.Lambda) else scope.body
    for node in inside(body):
        if isinstance(node, ast.Call) and node is not call and module.means(node.func, _FULL):
            other = _rank_branch(module, node)
            if other is not None and other[0] is not which:
                return True
    return False
