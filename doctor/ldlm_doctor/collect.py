"""Finds and reads the files of an audit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG

import re2

from ldlm_doctor.errors import DoctorError
from ldlm_doctor.model import Kind, Project, SourceFile, data, pattern
from ldlm_doctor.yaml_nodes import compose

MAX_BYTES = 1 << 20
"""Of a file; a script or a configuration has less, a data set more."""
MAX_FILES = 20_000
MAX_JSON_BYTES = 1 << 16
"""Of a configuration; more is data."""
STATE_FOLDER = ".ldlm-doctor"

_SKIPPED_FOLDERS = frozenset({*data("names")["skipped"], STATE_FOLDER})
_OUTPUT_FOLDERS = frozenset({"outputs", "multirun"})
"""Hydra's, in which it keeps a copy of each run's configuration."""
_SUFFIXES = {end: Kind(kind) for kind, ends in data("names")["suffixes"].items() for end in ends}
_DOTENV = re2.compile(pattern("env_file"))
_DOCKERFILE = re2.compile(r"(?i)^(?:dockerfile|containerfile)(?:[.-].+)?$")
_CONFIGURES = re2.compile(pattern("configures").encode())
_REQUIREMENTS = re2.compile(pattern("requirements_file"))
_NAMES = (
    (_DOTENV, Kind.ENVIRONMENT), (_DOCKERFILE, Kind.CONTAINER), (_REQUIREMENTS, Kind.REQUIREMENTS),
)  # fmt: skip
_SHEBANG_SHELL = re2.compile(r"^#![^\n]*\b(?:ba|z|k|da)?sh\b")
_SHEBANG_PYTHON = re2.compile(r"^#![^\n]*\bpython[0-9.]*\b")


@dataclass(frozen=True, slots=True)
class Collected:
    """The files, and a line for each that was left out though it was meant."""

    project: Project
    notices: tuple[str, ...]


def collect(paths: Sequence[str]) -> Collected:
    """Reads what the paths name: files as they are, of folders what may concern a training.

    Raises `DoctorError` where a path does not exist or cannot be read.
    """
    files: dict[str, SourceFile] = {}
    notices: list[str] = []
    for named in paths:
        for path in _named_files(named, notices):
            if len(files) >= MAX_FILES:
                notices.append(f"{named}: only the first {MAX_FILES} files were looked at")
                break
            key = os.path.realpath(path)
            found = None if key in files else _read(path, notices, asked=str(path) == named)
            if found is not None:
                files[key] = found
    return Collected(Project(tuple(files.values())), tuple(notices))


def kind_of(name: str, start: bytes) -> Kind | None:
    """What a file is, by its name, or by its first line where the name says nothing."""
    suffix = os.path.splitext(name)[1].lower()
    for form, kind in _NAMES:
        if form.match(name):
            return kind
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    first = start.split(b"\n", 1)[0].decode(errors="replace")
    if _SHEBANG_SHELL.match(first):
        return Kind.SHELL
    return Kind.PYTHON if _SHEBANG_PYTHON.match(first) else None


def _named_files(named: str, notices: list[str]) -> Iterator[Path]:
    path = Path(named)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DoctorError(
            f"cannot be read ({error.strerror})",
            where=named,
            remedy="name a folder, a script, or a configuration file that is there",
        ) from error
    if S_ISDIR(mode):
        yield from _walk(path, notices)
    elif S_ISREG(mode):
        yield path
    else:
        raise DoctorError("is neither a file nor a folder", where=named, remedy="name one")


def _walk(root: Path, notices: list[str]) -> Iterator[Path]:
    """The files below a folder, in the order of their names; links are not followed."""

    def refused(error: OSError) -> None:
        notices.append(f"{error.filename}: {error.strerror}, left out")

    for folder, folders, names in os.walk(root, onerror=refused):
        folders[:] = sorted(name for name in folders if not _skipped(folder, name))
        for name in sorted(names):
            path = Path(folder, name)
            if not path.is_symlink():
                yield path


def _skipped(folder: str, name: str) -> bool:
    inside = Path(folder, name)
    if name in _SKIPPED_FOLDERS or name.endswith(".egg-info"):
        return True
    if name in _OUTPUT_FOLDERS:
        return any(inside.glob("*/*/.hydra")) or any(inside.glob("*/.hydra"))
    return name == ".hydra" or (inside / "pyvenv.cfg").exists()


def _read(path: Path, notices: list[str], *, asked: bool) -> SourceFile | None:
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):
            return None
        with path.open("rb") as stream:
            start = stream.read(256)
            kind = kind_of(path.name, start)
            if kind is None and asked:
                raise DoctorError(
                    "is no kind of file that the doctor reads",
                    where=str(path),
                    remedy="name a shell script, a YAML, JSON, Python or .env file, or a folder",
                )
            is_data = kind is Kind.JSON and status.st_size > MAX_JSON_BYTES
            if kind is None or (is_data and not asked):
                return None
            if status.st_size > MAX_BYTES:
                notices.append(f"{path}: {status.st_size} bytes, left out ({MAX_BYTES} at most)")
                return None
            content = start + stream.read()
    except OSError as error:
        notices.append(f"{path}: {error.strerror}, left out")
        return None
    if kind is Kind.JSON and not asked and not _CONFIGURES.search(content):
        return None
    return _readable(SourceFile(str(path), kind, content), notices, asked=asked)


def _readable(file: SourceFile, notices: list[str], *, asked: bool) -> SourceFile | None:
    """The file, if it is what its name says; YAML templates are many, and left out in silence."""
    if b"\0" in file.content:
        notices.append(f"{file.path}: not text, left out")
        return None
    if file.kind is Kind.JSON or (file.kind is Kind.YAML and asked):
        try:
            compose(file.content)
        except ValueError:
            notices.append(f"{file.path}: not valid {file.kind.upper()}, left out")
            return None
    return file
