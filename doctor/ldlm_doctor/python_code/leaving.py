"""What makes one rank leave a step, or the loop, while the others wait for it there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

from ldlm_doctor.model import Findings, data
from ldlm_doctor.python_code.collectives import agreed
from ldlm_doctor.python_code.expressions import last_name, names_in, passed, variables_in
from ldlm_doctor.python_code.facts import PRINTS
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.rank_branches import described, rank_branch, ranks_by
from ldlm_doctor.python_code.training import (
    Ranks,
    TrainingLoop,
    ends_process,
    is_optimizer_step,
    without_gradient,
)
from ldlm_doctor.python_code.tree import Function, Loop, body_of, inside

_FINITE = {"isnan", "isinf", "isfinite"}
_FAILURES = frozenset(data("names")["failures"])
_WAITS = re.compile(r"barrier|wait_for_everyone", re.I)
_MANAGERS = {"contextmanager", "asynccontextmanager"}
_LOSS = re.compile(r"(^|_)loss(es)?(_|\d|$)", re.I)


def inspect(module: Module, program: Program) -> Findings:
    """Each training loop that several ranks run, and each barrier that an error leaves out."""
    yield from _waited_for_in_vain(module)
    if not (program.is_distributed(module) or program.framework_does_it(module)):
        return
    if not any(is_optimizer_step(call) for call in module.called("step")):
        return  # gradients are looked at, and nothing is trained
    yield from _left(module, program)
    for loop in program.loops(module):
        if program.reduces_gradients(module, loop):
            yield from _nan_skips(module, loop)


def _nan_skips(module: Module, loop: TrainingLoop) -> Findings:
    for node in loop.nodes():
        if not isinstance(node, ast.If):
            continue
        looked_at = _looks_at_loss(module, node.test)
        if not looked_at or not _leaves(module, node, loop) or without_gradient(module, node):
            continue
        if agreed(module, loop.nodes(), node, looked_at | names_in(node.test)):
            continue
        late = any(
            call.lineno < node.lineno and module.function(call) is module.function(node)
            for call in loop.backwards
        )
        after = "after backward: the other ranks apply the gradients that this one drops"
        yield module.finding("nan-skip-on-one-rank", node.test, after if late else "")


def _looks_at_loss(module: Module, test: ast.expr) -> set[str]:
    """The names that a test asks for NaN, where a loss is among them."""
    asked: set[str] = set()
    for part in ast.walk(test):
        if _asks_for_nan(part):
            asked |= names_in(part)
        elif isinstance(part, ast.Name):
            bound = module.bound(part)
            if bound is not None and any(map(_asks_for_nan, ast.walk(bound))):
                asked |= {part.id} | names_in(bound)
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
                return in_loop and module.loop(node) is loop.loop
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


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Nothing in the handler ends the process or asks the other ranks for certain."""
    for node in inside(handler.body):
        match node:
            case ast.Raise() | ast.Return() | ast.Break():
                return False
            case ast.Call() if ends_process(node) or "reduce" in last_name(node.func).lower():
                return False
    return True


def _waited_for_in_vain(module: Module) -> Findings:
    """Barriers that a rank with an error does not reach, while the others wait in theirs.

    Where all ranks run the block of the with statement together, what follows it is theirs too.
    """
    for function in module.functions:
        decorators = {last_name(getattr(each, "func", each)) for each in function.decorator_list}
        for node in inside(function.body) if decorators & _MANAGERS else ():
            call = _left_out(module, node) if isinstance(node, ast.Yield) else None
            if call is not None and (rank_branch(module, node) or rank_branch(module, call)):
                detail = "an error in the block of the with statement leaves it out"
                yield module.finding("barrier-not-in-finally", call, detail)
    for function in module.functions:
        yield from _worked_between(module, function.body)
    yield from _worked_between(module, module.tree.body)
    for node in module.each(ast.Try):
        broad = any(_is_broad(handler) and _goes_on(handler) for handler in node.handlers)
        before = 1 + sum(1 for _ in takewhile(_only_prints, node.body))
        call = next(_waits(node.body[before:]), None) if broad else None
        if call is not None and not any(_waits(node.finalbody)):
            detail = f"an error after line {node.lineno} leaves it out, and the rank goes on"
            yield module.finding("barrier-not-in-finally", call, detail)


