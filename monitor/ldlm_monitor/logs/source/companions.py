"""Companions: files that belong to a followed log because the same launch writes them.

Some trainers write exact values to `saved/{run}/training_log.jsonl` and rounded ones to
their log. The folder `saved` lies beside the folder of the logs. The log contains the run's
working directory, whose last part is the run's name.
"""

import fnmatch
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ldlm_monitor.logs.source.file_system import DIRECT, Disk, FileKind

PATTERNS = ("training_log.jsonl", "health_rank*.jsonl")
"""Globs of companions: the trainer's exact values, and the files of the monitor's callback."""
NCCL_SUFFIXES = frozenset({"", ".log", ".txt", ".out"})
"""The usual suffixes of logs. NCCL_DEBUG_FILE, the path of NCCL's own log, is untrusted text from
the training's log, which must not make the monitor read other kinds of files."""


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """Facts about a launch, from its log.

    `working_directory`, `nccl_debug_file`: paths on the machine that trained; None if unknown.
    `run_names`: the names that the log gives the run.
    """

    working_directory: str | None = None
    run_names: tuple[str, ...] = ()
    nccl_debug_file: str | None = None

    def names(self) -> frozenset[str]:
        """The names that this launch's folder under `saved/` may have."""
        names = {Path(name).name for name in self.run_names}
        if self.working_directory:
            names.add(Path(self.working_directory).name)
        return frozenset(names - {""})


@dataclass(frozen=True, slots=True)
class Companion:
    """A file to follow with a log; `reason` completes the sentence "followed too, because ...".

    `reason` is "" for a file that only lies near the log, which does not name it.
    """

    path: Path
    reason: str


class Surroundings:
    """Finds the folders with companions near a log, and keeps them for a pass over many logs."""

    def __init__(self, disk: Disk = DIRECT) -> None:
        self.disk = disk
        self._found: dict[Path, list[Path]] = {}

    def of(self, folder: Path) -> list[Path]:
        """The folders with companions near a log in `folder`. Raises `TimeoutError`."""
        if folder not in self._found:
            self._found[folder] = list(_candidates(folder, self.disk))
        return self._found[folder]


def companions(log: Path, facts: LaunchFacts, around: Surroundings) -> list[Companion]:
    """The existing files that may be of the same launch as `log`, sorted by path.

    Raises `TimeoutError` if a server that may have such files does not answer.
    """
    disk = around.disk
    folders = _folders_of(log, facts, around)
    found = {path: why for folder, why in folders.items() for path in _held(folder, disk)}
    for path in _nccl(log, facts, disk):
        found.setdefault(path, f"its log contains NCCL_DEBUG_FILE={facts.nccl_debug_file}")
    return [Companion(path, why) for path, why in sorted(found.items()) if path != log]


def _folders_of(log: Path, facts: LaunchFacts, around: Surroundings) -> dict[Path, str]:
    """The folders that may be the launch's, and how the log names them ("" if it does not)."""
    folders = around.of(log.parent)
    if not folders and facts.working_directory is None:
        return {}
    names = facts.names()
    named = [folder for folder in folders if folder.name in names]
    if len(named) == 1:
        return {named[0]: f"its log names the run {named[0].name}"}
    printed = Path(facts.working_directory) if facts.working_directory else None
    if printed is not None and printed.is_absolute() and next(_held(printed, around.disk), None):
        return {printed: f"its log contains the working directory {printed}"}
    bare = [folder for folder in folders if folder.parent.name != "saved"]
    return dict.fromkeys(named or (bare if names else folders), "")


def _candidates(folder: Path, disk: Disk) -> Iterator[Path]:
    """Folders near a log in `folder` that hold a companion, each once."""
    near = [folder, *([folder.parent] if folder.parent != folder else [Path("..")])]
    seen = set()
    for place in near:
        saved = place / "saved"
        for candidate in (place, saved, *_folders(saved, disk)):
            real = disk.realpath(candidate)
            if real not in seen and next(_held(candidate, disk), None):
                seen.add(real)
                yield candidate


def _folders(folder: Path, disk: Disk) -> list[Path]:
    return [
        folder / name
        for name, kind in _names(folder, disk)
        if kind == "folder" or (kind == "link" and stat.S_ISDIR(disk.mode(folder / name)))
    ]


def _held(folder: Path, disk: Disk) -> Iterator[Path]:
    """The companions in a folder; its listing is cached until the folder's mtime changes."""
    try:
        changed = disk.stat(folder).st_mtime_ns
    except TimeoutError:
        raise
    except (OSError, ValueError):  # not accessible; ValueError: a NUL byte in the name
        return
    yield from (path for path in _listed(folder, changed, disk) if stat.S_ISREG(disk.mode(path)))


def _names(folder: Path, disk: Disk) -> list[tuple[str, FileKind]]:
    try:
        return sorted(disk.listing(folder))
    except TimeoutError:
        raise
    except (OSError, ValueError):  # as in `_held`
        return []


@lru_cache(maxsize=1024)  # folders. A choice: more cost memory, fewer are listed again
def _listed(folder: Path, changed: int, disk: Disk) -> tuple[Path, ...]:
    """Paths that match `PATTERNS`; `changed` (the folder's mtime in ns) is only a cache key."""
    del changed
    names = [name for name, _ in _names(folder, disk)]
    return tuple(
        folder / name
        for pattern in PATTERNS
        for name in names
        if fnmatch.fnmatchcase(name, pattern)
    )


def _nccl(log: Path, facts: LaunchFacts, disk: Disk) -> list[Path]:
    """The files that NCCL_DEBUG_FILE names; NCCL replaces `%h` by the host, `%p` by the pid."""
    if not facts.nccl_debug_file:
        return []
    template = Path(facts.nccl_debug_file)
    if template.suffix not in NCCL_SUFFIXES or ".." in template.parts:
        return []
    pattern = re.sub(r"%[hp]", "*", re.sub(r"([*?\[])", r"[\1]", template.name))
    near = (template.parent, log.parent, log.parent.parent)
    for folder in near if template.is_absolute() else near[1:]:
        names = (name for name, _ in _names(folder, disk) if fnmatch.fnmatchcase(name, pattern))
        paths = (folder / name for name in names if not name.startswith("."))
        logs = (path for path in paths if path.suffix in NCCL_SUFFIXES)
        if found := [path for path in logs if stat.S_ISREG(disk.mode(path))]:
            return found
    return []
