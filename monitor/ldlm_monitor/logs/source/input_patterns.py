"""The files that command line arguments stand for: files, folders, globs and `-`."""

import contextlib
import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ldlm_monitor.base.chunk import rotated_from, uncompressed
from ldlm_monitor.base.errors import InputError
from ldlm_monitor.logs.parse.readers import is_tracker
from ldlm_monitor.logs.parse.wandb_file import WandbReader
from ldlm_monitor.logs.source.file_system import DIRECT, Disk

STANDARD_INPUT = "-"  # the argument, and the path in its chunks
LOG_SUFFIXES = frozenset({".log", ".jsonl", ".out", ".err", ".txt"})
"""The suffixes of the logs in a folder argument: those of loggers, Slurm and redirections."""
FOLDER_LEVELS = 4
"""Levels of folders that are searched below a folder argument: deep enough for torchrun's
`--log-dir`, `DIR/{run id}/attempt_0/3/stderr.log`."""
_WANDB_FOLDER = "wandb"  # where W&B stores runs, below the working directory
SKIPPED_FOLDERS = frozenset({_WANDB_FOLDER, "__pycache__", "node_modules", "site-packages"})
"""Folders below a folder argument that are not searched: W&B's has copies of the console log,
the others hold code."""

_MAGIC = re.compile(r"[*?\[]")  # the wildcards of glob(7)


def resolve(arguments: Sequence[str], *, base: Path, disk: Disk = DIRECT) -> "InputPatterns":
    """The inputs that `arguments` stand for; relative ones lie under `base`.

    If `base` is `Path()`, paths keep their spelling. Files of a server that does not answer
    count as missing. Raises `InputError` for an argument that cannot be a file name.
    """
    sources = []
    for argument in arguments:
        if not argument or "\0" in argument:
            remedy = "name files, folders, globs, or `-`"
            raise InputError(f"{argument!r} is not a file name", remedy=remedy)
        if argument != STANDARD_INPUT:
            sources.append(_Source(argument, base / os.path.expanduser(argument), disk))
    return InputPatterns(tuple(sources), disk, standard_input=STANDARD_INPUT in arguments)


@dataclass(frozen=True, slots=True)
class _Source:
    """One argument; each method checks anew whether it is a file, a folder or a glob."""

    argument: str
    path: Path
    disk: Disk

    @property
    def place(self) -> Path:
        """The path, with what each link to a folder beside it leads to in place of the link.

        Launches switch such a link, `latest`, to a folder of their own: one run each.
        """
        place = Path()
        for name in self.path.parts:
            real = self._beside(place, name)
            place /= name if real is None else real
        return place

    def matches(self) -> Iterator[Path]:
        mode = mode_of(self.place, self.disk)
        if stat.S_ISDIR(mode):
            yield from _logs_under(self.place, self.disk)
        elif mode:
            yield self.place
        elif _MAGIC.search(self.argument):
            for match in _glob(*self._split(), self.disk):
                if _is_dir(match, self.disk):
                    yield from _logs_under(match, self.disk)
                else:
                    yield match

    def folders(self) -> Iterator[Path]:
        """The existing folders in which a match may appear or change."""
        for folder in (self.path, *self.path.parents):
            if self._beside(folder.parent, folder.name) is not None:
                yield folder.parent
        mode = mode_of(self.place, self.disk)
        if stat.S_ISDIR(mode):
            yield from (folder for folder, _ in _walk(self.place, FOLDER_LEVELS, self.disk))
        elif mode or not _MAGIC.search(self.argument):
            yield _nearest(self.place.parent, self.disk)
        else:
            root, parts = self._split()
            yield _nearest(root, self.disk)
            for depth in range(1, len(parts)):
                matches = _glob(root, parts[:depth], self.disk)
                yield from (path for path in matches if _is_dir(path, self.disk))

    def _beside(self, folder: Path, name: str) -> str | None:
        """The name of the folder beside it to which a link leads; None for anything else."""
        path = folder / name
        if not stat.S_ISLNK(mode_of(path, self.disk, follow=False)) or not _is_dir(path, self.disk):
            return None
        try:
            real = self.disk.realpath(path)
            return real.name if real.parent == self.disk.realpath(folder) else None
        except OSError:
            return None

    def _split(self) -> tuple[Path, tuple[str, ...]]:
        """The path before the first wildcard, and the parts from there on."""
        parts = self.place.parts
        first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
        return Path(*parts[:first]), parts[first:]


