"""The doctor's values: the files of an audit, the checks, what they find, and edits of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias, get_args

import yaml

_TESTS = frozenset({"test", "tests", "testing", "test_utils"})
_TEXTS = Path(__file__).with_name("checks")
Severity: TypeAlias = Literal["info", "warning", "error", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Rising."""
Clean: TypeAlias = Callable[[str], str]
"""Makes text of files fit to be shown: nothing unprintable in it, and no secret."""
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's parser in C, about ten times as fast; wheels for some platforms lack it."""


class Kind(StrEnum):
    """What a file is, by its name and its first line."""

    SHELL = "shell"
    PYTHON = "python"
    YAML = "yaml"
    JSON = "json"
    """A configuration of DeepSpeed or of a trainer."""
    ENVIRONMENT = "environment"
    CONTAINER = "container"
    """A Dockerfile."""
    REQUIREMENTS = "requirements"
    """What is installed: requirements.txt, pyproject.toml and the like; read for versions."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was read; ``path`` as the user would write it."""

    path: str
    kind: Kind
    content: bytes

    @property
    def is_test(self) -> bool:
        """Whether it is a test in Python by its name: what it sets is made up."""
        name = PurePath(self.path).stem
        return self.kind is Kind.PYTHON and (
            name.startswith("test_") or name.endswith("_test") or name == "conftest"
        )


@dataclass(frozen=True, slots=True)
class Project:
    """All files of one audit: what one sets, another may read."""

    files: tuple[SourceFile, ...]

    def of(self, kind: Kind) -> tuple[SourceFile, ...]:
        """The files of one kind."""
        return tuple(file for file in self.files if file.kind is kind)

    def at_work(self, kind: Kind) -> tuple[SourceFile, ...]:
        """The files of one kind without tests, by their names or their folders in the project."""
        folders = [PurePath(file.path).parts[:-1] for file in self.files]
        same = takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
        shared = len(list(same))
        return tuple(
            file
            for file in self.of(kind)
            if not file.is_test and _TESTS.isdisjoint(PurePath(file.path).parts[shared:-1])
        )


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the doctor looks for: an entry of ``checks/*.yml``.

    ``why`` is the harm, ``source`` where that is documented or was measured, ``since`` the version
    of PyTorch or NCCL from which it holds (empty: any), ``fix`` what to do, in words.
    """

    id: str
    severity: Severity
    title: str
    why: str
    source: str
    fix: str
    since: str = ""


@cache
def data(name: str) -> Any:
    """What a file of `checks/` holds."""
    return yaml.load((_TEXTS / f"{name}.yml").read_bytes(), Loader=LOADER)


def pattern(name: str) -> str:
    """A regular expression of `checks/patterns.yml`."""
    return "".join(data("patterns")[name].split())


@cache
def checks(*subjects: str) -> dict[str, Check]:
    """The checks by id: those of `launch`, of `python`, or all."""
    texts = (data(subject) for subject in subjects or ("launch", "python"))
    return {id_: Check(id_, **fields) for each in texts for id_, fields in each.items()}


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes ``start`` to ``end`` of ``path``, as it was read, become ``text``."""

    path: str
    start: int
    end: int
    text: bytes


Edits: TypeAlias = tuple[Edit, ...]


def with_edits(content: bytes, edits: Iterable[Edit]) -> bytes:
    """The bytes after edits that do not overlap; those at one byte stand in the order given."""
    pieces: list[bytes] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        pieces += (content[done : edit.start], edit.text)
        done = edit.end
    return b"".join((*pieces, content[done:]))


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that found something: ``evidence`` is the text of the 1-based ``line``.

    ``detail`` says what is particular to this place; ``edits`` fix it, and are empty where
    no edit is known to be safe.
    """

    check_id: str
    path: str
    line: int
    evidence: str
    detail: str = ""
    edits: Edits = ()

    @property
    def check(self) -> Check:
        """The check's texts and severity."""
        return checks()[self.check_id]


def cleaned(findings: Iterable[Finding], clean: Clean) -> list[Finding]:
    """The findings with their evidence and detail as they may be shown."""
    return [
        replace(each, evidence=clean(each.evidence), detail=clean(each.detail)) for each in findings
    ]


Findings: TypeAlias = Iterator[Finding]
"""What a rule yields."""
