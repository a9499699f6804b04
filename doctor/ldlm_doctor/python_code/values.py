"""What an expression is known to be; what depends on a configuration is unknown."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ldlm_doctor.model import data
from ldlm_doctor.python_code.expressions import keyword, receiver
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.tree import Function

TIMEDELTA = frozenset({"datetime.timedelta", "timedelta"})
_SECONDS: dict[str, float] = data("names")["seconds"]
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_DEEPEST = 8


UNKNOWN: Final = object()
"""The value of what only a run decides."""


def constant(module: Module, node: ast.expr | None, depth: int = 0) -> object:
    """The value of an expression, or `UNKNOWN`. A name counts where it is assigned once."""
    if node is None or depth > _DEEPEST:
        return UNKNOWN
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return constant(module, module.bound(node), depth + 1)
        case ast.Attribute():
            return constant(module, module.bound_attribute(node), depth + 1)
        case ast.UnaryOp(op=ast.USub()):
            operand = number(module, node.operand, depth + 1)
            return UNKNOWN if operand is None else -operand
        case ast.BinOp():
            return _computed(module, node, depth)
        case ast.Call(func=ast.Name(id="int" | "float" | "str" as kind), args=[only], keywords=[]):
            return _converted(kind, constant(module, only, depth + 1))
    return UNKNOWN


def number(module: Module, node: ast.expr | None, depth: int = 0) -> float | None:
    """The number that an expression is; None where it is unknown or none."""
    value = constant(module, node, depth)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def _computed(module: Module, node: ast.BinOp, depth: int) -> object:
    left, right = number(module, node.left, depth + 1), number(module, node.right, depth + 1)
    compute = _OPERATIONS.get(type(node.op))
    if compute is None or left is None or right is None:
        return UNKNOWN
    try:
        return compute(left, right)
    except (ArithmeticError, ValueError):
        return UNKNOWN


def _converted(kind: str, value: object) -> object:
    try:
        match kind, value:
            case "int", str() | int() | float():
                return int(value)
            case "float", str() | int() | float():
                return float(value)
            case "str", str() | int() | float():
                return str(value)
    except (ValueError, OverflowError):
        pass
    return UNKNOWN


def default_of(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    for argument, default in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        if argument.arg == name:
            return default
    for argument, its in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if argument.arg == name:
            return its
    return None


def argument_of(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """What one call passes for a parameter; None: nothing that is plain to see."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    if name in names and names.index(name) < len(call.args):
        value = call.args[names.index(name)]
        return None if isinstance(value, ast.Starred) else value
    return keyword(call, name)


def option_names(call: ast.Call) -> list[str]:
    """The attribute that an option of argparse sets, by each of its long names."""
    if isinstance(dest := keyword(call, "dest"), ast.Constant):
        return [str(dest.value)]
    given = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return [name.lstrip("-").replace("-", "_") for name in given if name.startswith("--")]


def seconds(module: Module, node: ast.expr | None, depth: int = 0) -> float | None:
    """The length of a `timedelta`; None where it is unknown."""
    if isinstance(node, ast.Name) and depth < _DEEPEST:
        return seconds(module, module.bound(node), depth + 1)
    if not isinstance(node, ast.Call) or not module.means(node.func, TIMEDELTA):
        return None
    total = 0.0
    for name, value in zip(_SECONDS, node.args, strict=False):
        amount = number(module, value)
        if amount is None:
            return None
        total += amount * _SECONDS[name]
    for given in node.keywords:
        amount = number(module, given.value)
        if given.arg not in _SECONDS or amount is None:
            return None
        total += amount * _SECONDS[given.arg]
    return total


@dataclass(slots=True)
class Arguments:
    """The arguments of a call by name. Not `complete`: more may come from what is unpacked."""

    given: dict[str, ast.expr | None] = field(default_factory=dict)
    complete: bool = True

    def lacks(self, name: str) -> bool:
        """The argument is surely not given."""
        return self.complete and name not in self.given

    def __getitem__(self, name: str) -> ast.expr | None:
        return self.given.get(name)


def arguments(module: Module, call: ast.Call, positional: tuple[str, ...] = ()) -> Arguments:
    """What a call passes. `positional`: names of the leading parameters."""
    found = Arguments()
    for at, value in enumerate(call.args):
        if isinstance(value, ast.Starred):
            found.complete = False
            break
        if at < len(positional):
            found.given[positional[at]] = value
    for given in call.keywords:
        if given.arg is None:
            _unpack(module, given.value, found)
        else:
            found.given[given.arg] = given.value
    return found


def _unpack(module: Module, node: ast.expr, into: Arguments, depth: int = 0) -> None:
    """Add what `**node` passes, where its keys are plain to see."""
    match node:
        case ast.Dict() if all(
            isinstance(k, ast.Constant) and isinstance(k.value, str) for k in node.keys
        ):
            for key, value in zip(node.keys, node.values, strict=True):
                assert isinstance(key, ast.Constant)
                into.given[str(key.value)] = value
        case ast.Call(func=ast.Name(id="dict"), args=[]) if all(k.arg for k in node.keywords):
            into.given.update({k.arg: k.value for k in node.keywords if k.arg})
        case ast.IfExp():  # given or not: nothing is known but that somebody thought of it
            either = Arguments()
            _unpack(module, node.body, either, depth + 1)
            _unpack(module, node.orelse, either, depth + 1)
            into.complete &= either.complete
            into.given.update(dict.fromkeys(either.given))
        case ast.Name() if depth < _DEEPEST and (bound := module.bound(node)) is not None:
            _unpack(module, bound, into, depth + 1)
            into.given.update(dict.fromkeys(_stored(module, node)))
            if _is_changed(module, node):
                into.complete = False
        case _:
            into.complete = False


def _stored(module: Module, name: ast.Name) -> set[str]:
    """The keys that are stored into a dictionary one by one."""
    found = set()
    for node in module.each(ast.Subscript):
        match node:
            case ast.Subscript(
                value=ast.Name(id=name.id), slice=ast.Constant(value=str() as key), ctx=ast.Store()
            ):
                found.add(key)
    return found


def _is_changed(module: Module, name: ast.Name) -> bool:
    """Whether a dictionary is changed by a method of its own."""
    owners = map(receiver, module.called("update", "setdefault", "pop"))
    return any(isinstance(owner, ast.Name) and owner.id == name.id for owner in owners)
