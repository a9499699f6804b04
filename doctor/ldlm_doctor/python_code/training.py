"""Where a file trains: its loops over steps, and what in them happens at every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ldlm_doctor.model import pattern
from ldlm_doctor.python_code.expressions import last_name
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.tree import Function, Loop, calls_in, inside

_OPTIMIZER = re.compile(r"(^|_)(opt|optim|optimizer|optimizers|scaler|grad_scaler)(_|\d|$)", re.I)
_OPTIMIZER_PART = re.compile(r"optim|scaler", re.I)
_MAIN = re.compile(pattern("main_rank"), re.I)
_RANK = re.compile(pattern("rank"), re.I)
_PLAIN_FLAG = re.compile(pattern("flags"), re.I)
_EVALUATES = re.compile(r"eval|valid|test|infer|predict|sampl|generat|export|demo|extract", re.I)
_TRAINS = re.compile(r"train|tune|tuning|main|optimi|learn", re.I)
_PROCESS_ENDS = frozenset({"exit", "_exit", "abort", "quit"})
_FARTHEST_CALLER = 3


class Ranks(Enum):
    """Which ranks a condition lets through."""

    MAIN = "main"
    OTHERS = "others"

    @property
    def others(self) -> Ranks:
        """Those that the condition keeps out."""
        return Ranks.OTHERS if self is Ranks.MAIN else Ranks.MAIN


@dataclass(eq=False, slots=True)
class TrainingLoop:
    """The innermost loop in which gradients are computed.

    `bodies` are the statements of one step: those of a turn, and of the functions of this
    file that it calls on its way to `backward`. Where a turn is a micro-batch only, and the
    optimizer steps in the loop around, they are those of a turn of that one.
    """

    module: Module
    loop: Loop
    bodies: list[list[ast.stmt]]
    backwards: list[ast.Call]

    def nodes(self) -> Iterator[ast.AST]:
        """All nodes of a turn."""
        for body in self.bodies:
            yield from inside(body)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls of methods or functions of these names in a turn."""
        return calls_in(self.nodes(), names)

    def outer(self) -> Loop | None:
        """The loop around this one in the same function."""
        for node in self.module.above(self.loop):
            if isinstance(node, Function):
                return None
            if isinstance(node, Loop):
                return node
        return None

    def optimizer_steps(self) -> list[ast.Call]:
        """The calls in a turn that change the parameters."""
        return [call for call in self.calls("step") if is_optimizer_step(call)]

    def is_every_turn(self, node: ast.AST) -> bool:
        """Nothing rarer than a choice of ranks stands between the turn and a node of it."""
        tops = {id(statement) for body in self.bodies for statement in body}
        child = node
        for outer in self.module.above(node):
            if id(child) in tops:
                return True
            match outer:
                case ast.If() if child is not outer.test and not is_common(outer.test):
                    return False
                case ast.IfExp() if child is not outer.test and not is_common(outer.test):
                    return False
                case ast.ExceptHandler() | ast.Lambda():
                    return False
                case ast.BoolOp() if child is not outer.values[0]:
                    if not all(is_common(value) for value in outer.values[:1]):
                        return False
            child = outer
        return id(child) in tops


def training_loops(module: Module) -> list[TrainingLoop]:
    """The training loops of a file, each innermost loop once."""
    found: dict[Loop, TrainingLoop] = {}
    for call in module.called("backward"):
        if not isinstance(call.func, ast.Attribute) or _is_probe(module, call):
            continue
        for loop, bodies in _turns(module, call, 0):
            known = found.setdefault(loop, TrainingLoop(module, loop, [], []))
            known.backwards.append(call)
            known.bodies.extend(b for b in bodies if all(b is not other for other in known.bodies))
    if not _has_optimizer(module):
        return []
    for known in found.values():
        _widen(known)
    return sorted(found.values(), key=lambda each: each.loop.lineno)


def _widen(loop: TrainingLoop) -> None:
    """Take the loop around micro-batches for the step."""
    outer = loop.outer()
    if outer is None or loop.optimizer_steps():
        return
    if any(isinstance(node, ast.Call) and is_optimizer_step(node) for node in inside(outer.body)):
        loop.bodies = [outer.body, *(body for body in loop.bodies if body is not loop.loop.body)]


def _has_optimizer(module: Module) -> bool:
    """Gradients are for an optimizer, and not a picture's or a test's own."""
    return any(is_optimizer_step(call) for call in module.called("step")) or any(
        _OPTIMIZER_PART.search(word) for word in module.words
    )


def _turns(
    module: Module, call: ast.AST, depth: int
) -> Iterator[tuple[Loop, list[list[ast.stmt]]]]:
    """The innermost loops that lead to a call, with the bodies on the way."""
    for outer in module.above(call):
        if isinstance(outer, Loop):
            yield outer, [outer.body]
            return
        if isinstance(outer, Function):
            if depth < _FARTHEST_CALLER:
                yield from _callers(module, outer, depth)
            return


