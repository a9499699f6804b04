"""Resumes that can never work: what is saved is not what the code that loads it needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_doctor.python_code.expressions import is_value, keyword
from ldlm_doctor.python_code.facts import naming
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.nothing import fails_as_none, is_none
from ldlm_doctor.python_code.origins import (
    Origin,
    assigned,
    callers,
    is_kin,
    origins,
    returned,
)
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.tree import Function, Scope, attributes_of, body_of, inside
from ldlm_doctor.python_code.values import arguments
from ldlm_doctor.python_code.written import Written, files_of, named_keys, written

LOADERS = frozenset({"torch.load", "torch.serialization.load"})
_STATE = re.compile(r"optim|(^|_)opt(_|$)|sched|scaler", re.I)
_CHOICES = (ast.If, ast.IfExp, ast.BoolOp, ast.Try, ast.For)
"""What may leave out a look-up."""
_PROGRESS = re.compile(r"(^|_)(step|epoch|iter(ation)?)(s|_num|_idx)?$", re.I)


@dataclass(frozen=True, slots=True)
class _Resume:
    """One call of torch.load, the scope that it stands in, and a checkpoint that fits it."""

    program: Program
    module: Module
    load: ast.Call
    scope: Scope
    written: Written

    def read(self, key: str) -> Iterator[ast.expr]:
        """The places where an entry is looked up."""
        for node in inside(body_of(self.scope)):
            match node:
                case ast.Subscript(value=held, slice=ast.Constant(value=name), ctx=ast.Load()):
                    pass
                case ast.Call(
                    func=ast.Attribute(value=held, attr="get"), args=[ast.Constant(value=name), *_]
                ):
                    pass
                case _:
                    continue
            if name == key and self._is_loaded(held):
                yield node

    def restores_progress(self) -> bool:
        """The optimizer, the step or the like is restored: this is no model of somebody else."""
        keys = (k for k in self.written.entries if _STATE.search(k) or _PROGRESS.search(k))
        return any(any(self.read(key)) for key in keys)

    def is_handed_on(self) -> bool:
        """What is loaded is used otherwise than by its keys."""
        names = (node for node in inside(body_of(self.scope)) if isinstance(node, ast.Name))
        held = (n for n in names if isinstance(n.ctx, ast.Load) and self._is_loaded(n))
        parents = (self.module.parents[name] for name in held)
        return any(not isinstance(p, ast.Subscript | ast.Attribute | ast.Compare) for p in parents)

    def _is_loaded(self, held: ast.expr) -> bool:
        return held is self.load or (
            isinstance(held, ast.Name) and self.load in assigned(self.module, held)
        )


def chain(program: Program, module: Module, load: ast.Call) -> list[str]:
    """Why a resume from what torch.load reads fails in any case; empty where it may work.

    A class that torch 2.6 refuses, or another trainer, is named beside what fails anyway.
    """
    resumes = _resumes(program, module, load)
    found = [[*_without_value(each), *_other_keys(each), *_unsaved(each)] for each in resumes]
    if is_value(arguments(module, load)["weights_only"], True):
        found = [[*links, *_refused(each)] for links, each in zip(found, resumes, strict=True)]
    if not found or not all(found):
        return []
    return [*dict.fromkeys((*found[0], *_refused(resumes[0]), *_other_trainer(resumes[0])))]


def dropped(program: Program, module: Module, load: ast.Call) -> Iterator[str]:
    """What a checkpoint holds of a training's progress, and no code takes out of it again."""
    taken = program.once(_taken)
    for resume in _resumes(program, module, load)[:1]:
        steps = [key for key in resume.written.entries if _PROGRESS.search(key)]
        lost = [key for key in resume.written.entries if _STATE.search(key) and key not in taken]
        lost += steps[:1] if taken.isdisjoint(steps) else []
        if resume.restores_progress() and not resume.is_handed_on():
            yield from (f'nothing reads "{key}"' for key in lost)


def _taken(program: Program) -> frozenset[str]:
    """The keys that some code looks up."""
    found: set[str] = set()
    for node in (each for m in program.modules for each in m.each(ast.Subscript, ast.Call)):
        match node:
            case (
                ast.Subscript(slice=ast.Constant(value=key), ctx=ast.Load())
                | ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[ast.Constant(key), *_])
            ):
                found.add(str(key))
    return frozenset(found)


def _resumes(program: Program, module: Module, load: ast.Call) -> list[_Resume]:
    """The checkpoints of which something is looked up in what is loaded."""
    files = files_of(module, arguments(module, load, ("f",))["f"])
    found = [
        _Resume(program, module, load, module.scope(load), each)
        for each in written(program, module)
        if not (files and each.files) or files & each.files  # no path ends in another's name
    ]
    return [each for each in found if any(any(each.read(key)) for key in each.written.entries)]


def _without_value(resume: _Resume) -> Iterator[str]:
    for key, value in resume.written.entries.items():
        if not is_none(resume.program, resume.written.module, value):
            continue
        if any(fails_as_none(resume.program, resume.module, each) for each in resume.read(key)):
            yield f'"{key}" is always None, and is used as if it were not'


def _unsaved(resume: _Resume) -> Iterator[str]:
    """Keys that are looked up in any case, and that no file of the program names otherwise."""
    program, module = resume.program, resume.module
    if not resume.restores_progress() or not all(w.complete for w in written(program, module)):
        return
    around = {id(node) for node in module.above(resume.load)}
    for node in inside(body_of(resume.scope)):
        match node:
            case ast.Subscript(
                value=ast.Name() as held, slice=ast.Constant(value=str() as key), ctx=ast.Load()
            ) if key not in program.once(named_keys) and assigned(module, held) == [resume.load]:
                choices = [each for each in module.above(node) if isinstance(each, _CHOICES)]
                tried = any(isinstance(each, ast.Try) for each in choices)
                if not tried and all(id(each) in around for each in choices):
                    yield f'"{key}" is looked up, and nothing saves it'


