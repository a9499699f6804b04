"""The settings that single files declare: YAML, options of argparse, fields of classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from ldlm_doctor.model import SourceFile
from ldlm_doctor.python_code.expressions import keyword, last_name
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.tree import Function
from ldlm_doctor.python_code.values import UNKNOWN, constant, default_of, number, option_names
from ldlm_doctor.yaml_nodes import compose

_LARGEST = 10_000
"""Nodes of a YAML file that are looked at: configurations are smaller, lists of data are not."""
_DEEPEST = 8
_NUMBER = re.compile(r"[-+]?\d+$")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting as one place declares it: the keys that lead to it, its value, what that is."""

    keys: tuple[str, ...]
    value: object
    name: str
    path: str
    line: int
    of_python: bool = True

    @property
    def where(self) -> str:
        """The place in words."""
        return f"{self.name} in {self.path}:{self.line}"


def in_yaml(file: SourceFile) -> Iterator[Declared]:
    """The values of a YAML file."""
    try:
        roots = compose(file.content)
    except ValueError:
        return
    waiting: list[tuple[tuple[str, ...], yaml.Node]] = [((), root) for root in reversed(roots)]
    seen = 0
    while waiting and seen < _LARGEST:
        keys, node = waiting.pop()
        seen += 1
        if isinstance(node, yaml.MappingNode):
            for key, value in reversed(node.value):
                if isinstance(key, yaml.ScalarNode):
                    waiting.append(((*keys, key.value), value))
        elif isinstance(node, yaml.ScalarNode) and keys:
            line = node.start_mark.line + 1
            yield Declared(keys, _scalar(node), ".".join(keys), file.path, line, of_python=False)


def _scalar(node: yaml.ScalarNode) -> object:
    if node.style in ("'", '"'):
        return node.value
    if _NUMBER.match(node.value):
        return int(node.value)
    return _WORDS.get(node.value.lower(), node.value)


def of_argparse(module: Module) -> Iterator[Declared]:
    """The options of argparse, with their defaults."""
    for call in module.called("add_argument"):
        given = {k.arg: k.value for k in call.keywords}
        value = constant(module, given["default"]) if "default" in given else None
        action = given.get("action")
        if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
            value = action.value == "store_false" if "default" not in given else value
        if "required" in given:
            value = UNKNOWN
        for name in option_names(call):
            path = module.file.path
            yield Declared((name,), value, f"the default of {name}", path, call.lineno)


def of_classes(module: Module) -> Iterator[Declared]:
    """The fields of classes."""
    for cls in module.each(ast.ClassDef):
        for statement in cls.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    if isinstance(value, ast.Call) and last_name(value.func) in ("field", "Field"):
                        given = keyword(value, "default")
                        given = given or (value.args[0] if value.args else value)
                        value = given
                    known = constant(module, value)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    known = UNKNOWN
                case _:
                    continue
            path, line = module.file.path, statement.lineno
            yield Declared((name,), known, f"{cls.name}.{name}", path, line)


def likely(module: Module, node: ast.expr | None, depth: int = 0) -> float | None:
    """The number that an expression has unless a configuration says otherwise.

    The default of `.get(key, default)`, of `getattr`, of a parameter, of argparse.
    """
    known = number(module, node)
    if known is not None or node is None or depth > _DEEPEST:
        return known
    match node:
        case ast.Name():
            bound = module.bound(node)
            if bound is not None:
                return likely(module, bound, depth + 1)
            return _parameter_default(module, node)
        case ast.Call(args=[*given]):
            name = last_name(node.func)
            if name in ("get", "getattr") and given:
                return likely(module, given[-1], depth + 1) if len(given) >= 2 else None
            if name in ("min", "max") and len(given) >= 2:
                return _extreme(module, name, given, depth)
            if name == "int" and len(given) == 1:
                return likely(module, given[0], depth + 1)
        case ast.Attribute():
            bound = module.bound_attribute(node)
            if bound is not None:
                return likely(module, bound, depth + 1)
            return _defaults(module).get(node.attr)
    return None


def _extreme(module: Module, name: str, given: list[ast.expr], depth: int) -> float | None:
    found = [likely(module, each, depth + 1) for each in given]
    numbers = [each for each in found if each is not None]
    if len(numbers) == len(found) or (numbers and name == "max"):
        return (min if name == "min" else max)(numbers)
    return None


def _parameter_default(module: Module, name: ast.Name) -> float | None:
    scope = module.scope(name)
    if not isinstance(scope, Function):
        return None
    default = default_of(scope, name.id)
    return None if default is None else number(module, default)


def _defaults(module: Module) -> dict[str, float]:
    """Defaults of argparse options and of the fields of classes, by name of the attribute."""
    declared = (*of_argparse(module), *of_classes(module))
    values = ((each.keys[-1], each.value) for each in declared if not isinstance(each.value, bool))
    return {name: value for name, value in values if isinstance(value, int | float)}
