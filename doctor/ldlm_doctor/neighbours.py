"""What the other files of a project set for a script: those that it sources, those that call it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

import re2

from ldlm_doctor.bash_script import Script, Sourced
from ldlm_doctor.project import Kind, Project

_SET = re2.compile(r"(?m)^[ \t]*(?:export[ \t]+|declare -x[ \t]+)?([A-Z][A-Z0-9_]{3,})=")


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    name: str
    text: str
    sets: frozenset[str]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The files that set variables in capitals."""

    _files: tuple[_File, ...] = ()

    def sourced(self, script: Script, path: str) -> Iterator[tuple[Sourced, frozenset[str]]]:
        """Each file that a script takes variables from, and their names."""
        for source in script.sources:
            name = PurePath(source.name.rsplit("/", 1)[-1]).name
            found = [file for file in self._files if file.name == name and file.path != path]
            beside = [file for file in found if _folder(file.path) == _folder(path)]
            for file in beside or found:
                yield source, file.sets

    def of_callers(self, path: str) -> frozenset[str]:
        """The names that are set by scripts which name this one."""
        name = PurePath(path).name
        return frozenset(
            variable
            for file in self._files
            if file.path != path and name in file.text
            for variable in file.sets
        )


NO_NEIGHBOURS = Neighbours()


def _folder(path: str) -> PurePath:
    return PurePath(path).parent


def neighbours(project: Project) -> Neighbours:
    """The project's scripts and `.env` files that set something."""
    files = []
    for file in (*project.of(Kind.SHELL), *project.of(Kind.ENVIRONMENT)):
        text = file.content.decode(errors="replace")
        names = frozenset(str(name) for name in _SET.findall(text))
        if names:
            files.append(_File(file.path, PurePath(file.path).name, text, names))
    return Neighbours(tuple(files))
