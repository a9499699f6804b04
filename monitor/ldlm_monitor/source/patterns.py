"""Which files the arguments of the command line mean, now and later."""

import contextlib
import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ldlm_monitor.model.errors import InputError
from ldlm_monitor.source.disk import DIRECT, Disk

STANDARD_INPUT = "-"
LOG_SUFFIXES = frozenset({".log", ".jsonl", ".out", ".err", ".txt"})
EVENT_FILE = ".tfevents."
"""In the names of TensorBoard's files."""
TRANSACTIONS = ".wandb"
"""Ends the names of W&B's."""
FOLDER_LEVELS = 4
"""`DIR/{run id}/attempt_0/3/stderr.log`, as torchrun's `--log-dir` lays it out, is found."""
_OF_WANDB = "wandb"
PASSED_OVER = frozenset({_OF_WANDB, "__pycache__", "node_modules", "site-packages"})
"""Folders that a folder argument does not mean: wandb keeps copies of the console there."""

_MAGIC = re.compile(r"[*?\[]")


def resolve(arguments: Sequence[str], *, base: Path, disk: Disk = DIRECT) -> "InputPatterns":
    """What `arguments` stand for, relative ones under `base`.

    Paths come back as they were spelled when `base` is `Path()`. What a server that does
    not answer (`TimeoutError` of `disk`) holds is not there meanwhile. Raises `InputError`
    for an argument that no file can have as its name.
    """
    sources = []
    for argument in arguments:
        if not argument or "\0" in argument:
            raise InputError(
                f"{argument!r} is no file name", remedy="name files, folders, globs, or `-`"
            )
        if argument != STANDARD_INPUT:
            sources.append(_Source(argument, base / Path(argument).expanduser(), disk))
    return InputPatterns(tuple(sources), disk, standard_input=STANDARD_INPUT in arguments)


@dataclass(frozen=True, slots=True)
class _Source:
    """One argument: a file, a folder or a glob, whichever it turns out to be."""

    argument: str
    path: Path
    disk: Disk

    def matches(self) -> Iterator[Path]:
        """The files that it means now."""
        mode = _mode(self.path, self.disk)
        if stat.S_ISDIR(mode):
            yield from _logs_under(self.path, self.disk)
        elif mode:
            yield self.path
        elif _MAGIC.search(self.argument):
            for match in _glob(*self._split(), self.disk):
                if _is_dir(match, self.disk):
                    yield from _logs_under(match, self.disk)
                else:
                    yield match

    def folders(self) -> Iterator[Path]:
        """Existing folders in which a match may appear or change."""
        mode = _mode(self.path, self.disk)
        if stat.S_ISDIR(mode):
            yield from (folder for folder, _ in _walk(self.path, FOLDER_LEVELS, self.disk))
        elif mode or not _MAGIC.search(self.argument):
            yield _nearest(self.path.parent, self.disk)
        else:
            yield from self._folders_of_glob()

    def _split(self) -> tuple[Path, tuple[str, ...]]:
        """The part before the first wildcard, and the parts from there on."""
        parts = self.path.parts
        first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
        return Path(*parts[:first]), parts[first:]

    def _folders_of_glob(self) -> Iterator[Path]:
        root, parts = self._split()
        yield _nearest(root, self.disk)
        for depth in range(1, len(parts)):
            matches = _glob(root, parts[:depth], self.disk)
            yield from (path for path in matches if _is_dir(path, self.disk))


@dataclass(frozen=True, slots=True)
class InputPatterns:
    """The inputs of one command; asks the file system anew at each call.

    `standard_input`: whether `-` is among them.
    """

    sources: tuple[_Source, ...]
    disk: Disk
    standard_input: bool = False

    def files(self) -> list[Path]:
        """Files that are there now, sorted; of several names of one file, one.

        A name that is not a symbolic link is preferred.
        """
        found: dict[tuple[int, int], Path] = {}
        for path in sorted(path for source in self.sources for path in source.matches()):
            try:
                status = self.disk.stat(path)
            except OSError:  # gone, or not ours to see: it is waited for
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            key = (status.st_dev, status.st_ino)
            if key not in found or (self._is_link(found[key]) and not self._is_link(path)):
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
            if self._is_link(path):
                with contextlib.suppress(OSError):
                    folders.add(self.disk.realpath(path).parent)
        return sorted(folders)

    def _is_link(self, path: Path) -> bool:
        return stat.S_ISLNK(_mode(path, self.disk, follow=False))


