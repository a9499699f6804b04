"""Checkpoints as the code writes them: the entries of their dictionaries, and their files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_doctor.python_code.checkpoints import SAVE, full_path
from ldlm_doctor.python_code.expressions import last_name, words_in
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.origins import returned
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.values import arguments

_FILE = re.compile(r"([^/\\]+?\.\w{1,6})(\.te?mp|\.partial)?$")


@dataclass(frozen=True, slots=True)
class Written:
    """A checkpoint: its entries, whether they are all, and the last parts of its path."""

    module: Module
    entries: dict[str, ast.expr]
    complete: bool
    files: frozenset[str]


def written(program: Program, module: Module) -> Iterator[Written]:
    """The checkpoints of the file, else of the files near it."""
    near = [module] if any(True for _ in module.calls_to(SAVE)) else program.near(module)
    for where in near:
        for call in where.calls_to(SAVE):
            given = arguments(where, call, ("obj", "f"))
            entries: dict[str, ast.expr] = {}
            home, complete = _gather(program, where, given["obj"], entries)
            yield Written(home, entries, complete, files_of(where, given["f"]))


def _gather(
    program: Program, module: Module, held: ast.expr | None, into: dict[str, ast.expr]
) -> tuple[Module, bool]:
    """Add the entries of a dictionary; where it is made, and whether these are all."""
    match held:
        case ast.Dict():
            named = zip(held.keys, held.values, strict=True)
            into.update({str(k.value): v for k, v in named if isinstance(k, ast.Constant)})
            return module, len(into) == len(held.keys)
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            into.update({each.arg: each.value for each in held.keywords if each.arg})
            return module, all(each.arg for each in held.keywords)
        case ast.Call(func=ast.Attribute(attr="state_dict")) if module.resolve(held.func) != (
            "self.state_dict"
        ):
            return module, True
        case ast.Call():
            own = [(module, f) for f in module.functions if f.name == last_name(held.func)]
            made = program.definition(module, held.func, ast.FunctionDef)
            functions = [made] if made is not None else own
            results = [value for _, function in functions for value in returned(function)]
            if len(results) == len(functions) == 1:
                return _gather(program, functions[0][0], results[0], into)
        case ast.Name() if (bound := module.bound(held)) is not None:
            found = _gather(program, module, bound, into)
            for target, value in module.stores:
                match target:
                    case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)):
                        if name == held.id and module.scope(target) is module.scope(held):
                            into[str(key)] = value
            return found
    return module, False


def files_of(module: Module, path: ast.expr | None) -> frozenset[str]:
    """The last parts of the paths that an expression can be."""
    words = words_in(full_path(module, path)) if path is not None else set()
    return frozenset(match[1] for word in words if (match := _FILE.search(word)))


def named_keys(program: Program) -> frozenset[str]:
    """The strings that code has otherwise than to look something up, and names of arguments."""
    found: set[str | None] = set()
    for module in program.modules:
        looked_up = {id(n.slice) for n in module.each(ast.Subscript) if isinstance(n.ctx, ast.Load)}
        strings = (n for n in module.each(ast.Constant) if isinstance(n.value, str))
        found.update(str(each.value) for each in strings if id(each) not in looked_up)
        found.update(each.arg for each in module.each(ast.keyword))
    return frozenset(each for each in found if each)