def _callers(
    module: Module, function: Function, depth: int
) -> Iterator[tuple[Loop, list[list[ast.stmt]]]]:
    if function.name in ("forward", "__init__"):
        return
    for call in module.called(function.name):
        if module.function(call) is not function:
            for loop, bodies in _turns(module, call, depth + 1):
                yield loop, [*bodies, function.body]


def _is_probe(module: Module, call: ast.Call) -> bool:
    """Inside the `backward(ctx, ...)` of an autograd function, or in a test."""
    function = module.function(call)
    if function is None:
        return False
    return function.name.lstrip("_").startswith("test_") or (
        function.name == "backward" and is_of_autograd(function)
    )


def is_of_autograd(function: Function) -> bool:
    """A method of `torch.autograd.Function`: an operation, and no step."""
    return bool(function.args.args) and function.args.args[0].arg == "ctx"


def is_optimizer_step(call: ast.Call) -> bool:
    """`optimizer.step()` or `scaler.step(optimizer)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    receiver = call.func.value
    if isinstance(receiver, ast.Subscript):
        receiver = receiver.value
    return bool(_OPTIMIZER.search(last_name(receiver)))


def ranks_of(test: ast.expr) -> Ranks | None:
    """The ranks that a condition lets through; None: it does not depend on the rank."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            which = ranks_of(operand)
            return which and which.others
        case ast.BoolOp(op=op, values=values):
            # `rank == 0 or done` lets others through too, `rank == 0 or not distributed` none
            if isinstance(op, ast.Or) and not all(map(is_common, values)):
                return None
            return next((its for each in values if (its := ranks_of(each)) is not None), None)
        case ast.Compare(left=left, ops=[only], comparators=[right]):
            return _compared(left, only, right)
        case ast.Call() | ast.Name() | ast.Attribute():
            name = last_name(test.func if isinstance(test, ast.Call) else test)
            return Ranks.MAIN if _MAIN.search(name) else None
    return None


def _compared(left: ast.expr, sign: ast.cmpop, right: ast.expr) -> Ranks | None:
    listed = right.elts if isinstance(right, ast.List | ast.Tuple | ast.Set) else []
    zero, among = (
        any(isinstance(each, ast.Constant) and each.value == 0 for each in nodes)
        for nodes in ([right], listed)
    )
    match sign if is_rank(left) else None:
        case ast.Eq() | ast.LtE() if zero:
            return Ranks.MAIN
        case ast.NotEq() | ast.Gt() if zero:
            return Ranks.OTHERS
        case ast.In() if among:
            return Ranks.MAIN
        case ast.NotIn() if among:
            return Ranks.OTHERS
    return None


def is_rank(node: ast.expr) -> bool:
    """The number of a rank: a variable, a call, or what torchrun puts into the environment."""
    match node:
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            return is_rank(inner)
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return key in ("RANK", "LOCAL_RANK")
        case ast.Call(args=[ast.Constant(value=str() as key), *_]) if last_name(node.func) in (
            "get",
            "getenv",
        ):
            return key in ("RANK", "LOCAL_RANK")
        case ast.Call():
            return bool(_RANK.search(last_name(node.func)))
    return bool(_RANK.search(last_name(node)))


def is_common(test: ast.expr) -> bool:
    """A condition that holds at every step or at none: of the rank, of None, of the setup."""
    match test:
        case ast.BoolOp():
            return all(is_common(value) for value in test.values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return is_common(operand)
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.Constant():
            return bool(test.value)
        case ast.Call() if last_name(test.func) in ("is_available", "is_initialized", "hasattr"):
            return True
        case ast.Name() | ast.Attribute() if _PLAIN_FLAG.search(last_name(test)):
            return True
    return ranks_of(test) is not None


def ends_process(call: ast.Call) -> bool:
    """`sys.exit()` and the like."""
    return last_name(call.func) in _PROCESS_ENDS


def is_of_evaluation(module: Module, node: ast.AST) -> bool:
    """By the name of the file, the class or the function it is there to evaluate or to sample."""
    names = [getattr(outer, "name", "") or "" for outer in module.above(node)]
    named = [*names, *module.parts[-1:]]
    return any(map(_EVALUATES.search, named)) and not any(map(_TRAINS.search, named))


def without_gradient(module: Module, node: ast.AST) -> bool:
    """The node is part of an evaluation."""
    for outer in module.above(node):
        if isinstance(outer, ast.With):
            if any(_is_no_grad(item.context_expr) for item in outer.items):
                return True
        elif isinstance(outer, ast.FunctionDef):
            named = re.search(r"eval|valid|metric|^test|infer", outer.name) is not None
            return named or any(map(_is_no_grad, outer.decorator_list))
    return False


def _is_no_grad(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return last_name(called) in ("no_grad", "inference_mode")
