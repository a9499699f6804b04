"""Which files the arguments of the command line mean, now and later."""

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ldlm_monitor.errors import InputError

STANDARD_INPUT = "-"
LOG_SUFFIXES = frozenset({".log", ".jsonl", ".out", ".err", ".txt"})
FOLDER_LEVELS = 4
"""`DIR/{run id}/attempt_0/3/stderr.log`, as torchrun's `--log-dir` lays it out, is found."""
PASSED_OVER = frozenset({"wandb", "__pycache__", "node_modules", "site-packages"})
"""Folders that a folder argument does not mean: wandb keeps copies of the console there."""

_MAGIC = re.compile(r"[*?\[]")


def resolve(arguments: Sequence[str], *, base: Path) -> "InputPatterns":
    """What `arguments` stand for, relative ones under `base`.

    Paths come back as they were spelled when `base` is `Path()`. Raises `InputError`
    for an argument that no file can have as its name.
    """
    sources = []
    for argument in arguments:
        if not argument or "\0" in argument:
            raise InputError(
                f"{argument!r} is no file name", remedy="name files, folders, globs, or `-`"
            )
        if argument != STANDARD_INPUT:
            sources.append(_Source(argument, base / Path(argument).expanduser()))
    return InputPatterns(tuple(sources), standard_input=STANDARD_INPUT in arguments)


@dataclass(frozen=True, slots=True)
class _Source:
    """One argument: a file, a folder or a glob, whichever it turns out to be."""

    argument: str
    path: Path

    def matches(self) -> Iterator[Path]:
        """The files that it means now."""
        if self.path.is_dir():
            yield from _logs_under(self.path)
        elif self.path.exists() or not _MAGIC.search(self.argument):
            if self.path.exists():
                yield self.path
        else:
            for match in _glob(*self._split()):
                if match.is_dir():
                    yield from _logs_under(match)
                else:
                    yield match

    def folders(self) -> Iterator[Path]:
        """Existing folders in which a match may appear or change."""
        if self.path.is_dir():
            yield from (folder for folder, _ in _walk(self.path, FOLDER_LEVELS))
        elif self.path.exists() or not _MAGIC.search(self.argument):
            yield _nearest(self.path.parent)
        else:
            yield from self._folders_of_glob()

    def _split(self) -> tuple[Path, tuple[str, ...]]:
        """The part before the first wildcard, and the parts from there on."""
        parts = self.path.parts
        first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
        return Path(*parts[:first]), parts[first:]

    def _folders_of_glob(self) -> Iterator[Path]:
        root, parts = self._split()
        yield _nearest(root)
        for depth in range(1, len(parts)):
            yield from (path for path in _glob(root, parts[:depth]) if path.is_dir())


@dataclass(frozen=True, slots=True)
class InputPatterns:
    """The inputs of one command; asks the file system anew at each call.

    `standard_input`: whether `-` is among them.
    """

    sources: tuple[_Source, ...]
    standard_input: bool = False

    def files(self) -> list[Path]:
        """Files that are there now, sorted; of several names of one file, one.

        A name that is not a symbolic link is preferred.
        """
        found: dict[tuple[int, int], Path] = {}
        for path in sorted(path for source in self.sources for path in source.matches()):
            try:
                status = path.stat()
            except OSError:  # gone, or not ours to see: it is waited for
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            key = (status.st_dev, status.st_ino)
            if key not in found or (found[key].is_symlink() and not path.is_symlink()):
                found[key] = path
        return sorted(found.values())

    def pipes(self) -> list[Path]:
        """Pipes that were named as such, as `<(command)` does; a glob matches none."""
        return [source.path for source in self.sources if source.path.is_fifo()]

    def present(self) -> list[Path]:
        """The files, where all must be there. Raises InputError for one that is not."""
        if missing := self.missing():
            raise InputError(
                "no such file, or nothing that matches",
                where=missing[0],
                remedy="check the path; a glob must match at least one file here",
            )
        return self.files()

    def missing(self) -> list[str]:
        """Arguments that match no file yet, as they were given."""
        return [
            source.argument for source in self.sources if next(iter(source.matches()), None) is None
        ]

    def folders(self) -> list[Path]:
        """Folders to watch, none of them recursively, so that no match is overlooked.

        Where a file is a symbolic link, its target's folder is one too.
        """
        folders = {folder for source in self.sources for folder in source.folders()}
        for path in self.files():
            folders.add(path.parent)
            if path.is_symlink():
                folders.add(path.resolve().parent)
        return sorted(folders)


def _logs_under(folder: Path) -> Iterator[Path]:
    for inside, names in _walk(folder, FOLDER_LEVELS):
        for name in names:
            if os.path.splitext(name)[1] in LOG_SUFFIXES:
                yield inside / name


def _walk(folder: Path, levels: int) -> Iterator[tuple[Path, list[str]]]:
    """Folders from `folder` down, with their files' names; hidden ones and links are left out."""
    files, folders = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file():
                    files.append(entry.name)
    except OSError:  # vanished, or not ours to see
        return
    yield folder, files
    if levels:
        for name in folders:
            if name not in PASSED_OVER:
                yield from _walk(folder / name, levels - 1)


def _glob(root: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Paths that match, part by part; `**` is any depth of folders, none of them a link.

    Unlike `glob.glob`, which follows links below `**` and so can walk in circles.
    """
    if not parts:
        yield root
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _glob(root, rest)
        for name in _names(root):
            below = root / name
            if not name.startswith(".") and below.is_dir() and not below.is_symlink():
                yield from _glob(below, parts)
    elif _MAGIC.search(part):
        for name in _names(root):
            hidden = name.startswith(".") and not part.startswith(".")
            if not hidden and fnmatch.fnmatchcase(name, part):
                yield from _glob(root / name, rest)
    elif os.path.lexists(root / part):
        yield from _glob(root / part, rest)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # not a folder, vanished, or not ours to see
        return []


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that exists: there it will appear."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder
