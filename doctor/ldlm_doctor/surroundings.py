"""What other files decide about a setting: versions, timeouts, readers, sourced variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

import re2

from ldlm_doctor.bash_script import NamedPlace, Script
from ldlm_doctor.model import Kind, Project, SourceFile, pattern
from ldlm_doctor.setting import Release, Surroundings

_TORCH_PINNED = re2.compile(pattern("torch_pinned"))
_GROUP_CALL = re2.compile(r"(?s)(?:init_process_group|new_group|InitProcessGroupKwargs)\(.{0,400}")
_TIMEDELTA = re2.compile(pattern("timedelta"))
_HF_TIMEOUT = re2.compile(r"\bddp_timeout[\"']?\s*[=:\s]\s*[\"']?([0-9]{2,12})\b")
_SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86_400.0}
_READ = re2.compile(pattern("read_variable"))
_WRITTEN = re2.compile(pattern("written_variable"))
_ASSIGNED = re2.compile(r"\b([A-Z][A-Z0-9_]+)=")
_SET = re2.compile(r"(?m)^[ \t]*(?:export[ \t]+|declare -x[ \t]+)?([A-Z][A-Z0-9_]{3,})=")


@lru_cache(maxsize=2)
def surroundings(project: Project) -> Surroundings:
    """What the project pins, and what its code reads."""
    return Surroundings(
        torch=_torch(project),
        group_timeout=max(_group_timeouts(project), default=None),
        readers=frozenset(_readers(project)),
    )


def _text(file: SourceFile) -> str:
    return file.content.decode(errors="replace")


def _torch(project: Project) -> Release | None:
    """The version, where all that the project pins agree on one."""
    found = {
        (int(major), int(minor))
        for file in project.files
        if file.kind is not Kind.PYTHON
        for major, minor in _TORCH_PINNED.findall(_text(file))
    }
    return found.pop() if len(found) == 1 else None


def _group_timeouts(project: Project) -> Iterator[float]:
    """How long collectives may take by code and by settings, in seconds."""
    for file in project.of(Kind.PYTHON):
        for call in _GROUP_CALL.finditer("" if file.is_test else _text(file)):
            given = _TIMEDELTA.search(call.group(0))
            if given:
                yield float(str(given.group(2)).replace("_", "")) * _SECONDS[str(given.group(1))]
    for file in (*project.of(Kind.YAML), *project.of(Kind.JSON), *project.of(Kind.SHELL)):
        yield from (float(given) for given in _HF_TIMEOUT.findall(_text(file)))


def _readers(project: Project) -> Iterator[str]:
    """Names that the project's code takes from the environment or from a variable."""
    for file in project.files:
        if file.kind in (Kind.PYTHON, Kind.SHELL):
            text = _text(file)
            written = {name for pair in _WRITTEN.findall(text) for name in pair}
            for line in text.splitlines():
                if line.lstrip().startswith("#") or "echo" in line:
                    continue
                own = written.union(_ASSIGNED.findall(line))  # NAME="${NAME:-1800}" is no use of it
                for pair in _READ.findall(line):
                    yield from (name for name in pair if name and name not in own)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    name: str
    sets: frozenset[str]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The files that set variables in capitals."""

    _files: tuple[_File, ...] = ()

    def sourced(self, script: Script) -> Iterator[tuple[NamedPlace, frozenset[str]]]:
        """Each file that a script takes variables from, and their names."""
        for source in script.sources:
            name = PurePath(source.name.rsplit("/", 1)[-1]).name
            found = [file for file in self._files if file.name == name and file.path != script.path]
            folder = PurePath(script.path).parent
            beside = [file for file in found if PurePath(file.path).parent == folder]
            for file in beside or found:
                yield source, file.sets


NO_NEIGHBOURS = Neighbours()


def neighbours(project: Project) -> Neighbours:
    """The project's scripts and `.env` files that set something."""
    files = []
    for file in (*project.of(Kind.SHELL), *project.of(Kind.ENVIRONMENT)):
        text = file.content.decode(errors="replace")
        names = frozenset(str(name) for name in _SET.findall(text))
        if names:
            files.append(_File(file.path, PurePath(file.path).name, names))
    return Neighbours(tuple(files))
