"""Settings that the program which they are for never reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain, takewhile
from pathlib import PurePath

from ldlm_doctor.model import Finding, Findings, Kind, SourceFile, data, pattern
from ldlm_doctor.python_code.declared import Declared, likely
from ldlm_doctor.python_code.expressions import last_name, names_in
from ldlm_doctor.python_code.facts import PRINTS, uses_framework
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program

ACCUMULATION = re.compile(pattern("accumulation"), re.I)
_MATTERS = frozenset(data("names")["options"])
_TAKES_ALL = frozenset(data("names")["takes_all"])
_SETTINGS = re.compile(r"cfg|conf|^(args|opts?|hparams|hps)$", re.I)


def inspect(program: Program) -> Findings:
    """Each setting by which the programs that use its file should train."""
    files = {file.path: file for file in program.files}
    programs = list(_programs(program))
    using: dict[str, list[list[Module]]] = {}
    constants = (each for module in program.modules for each in _constants(module))
    for each in chain(program.settings.declared, constants):
        name = each.keys[-1]
        check = "accumulation-unread" if ACCUMULATION.match(name) else "option-unread"
        if check == "option-unread" and (name not in _MATTERS or each.value in (None, "")):
            continue
        value = each.value
        is_one = value is None or (isinstance(value, int | float) and value <= 1)
        if check == "accumulation-unread" and is_one:
            continue
        if any(name.encode() in file.content for file in program.unreadable):
            continue
        file = files[each.path]
        if each.path not in using:
            using[each.path] = _used_by(programs, file)
        used_by = using[each.path]
        if used_by and not any(_may_read(module, each) for part in used_by for module in part):
            line = file.content.splitlines()[each.line - 1].decode("utf-8", "replace")
            yield Finding(check, each.path, each.line, line.strip(), f"{name} is read nowhere")


def _constants(module: Module) -> Iterator[Declared]:
    for target, value in module.stores:
        named = [(target.id, value)] if isinstance(target, ast.Name) else []
        match value:
            case ast.Dict() if _is_looked_up(module, last_name(target)):
                pairs = zip(value.keys, value.values, strict=True)
                named += [(str(k.value), v) for k, v in pairs if isinstance(k, ast.Constant)]
            case ast.Call(func=ast.Name(id="dict")) if _is_looked_up(module, last_name(target)):
                named += [(str(each.arg), each.value) for each in value.keywords]
        for name, given in named:
            known = likely(module, given) if ACCUMULATION.match(name) else None
            if known is not None:
                yield Declared((name,), known, name, module.file.path, given.lineno)


def _is_looked_up(module: Module, name: str) -> bool:
    """A dictionary is asked for single keys, or others import it; no code gets it as a whole."""
    uses = (node for node in module.each(ast.Name) if node.id == name)
    parents = [module.parents[node] for node in uses if isinstance(node.ctx, ast.Load)]
    return all(isinstance(each, ast.Subscript) for each in parents)


def _programs(program: Program) -> Iterator[list[Module]]:
    for module in program.modules:
        parts = program.started_by(module)
        if any(program.loops(part) or uses_framework(part) for part in parts):
            yield parts


def _used_by(programs: list[list[Module]], file: SourceFile) -> list[list[Module]]:
    """The programs that import a file, or that name it and are the nearest."""
    if file.kind is Kind.PYTHON:
        return [each for each in programs if any(part.file is file for part in each)]
    words = set(re.findall(r"\w+", PurePath(file.path).stem))
    naming = [each for each in programs if any(words <= part.words for part in each)] or programs
    shared = [_shared(each[0].file.path, file.path) for each in naming]
    return [each for each, length in zip(naming, shared, strict=True) if length == max(shared)]


def _shared(one: str, other: str) -> int:
    """How many leading folders two paths share."""
    pairs = zip(PurePath(one).parts, PurePath(other).parts, strict=False)
    return len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])


def _may_read(module: Module, declared: Declared) -> bool:
    """The name stands where a value is read, or all settings are handed on at once."""
    if takes_all_settings(module):
        return True
    name = declared.keys[-1]
    if not declared.of_python:
        return name in module.words
    place = declared.line, declared.path
    return any(
        (node.lineno, module.file.path) != place and not _is_shown(module, node)
        for node in module.each(ast.Attribute, ast.Constant, ast.Name)
        if name in (last_name(node), getattr(node, "value", None))
        and not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )


def _is_shown(module: Module, node: ast.AST) -> bool:
    """The value is printed or logged, and nothing else."""
    statement = module.statement(node)
    shown = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(shown, ast.Call) and last_name(shown.func) in PRINTS


def takes_all_settings(module: Module) -> bool:
    """Settings are handed on as a whole, to code that may ask for any of them."""
    has_trainer = "Trainer" in module.words and uses_framework(module)
    return (
        has_trainer
        or bool(_TAKES_ALL & module.words)
        or any(
            given.arg is None and any(map(_SETTINGS.search, names_in(given.value)))
            for given in module.each(ast.keyword)
        )
    )
