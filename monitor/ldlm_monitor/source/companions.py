"""Files that belong to a followed log because the same launch writes them.

An MM-LDLM run's exact values are in `saved/{run}/training_log.jsonl`, not in its
log. The launch script writes logs into one folder and saves beside it, and the
trainer prints its working directory, whose last part is the run's name.
"""

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

STALE_SECONDS = 5.0
"""Clocks of a file server and of the trainer may differ by so much."""
PATTERNS = ("training_log.jsonl", "health_rank*.jsonl")
NCCL_SUFFIXES = frozenset({"", ".log", ".txt", ".out"})


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What a log, or the caller, says of its launch.

    `working_directory`, `nccl_debug_file`: as printed, on the machine that trained.
    `run_names`: names that it calls itself. `started`: Unix seconds.
    """

    working_directory: str | None = None
    run_names: tuple[str, ...] = ()
    nccl_debug_file: str | None = None
    started: float | None = None

    def names(self) -> frozenset[str]:
        """Folder names under `saved/` that are this launch's."""
        told = {Path(name).name for name in self.run_names}
        if self.working_directory:
            told.add(Path(self.working_directory).name)
        return frozenset(told - {""})


@dataclass(frozen=True, slots=True)
class Companion:
    """A file to follow with a log, and why, in words that end a sentence "added, because ...".

    `stale`: it was last written before the launch began, so what it holds is an
    earlier launch's until it is emptied.
    """

    path: Path
    reason: str
    stale: bool = False


def companions(log: Path, facts: LaunchFacts) -> list[Companion]:
    """Files of the same launch as `log` that exist now, sorted by path."""
    folder, reason = _choose(log, facts)
    found = {} if folder is None else dict.fromkeys(_held(folder), reason)
    for path in _nccl(log, facts):
        found.setdefault(path, f"its log says NCCL_DEBUG_FILE={facts.nccl_debug_file}")
    return [
        Companion(path, why, stale=_stale(path, facts.started))
        for path, why in sorted(found.items())
        if path != log
    ]


def undecided(log: Path, facts: LaunchFacts) -> str | None:
    """Why no folder was taken although there are some; None: nothing was left open."""
    folder, reason = _choose(log, facts)
    return reason if folder is None and reason else None


def _choose(log: Path, facts: LaunchFacts) -> tuple[Path | None, str]:
    """The folder that holds the launch's files, with why; or None, with why not."""
    folders = list(_candidates(log.parent))
    names = facts.names()
    named = [folder for folder in folders if folder.name in names]
    if len(named) == 1:
        return named[0], f"its log names the run {named[0].name}"
    told = Path(facts.working_directory) if facts.working_directory else None
    if told is not None and told.is_absolute() and next(_held(told), None):
        return told, f"its log says Working directory: {told}"
    bare = [folder for folder in folders if folder.parent.name != "saved"]
    possible = named or (bare if names else folders)
    if len(possible) == 1:
        return possible[0], "it is the only one near the log"
    if not possible:
        return None, ""
    listed = ", ".join(str(folder) for folder in possible[:4])
    more = f" and {len(possible) - 4} more" if len(possible) > 4 else ""
    return None, (
        f"{listed}{more} may belong to {log}, and it does not say which; "
        "name the file beside the log to follow it"
    )


def _candidates(folder: Path) -> Iterator[Path]:
    """Folders near a log in `folder` that hold a companion, each once."""
    near = [folder, *([folder.parent] if folder.parent != folder else [Path("..")])]
    seen = set()
    for place in near:
        saved = place / "saved"
        for candidate in (place, saved, *_folders(saved)):
            real = os.path.realpath(candidate)
            if real not in seen and next(_held(candidate), None):
                seen.add(real)
                yield candidate


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _held(folder: Path) -> Iterator[Path]:
    """The companions in a folder; its listing is remembered until it changes."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:  # not ours to see
        return
    yield from (path for path in _listed(folder, changed) if path.is_file())


@lru_cache(maxsize=1024)
def _listed(folder: Path, changed: int) -> tuple[Path, ...]:
    """`changed` (the folder's mtime, ns) makes a new listing of a folder that did."""
    del changed
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()
    return tuple(
        folder / name
        for pattern in PATTERNS
        for name in names
        if fnmatch.fnmatchcase(name, pattern)
    )


def _nccl(log: Path, facts: LaunchFacts) -> list[Path]:
    """The files that NCCL_DEBUG_FILE names; NCCL puts host and pid for `%h` and `%p`.

    The text is the log's, so only what may be a log is taken.
    """
    if not facts.nccl_debug_file:
        return []
    told = Path(facts.nccl_debug_file)
    if told.suffix not in NCCL_SUFFIXES or ".." in told.parts:
        return []
    pattern = re.sub(r"%[hp]", "*", re.sub(r"([*?\[])", r"[\1]", told.name))
    near = (told.parent, log.parent, log.parent.parent)
    for folder in near if told.is_absolute() else near[1:]:
        try:
            found = [path for path in sorted(folder.glob(pattern)) if path.is_file()]
        except (OSError, ValueError):  # not ours to see, or no pattern
            continue
        if "%" in told.name:  # other launches' files match too
            found = [path for path in found if not _stale(path, facts.started)]
        if found:
            return found
    return []


def _stale(path: Path, started: float | None) -> bool:
    try:
        return started is not None and path.stat().st_mtime < started - STALE_SECONDS
    except OSError:
        return False
