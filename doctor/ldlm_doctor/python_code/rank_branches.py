"""Code that only some of the ranks run, by the conditions around and before it."""

from __future__ import annotations

import ast

from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.training import Ranks, is_common, is_rank, ranks_of
from ldlm_doctor.python_code.tree import Function


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
            if _is_of_one_process(outer.test):
                return None
            which = ranks_by(module, outer.test)
            if which is not None:
                otherwise = outer.orelse if isinstance(outer.orelse, list) else [outer.orelse]
                if not any(child is each for each in otherwise):
                    return which, outer.test
                if _splits_ranks(outer.test):
                    return which.others, outer.test
        child = outer
    return None


def _is_of_one_process(test: ast.expr) -> bool:
    """`rank == -1`, and whatever is asked beside it: there are no other ranks."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return any(map(_is_of_one_process, values))
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.UnaryOp(ast.USub(), _)]):
            return is_rank(left)
    return False


def _splits_ranks(test: ast.expr) -> bool:
    """Whether those that a condition on the rank does not let through are the other ranks.

    With `if not sharded and rank != 0: return`, all ranks go on where the model is sharded.
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _splits_ranks(operand)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(map(is_common, values))
    return True


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
                if which is not None and _splits_ranks(test):
                    return which.others, test
    return None