@dataclass(frozen=True, slots=True)
class InputPatterns:
    """The inputs of one command; each method reads the file system again.

    `standard_input`: whether `-` is an argument.
    """

    sources: tuple[_Source, ...]
    disk: Disk
    standard_input: bool = False

    def files(self) -> list[Path]:
        """The existing files, sorted, without `copies`."""
        found = self._existing()
        return [path for path in found if not _is_copy(path, found)]

    def copies(self) -> list[Path]:
        """Compressed files beside their original, which zstd and `gzip -k` keep."""
        found = self._existing()
        return [path for path in found if _is_copy(path, found)]

    def _existing(self) -> list[Path]:
        """The existing files, sorted, each under one name: preferably not a symbolic link."""
        found: dict[tuple[int, int], Path] = {}
        for path in sorted(path for source in self.sources for path in source.matches()):
            try:
                status = self.disk.stat(path)
            except OSError:  # deleted or not accessible: a later call may find it
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            key = (status.st_dev, status.st_ino)
            if key not in found or (self._is_linked(found[key]) and not self._is_linked(path)):
                found[key] = path
        return sorted(found.values())

    def names(self, path: Path) -> bool:
        """Whether an argument is the file's very name, and no folder or glob that contains it."""
        return any(path in (source.path, source.place) for source in self.sources)

    def pipes(self) -> list[Path]:
        """Arguments that are named pipes, such as `<(command)`; a glob matches none."""
        paths = (source.path for source in self.sources)
        return [path for path in paths if stat.S_ISFIFO(mode_of(path, self.disk))]

    def present(self) -> list[Path]:
        """The same as `files`. Raises `InputError` if an argument matches no file."""
        if missing := self.missing():
            remedy = "check the path; a glob must match a file, and a folder have a log"
            raise InputError("no such file, or no match", where=missing[0], remedy=remedy)
        return self.files()

    def missing(self) -> list[str]:
        """The arguments that match no file yet."""
        return [
            source.argument for source in self.sources if next(iter(source.matches()), None) is None
        ]

    def folders(self) -> list[Path]:
        """The folders, sorted, in which a match, or a link's target, may appear or change."""
        folders = {folder for source in self.sources for folder in source.folders()}
        for path in self.files():
            folders.add(path.parent)
            if self._is_link(path):
                with contextlib.suppress(OSError):
                    folders.add(self.disk.realpath(path).parent)
        return sorted(folders)

    def _is_linked(self, path: Path) -> bool:
        """Whether the path, or a folder of it, is a link."""
        return any(map(self._is_link, (path, *path.parents[:FOLDER_LEVELS])))

    def _is_link(self, path: Path) -> bool:
        return stat.S_ISLNK(mode_of(path, self.disk, follow=False))


def _is_copy(path: Path, found: Sequence[Path]) -> bool:
    name = uncompressed(path.name)
    return name != path.name and path.with_name(name) in found


def _logs_under(folder: Path, disk: Disk) -> Iterator[Path]:
    """The logs below a folder; if there are none, the files of experiment trackers.

    A tracker's files repeat the values of the log, and would count as another run.
    """
    kept: list[Path] = []
    folders: list[Path] = []
    logs = False
    for inside, names in _walk(folder, FOLDER_LEVELS, disk):
        folders.append(inside)
        metrics = _is_metrics(inside, disk)
        for name in names:
            if os.path.splitext(rotated_from(name)[0])[1] in LOG_SUFFIXES and not metrics:
                logs = True
                yield inside / name
            elif is_tracker(name) or metrics:
                kept.append(inside / name)
    if not logs:
        yield from kept
        for inside in folders:
            yield from _transactions(inside / _WANDB_FOLDER, disk)


def _transactions(folder: Path, disk: Disk) -> Iterator[Path]:
    """The files of W&B's runs, each in a folder of its own below W&B's folder."""
    for inside, names in _walk(folder, 1, disk):
        yield from (inside / name for name in names if WandbReader.is_tracker(name))


def _is_metrics(folder: Path, disk: Disk) -> bool:
    """Whether MLflow stores a run's metrics in the folder: `{run}/metrics`, or a folder below."""
    above = next((path for path in (folder, *folder.parents) if path.name == "metrics"), None)
    return above is not None and mode_of(above.parent / "meta.yaml", disk) != 0


def _walk(folder: Path, levels: int, disk: Disk) -> Iterator[tuple[Path, list[str]]]:
    """`folder` and those up to `levels` below, with their files; none hidden, no linked folder."""
    files, folders = [], []
    try:
        listing = disk.listing(folder)
    except OSError:  # deleted or not accessible
        return
    for name, kind in listing:
        if name.startswith("."):
            continue
        if kind == "folder":
            folders.append(name)
        elif kind == "file" or (kind == "link" and stat.S_ISREG(mode_of(folder / name, disk))):
            files.append(name)
    yield folder, files
    if levels:
        for name in folders:
            if name not in SKIPPED_FOLDERS:
                yield from _walk(folder / name, levels - 1, disk)


def _glob(root: Path, parts: Sequence[str], disk: Disk) -> Iterator[Path]:
    """Matching paths, part by part; `**` matches any depth of folders, but no links.

    `glob.glob` follows links below `**`, and so can walk in circles.
    """
    if not parts:
        yield root
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _glob(root, rest, disk)
        for name in _names(root, disk):
            below = root / name
            if not name.startswith(".") and stat.S_ISDIR(mode_of(below, disk, follow=False)):
                yield from _glob(below, parts, disk)
    elif _MAGIC.search(part):
        for name in _names(root, disk):
            hidden = name.startswith(".") and not part.startswith(".")
            if not hidden and fnmatch.fnmatchcase(name, part):
                yield from _glob(root / name, rest, disk)
    elif mode_of(root / part, disk, follow=False):
        yield from _glob(root / part, rest, disk)


def _names(folder: Path, disk: Disk) -> list[str]:
    try:
        return sorted(name for name, _ in disk.listing(folder))
    except OSError:  # not a folder, deleted, or not accessible
        return []


def _nearest(folder: Path, disk: Disk) -> Path:
    """The folder if it exists; otherwise the nearest existing folder above it."""
    with contextlib.suppress(TimeoutError):
        while not stat.S_ISDIR(disk.mode(folder)) and folder != folder.parent:
            folder = folder.parent
    return folder


def _is_dir(path: Path, disk: Disk) -> bool:
    return stat.S_ISDIR(mode_of(path, disk))


def mode_of(path: Path, disk: Disk, *, follow: bool = True) -> int:
    """`st_mode` (if not `follow`, of the link itself); 0 if the file cannot be accessed."""
    try:
        return (disk.stat if follow else disk.lstat)(path).st_mode
    except OSError:
        return 0