def _worked_between(module: Module, body: list[ast.stmt]) -> Findings:
    """`if rank != 0: barrier()`, what may raise on rank 0, and `if rank == 0: barrier()`."""
    first: Ranks | None = None
    worked = False
    for statement in body:
        which = ranks_by(module, statement.test) if isinstance(statement, ast.If) else None
        if which and (call := next(_waits([statement]), None)):
            if worked and first is which.others:
                detail = "an error between the two barriers leaves it out"
                yield module.finding("barrier-not-in-finally", call, detail)
            first, worked = which, False
        worked |= any(isinstance(node, ast.Call) for node in inside([statement]))


def _only_prints(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and last_name(call.func) in PRINTS


def _waits(body: list[ast.stmt]) -> Iterator[ast.Call]:
    calls = (node for node in inside(body) if isinstance(node, ast.Call))
    return (call for call in calls if _WAITS.search(last_name(call.func)))


def _left_out(module: Module, node: ast.AST) -> ast.Call | None:
    """The barrier that runs after a node only where that raises nothing."""
    while not isinstance(node, Function):
        statement = module.statement(node)
        block = module.block(statement)
        if (call := next(_waits(block[block.index(statement) + 1 :]), None)) is not None:
            return call
        node = module.parents[statement]
        if isinstance(node, ast.Try):
            if any(_waits(node.finalbody)) or any(map(_is_broad, node.handlers)):
                return None
            if (call := next(_waits(node.orelse), None)) is not None:
                return call
    return None


def _is_broad(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or bool(names_in(handler.type) & _FAILURES)


def _left(module: Module, program: Program) -> Findings:
    loops = program.loops(module) if program.is_distributed(module) else ()
    own = {id(loop.loop): loop for loop in loops}
    for home, loop in program.loops_around(module):
        for node in inside(loop.body):
            if not isinstance(node, ast.Break) or home.loop(node) is not loop:
                continue
            if without_gradient(home, node):
                continue
            branch = rank_branch(home, node, within=loop)
            if branch is not None:
                yield home.finding("loop-left-by-one-rank", node, described(branch))
            elif (flag := _own_flag(home, node, loop, own.get(id(loop)))) is not None:
                yield home.finding("loop-left-by-one-rank", flag)


def _own_flag(
    module: Module, leaving: ast.Break, loop: Loop, training: TrainingLoop | None
) -> ast.expr | None:
    """The test of a flag that only one rank sets, or of this rank's own loss."""
    branch = module.parents[leaving]
    if not isinstance(branch, ast.If):
        return None
    if agreed(module, inside(loop.body), branch, names_in(branch.test)):
        return None
    match branch.test:
        case ast.Name(id=name):
            return branch.test if _is_set_by_one_rank(module, branch, name) else None
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()]) if training is not None:
            own = {name for name in names_in(left) if _LOSS.search(name)}
            given = {name for call in training.backwards for name in names_in(call)}
            return branch.test if own & given else None
    return None


def _is_set_by_one_rank(module: Module, branch: ast.If, name: str) -> bool:
    """`if rank == 0: stop = True`, and nowhere else anything but False."""
    alone = False
    for node in inside(body_of(module.scope(branch))):
        match node:
            case ast.Assign() if name in set().union(*map(names_in, node.targets)):
                if isinstance(node.value, ast.Constant) and not node.value.value:
                    continue
                if rank_branch(module, node) is None:
                    return False
                alone = True
            case ast.Call() if last_name(node.func) not in ("print", "bool"):
                if name in set().union(*map(variables_in, passed(node))):
                    return False  # the function may send it to the other ranks
    return alone
