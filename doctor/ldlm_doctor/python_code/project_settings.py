"""What the settings of a project say: YAML files, options of argparse, fields of classes.

A setting counts only where nothing contradicts it: every declaration of its name gives the
same value, no code stores another one, and no script names it on a command line.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property

from ldlm_doctor.model import Kind, SourceFile
from ldlm_doctor.python_code.declared import Declared, in_yaml, of_argparse, of_classes
from ldlm_doctor.python_code.expressions import last_name
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.tree import Function
from ldlm_doctor.python_code.values import UNKNOWN, argument_of, constant

_DEEPEST = 8
_SETTINGS = re.compile(r"cfg|conf|arg|opt|hparam|hyper|param|setting|flag|^hp$", re.I)
_COPIES = frozenset({"replace", "set_defaults", "Namespace", "evolve", "update", "merge"})


@dataclass(frozen=True, slots=True)
class Known:
    """What an expression is by the settings; `where` says which, "" where the code says so."""

    value: object
    where: str


class Settings:
    """The settings that the files of one audit declare."""

    def __init__(
        self,
        modules: tuple[Module, ...],
        files: tuple[SourceFile, ...],
        calls: dict[str, list[tuple[Module, ast.Call]]],
    ) -> None:
        self._modules, self._files, self._calls = modules, files, calls
        self._answers: dict[tuple[str, ...], Known | None] = {}

    def number(self, module: Module, node: ast.expr | None) -> tuple[float | None, str]:
        """The number that an expression is, and the places that say so."""
        known = self.known(module, node)
        if known is None or isinstance(known.value, bool):
            return None, ""
        return (known.value, known.where) if isinstance(known.value, int | float) else (None, "")

    def known(self, module: Module, node: ast.expr | None, depth: int = 0) -> Known | None:
        """What an expression is by code and settings together; None: it is not certain."""
        if node is None or depth > _DEEPEST:
            return None
        value = constant(module, node)
        if value is not UNKNOWN:
            return Known(value, "")
        match node:
            case ast.Name():
                return self._of_name(module, node, depth)
            case ast.Call(func=ast.Name(id="int" | "bool"), args=[only], keywords=[]):
                return self.known(module, only, depth + 1)
            case ast.Attribute(value=ast.Name(id="self")):
                return self.known(module, module.bound_attribute(node), depth + 1)
        keys = looked_up(module, node)
        return self._declared(keys) if keys else None

    def _of_name(self, module: Module, name: ast.Name, depth: int) -> Known | None:
        bound = module.bound(name)
        if bound is not None:
            return self.known(module, bound, depth + 1)
        scope = module.scope(name)
        if name.id in module.imports and name.id not in module.bindings(scope):
            return self._imported(module.imports[name.id])
        if isinstance(scope, Function) and module.bindings(scope).get(name.id) == [None]:
            return self._handed_over(module, scope, name.id, depth)
        return None

    def _imported(self, dotted: str) -> Known | None:
        """A constant of another file of the project."""
        folder, _, name = dotted.rpartition(".")
        parts = tuple(folder.split("."))
        homes = [m for m in self._modules if folder and m.parts[-len(parts) :] == parts]
        if len(homes) != 1:
            return None
        found = homes[0].bindings(homes[0].tree).get(name, [])
        if len(found) != 1 or found[0] is None:
            return None
        value = constant(homes[0], found[0])
        if value is UNKNOWN:
            return None
        return Known(value, f"{name} in {homes[0].file.path}:{found[0].lineno}")

    def _handed_over(
        self, module: Module, function: Function, name: str, depth: int
    ) -> Known | None:
        """A parameter of a function that one place calls."""
        calls = self._calls.get(function.name, [])
        if len(calls) != 1 or function.args.vararg or module.class_of(function) is not None:
            return None
        caller, call = calls[0]
        unpacked = any(isinstance(a, ast.Starred) for a in call.args)
        if unpacked or any(each.arg is None for each in call.keywords):
            return None
        return self.known(caller, argument_of(function, call, name), depth + 1)

    # What is declared

    def _declared(self, keys: tuple[str, ...]) -> Known | None:
        if keys not in self._answers:
            self._answers[keys] = self._agreed(keys)
        return self._answers[keys]

    def _agreed(self, keys: tuple[str, ...]) -> Known | None:
        found = [
            each
            for each in self._by_name.get(keys[-1], ())
            if len(each.keys) == 1 or len(keys) == 1 or each.keys[-len(keys) :] == keys
        ]
        values = {(type(each.value), each.value) for each in found}
        if len(values) != 1 or found[0].value is UNKNOWN or keys[-1] in self._stored:
            return None
        if self._is_on_a_command_line(keys[-1]):
            return None
        return Known(found[0].value, " and ".join(each.where for each in found[:2]))

    @cached_property
    def declared(self) -> list[Declared]:
        """All settings, those of YAML files first."""
        configurations = (file for file in self._files if file.kind is Kind.YAML)
        found = [each for file in configurations for each in in_yaml(file)]
        for module in self._modules:
            found += (*of_argparse(module), *of_classes(module))
        return found

    @cached_property
    def _by_name(self) -> dict[str, list[Declared]]:
        found: dict[str, list[Declared]] = {}
        for each in self.declared:
            found.setdefault(each.keys[-1], []).append(each)
        return found

    @cached_property
    def _stored(self) -> frozenset[str]:
        """The names of what code stores into settings, or hands to a copy of them."""
        found: set[str] = set()
        for module in self._modules:
            declaring = {cls.name for cls in module.each(ast.ClassDef)}
            found.update(
                node.attr
                for node in module.each(ast.Attribute)
                if isinstance(node.ctx, ast.Store) and getattr(node.value, "id", "") != "self"
            )
            for item in module.each(ast.Subscript):
                match item:
                    case ast.Subscript(slice=ast.Constant(value=str() as key), ctx=ast.Store()):
                        found.add(key)
            for call in module.calls:
                copied = last_name(call.func)
                if copied in _COPIES | declaring or copied.endswith(("Config", "Args")):
                    found.update(k.arg for k in call.keywords if k.arg)
        return frozenset(found)

    def _is_on_a_command_line(self, name: str) -> bool:
        spellings = (name.encode(), name.replace("_", "-").encode())
        return any(
            spelling in file.content
            for file in self._files
            if file.kind in (Kind.SHELL, Kind.CONTAINER)
            for spelling in spellings
        )


def looked_up(module: Module, node: ast.expr) -> tuple[str, ...]:
    """`("data", "num_workers")` of `config.data["num_workers"]`; () where that is no setting."""
    keys: list[str] = []
    for _ in range(_DEEPEST):
        match node:
            case ast.Name() if keys and (bound := module.bound(node)) is not None:
                if isinstance(bound, ast.Call) and last_name(bound.func) not in ("get", "getattr"):
                    parsed = last_name(bound.func) == "parse_args"
                    return tuple(keys) if parsed else _found(keys, node.id)
                node = bound
                continue
            case ast.Name():
                return _found(keys, node.id) if node.id not in module.imports else ()
            case ast.Attribute(value=ast.Name(id="self"), attr=owner):
                return _found(keys, owner)
        found = _lookup(node)
        if found is None:
            return ()
        node = found[0]
        keys.insert(0, found[1])
    return ()


def _lookup(node: ast.expr) -> tuple[ast.expr, str] | None:
    """The object and the key of `x.key`, `x["key"]`, `x.get("key")`, `getattr(x, "key")`."""
    match node:
        case (
            ast.Attribute(value=ast.expr() as owner, attr=key)
            | ast.Subscript(value=ast.expr() as owner, slice=ast.Constant(value=str() as key))
            | ast.Call(
                func=ast.Attribute(value=ast.expr() as owner, attr="get"),
                args=[ast.Constant(value=str() as key), *_],
            )
            | ast.Call(
                func=ast.Name(id="getattr"),
                args=[ast.expr() as owner, ast.Constant(value=str() as key), *_],
            )
        ):
            return owner, key
    return None


def _found(keys: list[str], owner: str) -> tuple[str, ...]:
    """The keys, where the object that they are asked of has the name of settings."""
    return tuple(keys) if any(map(_SETTINGS.search, (owner, *keys[:-1]))) else ()