def _logs_under(folder: Path, disk: Disk) -> Iterator[Path]:
    """The logs in a folder; where there are none, what trackers keep in it.

    A tracker's files repeat what the log tells, as if it were another run.
    """
    kept: list[Path] = []
    folders: list[Path] = []
    logs = False
    for inside, names in _walk(folder, FOLDER_LEVELS, disk):
        folders.append(inside)
        metrics = _is_metrics(inside, disk)
        for name in names:
            if os.path.splitext(name)[1] in LOG_SUFFIXES and not metrics:
                logs = True
                yield inside / name
            elif EVENT_FILE in name or name.endswith(TRANSACTIONS) or metrics:
                kept.append(inside / name)
    if not logs:
        yield from kept
        for inside in folders:
            yield from _transactions(inside / _OF_WANDB, disk)


def _transactions(folder: Path, disk: Disk) -> Iterator[Path]:
    """The logs of W&B's runs in its folder, each in a folder of its own."""
    for inside, names in _walk(folder, 1, disk):
        yield from (inside / name for name in names if name.endswith(TRANSACTIONS))


def _is_metrics(folder: Path, disk: Disk) -> bool:
    """Whether MLflow keeps the metrics of a run in it: `{run}/metrics`, or a folder below."""
    above = next((path for path in (folder, *folder.parents) if path.name == "metrics"), None)
    return above is not None and _mode(above.parent / "meta.yaml", disk) != 0


def _walk(folder: Path, levels: int, disk: Disk) -> Iterator[tuple[Path, list[str]]]:
    """Folders from `folder` down, with their files' names; hidden ones and links are left out."""
    files, folders = [], []
    try:
        listing = disk.listing(folder)
    except OSError:  # vanished, or not ours to see
        return
    for name, kind in listing:
        if name.startswith("."):
            continue
        if kind == "folder":
            folders.append(name)
        elif kind == "file" or (kind == "link" and stat.S_ISREG(_mode(folder / name, disk))):
            files.append(name)
    yield folder, files
    if levels:
        for name in folders:
            if name not in PASSED_OVER:
                yield from _walk(folder / name, levels - 1, disk)


def _glob(root: Path, parts: Sequence[str], disk: Disk) -> Iterator[Path]:
    """Paths that match, part by part; `**` is any depth of folders, none of them a link.

    Unlike `glob.glob`, which follows links below `**` and so can walk in circles.
    """
    if not parts:
        yield root
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _glob(root, rest, disk)
        for name in _names(root, disk):
            below = root / name
            if not name.startswith(".") and stat.S_ISDIR(_mode(below, disk, follow=False)):
                yield from _glob(below, parts, disk)
    elif _MAGIC.search(part):
        for name in _names(root, disk):
            hidden = name.startswith(".") and not part.startswith(".")
            if not hidden and fnmatch.fnmatchcase(name, part):
                yield from _glob(root / name, rest, disk)
    elif _mode(root / part, disk, follow=False):
        yield from _glob(root / part, rest, disk)


def _names(folder: Path, disk: Disk) -> list[str]:
    try:
        return sorted(name for name, _ in disk.listing(folder))
    except OSError:  # not a folder, vanished, or not ours to see
        return []


def _nearest(folder: Path, disk: Disk) -> Path:
    """The folder, or the first above it that exists or may: there it will appear."""
    with contextlib.suppress(TimeoutError):
        while not stat.S_ISDIR(disk.mode(folder)) and folder != folder.parent:
            folder = folder.parent
    return folder


def _is_dir(path: Path, disk: Disk) -> bool:
    return stat.S_ISDIR(_mode(path, disk))


def _mode(path: Path, disk: Disk, *, follow: bool = True) -> int:
    """`st_mode`; 0 where nothing is, or nothing is known."""
    try:
        return (disk.stat if follow else disk.lstat)(path).st_mode
    except OSError:
        return 0
