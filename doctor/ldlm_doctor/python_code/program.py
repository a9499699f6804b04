"""All Python files of one audit: who imports whom, what trains, and on how many GPUs."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TypeVar, cast

from ldlm_doctor.model import SourceFile
from ldlm_doctor.python_code.expressions import last_name
from ldlm_doctor.python_code.facts import DDP, FSDP, calling, naming, starts_ranks, uses_framework
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.project_settings import Settings
from ldlm_doctor.python_code.training import TrainingLoop, training_loops
from ldlm_doctor.python_code.tree import Loop

T = TypeVar("T")
Defined = TypeVar("Defined", bound=ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
_FARTHEST, _MOST_CALLERS = 3, 8
_COMMON = frozenset({"forward", "__init__", "__call__", "backward", "step", "main"})
_MOST_RELATIVES = 400
"""Beyond this many, files that import one another say little about one of them."""


class Program:
    """The modules of an audit. `files`: all of its files; `unreadable` are no Python here."""

    def __init__(
        self,
        modules: Iterable[Module],
        files: tuple[SourceFile, ...] = (),
        unreadable: tuple[SourceFile, ...] = (),
    ) -> None:
        self.modules, self.files, self.unreadable = tuple(modules), files, unreadable
        self._loops: dict[Module, list[TrainingLoop]] = {}
        self._connected: dict[Callable[[Module], bool], frozenset[Module]] = {}
        self._holders: dict[Callable[[Module], bool], frozenset[Module]] = {}
        self._relatives: dict[Module, list[Module]] = {}
        self._near: dict[Module, frozenset[Module]] = {}
        self._facts: dict[Callable[[Program], object], object] = {}

    def once(self, fact: Callable[[Program], T]) -> T:
        """What a function says of the whole program, asked only once."""
        if fact not in self._facts:
            self._facts[fact] = fact(self)
        return cast(T, self._facts[fact])

    # What a module is connected with

    @cached_property
    def _by_last(self) -> dict[str, list[Module]]:
        found: dict[str, list[Module]] = {}
        for module in self.modules:
            if module.parts:
                found.setdefault(module.parts[-1], []).append(module)
        return found

    @cached_property
    def _imports(self) -> dict[Module, list[Module]]:
        return {module: list(self._imported_by(module)) for module in self.modules}

    @cached_property
    def _importers(self) -> dict[Module, list[Module]]:
        found: dict[Module, list[Module]] = {module: [] for module in self.modules}
        for module, imported in self._imports.items():
            for other in imported:
                found[other].append(module)
        return found

    def _imported_by(self, module: Module) -> Iterator[Module]:
        seen = {module}
        for level, dotted in module.imported:
            found = self._named(module, level, tuple(dotted.split(".")) if dotted else ())
            found = found or self._handed_on(module, level, dotted)
            if found is not None and found not in seen:
                seen.add(found)
                yield found

    def _handed_on(self, module: Module, level: int, dotted: str) -> Module | None:
        """`from package import name`, where the package has it from a module of its own."""
        folder, _, name = dotted.rpartition(".")
        package = self._named(module, level, tuple(folder.split(".")) if folder else ())
        if package is None or not package.is_package or name not in package.imports:
            return None
        found = tuple(package.imports[name].split(".")[:-1])
        return self._named(package, 1, found) or self._named(package, 0, found)

    def _named(self, module: Module, level: int, names: tuple[str, ...]) -> Module | None:
        folder = module.parts if module.is_package else module.parts[:-1]
        if level:
            names = (*folder[: len(folder) - level + 1], *names)
        if not names:
            return None
        candidates = [
            other
            for other in self._by_last.get(names[-1], ())
            if other.parts[-len(names) :] == names
        ]
        near = [other for other in candidates if other.parts[:-1] == folder]
        if near:
            return near[0]
        return candidates[0] if len(candidates) == 1 or (len(names) > 1 and candidates) else None

    def imports_of(self, module: Module) -> list[Module]:
        """The module and all that it imports, directly or not."""
        return _reached([module], self._imports, _MOST_RELATIVES)

    def started_by(self, module: Module) -> list[Module]:
        """The files of the program that a file starts; none where it only is a part of others."""
        runs = module.runs_itself or not self._importers[module]
        return self.imports_of(module) if runs else []

    def users(self, module: Module) -> list[Module]:
        """The module and those that import it, in at most two steps."""
        return _reached([module], self._importers, steps=2)

    def relatives(self, module: Module) -> list[Module]:
        """The module, all that it imports and that import it, and what is near it."""
        if module not in self._relatives:
            importers = _reached([module], self._importers, _MOST_RELATIVES)
            near = sorted(self.near(module), key=lambda each: each.file.path)
            self._relatives[module] = [
                *dict.fromkeys((*self.imports_of(module), *importers, *near))
            ]
        return self._relatives[module]

    def definition(
        self, module: Module, node: ast.expr, kind: type[Defined]
    ) -> tuple[Module, Defined] | None:
        """The class or function that a name means, of the module or of one that it has it from."""
        name = last_name(node)
        dotted = module.resolve(node)
        places = [module]
        if "." in dotted:
            folder = tuple(dotted.split(".")[:-1])
            found = self._named(module, 0, folder) or self._named(module, 1, folder)
            places = [found] if found is not None else []
        found_in = ((place, each) for place in places for each in place.tree.body)
        return next(
            (
                (place, each)
                for place, each in found_in
                if isinstance(each, kind) and each.name == name
            ),
            None,
        )

    def any_relative(self, fact: Callable[[Module], bool], module: Module) -> bool:
        """Whether something holds for the module or one that is connected with it."""
        if fact not in self._connected:
            having = self._having(fact)
            reached = (*_reached([*having], self._imports), *_reached([*having], self._importers))
            self._connected[fact] = frozenset(reached)
        return module in self._connected[fact] or self.any_near(fact, module)

    def any_near(self, fact: Callable[[Module], bool], module: Module) -> bool:
        """Whether something holds for the module or one that is near it."""
        return not self._having(fact).isdisjoint(self.near(module))

    def _having(self, fact: Callable[[Module], bool]) -> frozenset[Module]:
        if fact not in self._holders:
            self._holders[fact] = frozenset(each for each in self.modules if fact(each))
        return self._holders[fact]

    def near(self, module: Module) -> frozenset[Module]:
        """The module, those that import it, and what one of them imports: one program's files.

        Beyond two steps in either direction large libraries connect everything with everything.
        """
        if module not in self._near:
            users = self.users(module)
            found = {module, *_reached([module], self._imports, steps=2)}
            for user in users:
                found.update((user, *self._imports[user]))
            self._near[module] = frozenset(found)
        return self._near[module]

    @cached_property
    def definitions(self) -> Counter[str]:
        """How many functions of the project have a name."""
        return Counter(function.name for each in self.modules for function in each.functions)

    @cached_property
    def calls(self) -> dict[str, list[tuple[Module, ast.Call]]]:
        """All calls by the last part of what they call, each with its module."""
        found: dict[str, list[tuple[Module, ast.Call]]] = {}
        for module in self.modules:
            for name, calls in module.methods_called.items():
                found.setdefault(name, []).extend((module, call) for call in calls)
        return found

    @cached_property
    def settings(self) -> Settings:
        """What YAML files, argparse and classes with fields say."""
        return Settings(self.modules, self.files, self.calls)

    # What it does

    def loops(self, module: Module) -> list[TrainingLoop]:
        """The training loops that are written in a module."""
        if module not in self._loops:
            self._loops[module] = training_loops(module)
        return self._loops[module]

    def loops_around(self, module: Module) -> list[tuple[Module, Loop]]:
        """The loops of the program in which the training loops of a module turn, all of them.

        Those around them in their own functions, and around what calls these.
        """
        found: dict[int, tuple[Module, Loop]] = {}
        for loop in self.loops(module):
            waiting: list[tuple[Module, ast.AST, int]] = [(module, loop.backwards[0], 0)]
            found.setdefault(id(loop.loop), (module, loop.loop))
            waiting.append((module, loop.loop, 0))
            while waiting:
                where, node, depth = waiting.pop()
                for outer in where.above(node):
                    if isinstance(outer, Loop):
                        found.setdefault(id(outer), (where, outer))
                function = where.function(node)
                if function is None or depth >= _FARTHEST or function.name in _COMMON:
                    continue
                callers = [
                    (each, call) for each in self.near(where) for call in each.called(function.name)
                ]
                if len(callers) <= _MOST_CALLERS:
                    waiting += [(each, call, depth + 1) for each, call in callers]
        return list(found.values())

    def has_loops(self, module: Module) -> bool:
        """A training loop is written in the module, or in one that is connected with it."""
        return self.any_relative(self._writes_loop, module)

    def _writes_loop(self, module: Module) -> bool:
        return bool(self.loops(module))

    def trains(self, module: Module) -> bool:
        """A training loop is in the module, or in one that is connected with it."""
        return self.any_relative(self._has_loop, module)

    def _has_loop(self, module: Module) -> bool:
        return bool(self.loops(module)) or uses_framework(module)

    def is_distributed(self, module: Module) -> bool:
        """Several ranks run the module: it is wrapped, or starts a process group."""
        return self.any_near(starts_ranks, module)

    def reduces_gradients(self, module: Module, loop: TrainingLoop) -> bool:
        """A wrapper reduces gradients in a loop's backward: of its file, or of what imports it."""
        around = [loop.loop, *module.above(loop.loop)]
        names = {getattr(outer, "name", "") for outer in around} | {*module.parts[-1:]}
        return any(
            user is module or user.stars or names.intersection(user.imports)
            for user in self.users(module)
            if any(map(calling(DDP | FSDP), self.imports_of(user)))
        )

    def runs_on_several_ranks(self, module: Module) -> bool:
        """A program that the module is a part of starts ranks; others may share its files."""
        users = _reached([module], self._importers, _MOST_RELATIVES)
        parts = {part for user in users for part in self.imports_of(user)}
        return any(map(starts_ranks, parts)) or any(map(naming("prepare"), parts))

    def framework_does_it(self, module: Module) -> bool:
        """Lightning, Accelerate or the like set up ranks, samplers and precision."""
        return uses_framework(module) or (
            not self.any_relative(calling(DDP | FSDP), module)
            and self.any_relative(uses_framework, module)
        )


def _reached(
    starts: list[Module],
    edges: dict[Module, list[Module]],
    most: int | None = None,
    steps: int | None = None,
) -> list[Module]:
    """What can be reached from some modules: not much more than `most`, in so many steps."""
    found = dict.fromkeys(starts)
    waiting, done = list(starts), 0
    while waiting and (most is None or len(found) < most) and (steps is None or done < steps):
        ahead = dict.fromkeys(other for each in waiting for other in edges[each])
        waiting, done = [other for other in ahead if other not in found], done + 1
        found.update(dict.fromkeys(waiting))
    return list(found)