def _other_keys(resume: _Resume) -> Iterator[str]:
    for key, value in resume.written.entries.items():
        for each in resume.read(key):
            target = _restored(resume.module, each)
            if target is None:
                continue
            saved = list(_saved(resume.written.module, value))
            parts = {_part(resume, one, target) for one in saved}
            if len(parts) == 1 and (part := parts.pop()):
                yield f'"{key}" is saved {part}'


def _restored(module: Module, node: ast.expr) -> ast.expr | None:
    """The object whose `load_state_dict` takes the expression as it is."""
    parent = module.parents[node]
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        name = parent.targets[0].id
        loads = [
            n
            for n in module.each(ast.Name)
            if n.id == name and module.scope(n) is module.scope(node)
        ]
        read = [n for n in loads if isinstance(n.ctx, ast.Load)]
        if len(read) != 1 or len(loads) != 2:
            return None
        parent = module.parents[read[0]]
    match parent:
        case ast.Call(func=ast.Attribute(value=owner, attr="load_state_dict"), args=[_]):
            strict = keyword(parent, "strict")
            return owner if strict is None or is_value(strict, True) else None
    return None


def _saved(module: Module, value: ast.expr) -> Iterator[ast.expr]:
    """The objects whose state a value is: without the wrapper of DDP."""
    match value:
        case ast.Call(func=ast.Attribute(value=owner, attr="state_dict"), args=[], keywords=[]):
            yield from _unwrapped(owner)
        case ast.Name():
            for each in assigned(module, value):
                yield from _saved(module, each)
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_saved(module, body), *_saved(module, orelse))


def _unwrapped(owner: ast.expr) -> Iterator[ast.expr]:
    match owner:
        case ast.Attribute(value=inner, attr="module"):
            yield inner
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_unwrapped(body), *_unwrapped(orelse))
        case _:
            yield owner


def _part(resume: _Resume, saved: ast.expr, target: ast.expr) -> str:
    """How the object that is saved and the one that is restored hold one another; "" if unknown."""
    program = resume.program
    whole = origins(program, resume.written.module, saved)
    loaded = origins(program, resume.module, target)
    if len(whole) == 1 and isinstance(target, ast.Attribute):
        (module, cls), held = next(iter(whole)), target.value
        if (module, cls) in origins(program, resume.module, held) and _is_plain(cls):
            names = f'(its names begin with "{target.attr}.")'
            return f"from a {cls.name} {names} and loaded into its part"
    if len(whole) != 1 or len(loaded) != 1:
        return ""
    outer, inner = whole.pop(), loaded.pop()
    if is_kin(outer[1], inner[1]) or not (_is_plain(outer[1]) and _is_plain(inner[1])):
        return ""
    saved_as, loaded_as = outer[1].name, inner[1].name
    if name := _holds(program, outer, inner):
        return f'from a {saved_as} (its names begin with "{name}.") and loaded into a {loaded_as}'
    if name := _holds(program, inner, outer):
        return f'from a {saved_as} and loaded into a {loaded_as} (its names begin with "{name}.")'
    return ""


def _is_plain(cls: ast.ClassDef) -> bool:
    """A module that has its names from its attributes."""
    own = {each.name for each in cls.body if isinstance(each, ast.FunctionDef)}
    names = "state_dict", "load_state_dict", "_load_from_state_dict", "_register_state_dict_hook"
    return bool(cls.bases) and own.isdisjoint(names)


def _holds(program: Program, outer: Origin, inner: Origin) -> str:
    """The attribute of one class that is an object of the other."""
    module, cls = outer
    for name, values in attributes_of(cls).items():
        if any(value is not None and inner in origins(program, module, value) for value in values):
            return name
    return ""


def _refused(resume: _Resume) -> Iterator[str]:
    """Objects of own classes, which torch loads only where it is asked to."""
    given = arguments(resume.module, resume.load)
    if not (given.lacks("weights_only") or is_value(given["weights_only"], True)):
        return
    if any(map(naming("add_safe_globals", "safe_globals"), resume.program.modules)):
        return
    for key, value in resume.written.entries.items():
        for _, cls in origins(resume.program, resume.written.module, value):
            yield f'"{key}" is a pickled {cls.name}, which torch.load refuses since torch 2.6'


def _other_trainer(resume: _Resume) -> Iterator[str]:
    """A name that is one class at a fresh start, and another after the resume."""
    program, module = resume.program, resume.module
    if not isinstance(resume.scope, Function):
        return
    for where, call in callers(program, module, resume.scope):
        statement = where.statement(call)
        if not isinstance(statement, ast.Assign) or statement.value is not call:
            continue
        targets = _parts(statement.targets[0])
        for values in map(_parts, returned(resume.scope)):
            if len(values) != len(targets):
                continue
            for target, value in zip(targets, values, strict=True):
                if isinstance(target, ast.Name):
                    again = origins(program, module, value)
                    fresh = origins(program, where, target) - again
                    yield from _differ(target.id, fresh, again)


def _differ(name: str, fresh: set[Origin], again: set[Origin]) -> Iterator[str]:
    if len(fresh) == len(again) == 1:
        (_, one), (_, other) = *fresh, *again
        if not is_kin(one, other):
            yield f"{name} is a {one.name} at a fresh start and a {other.name} after a resume"


def _parts(node: ast.expr) -> list[ast.expr]:
    return [*node.elts] if isinstance(node, ast.Tuple) else [node]
