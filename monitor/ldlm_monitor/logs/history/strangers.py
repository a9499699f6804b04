"""Files near a log that are none of its companions: what becomes of them, and their notices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ldlm_monitor.logs.parse.run_names import RunNames, own_run
from ldlm_monitor.logs.source.companions import Companion
from ldlm_monitor.logs.source.file_system import DIRECT, Disk

LISTED = 4  # files that a notice names; a choice: more lengthen it, fewer may omit the right one


class Apart(NamedTuple):
    """Files near a log that are no companions of it, and why."""

    log: Path
    files: tuple[Path, ...]
    why: str


def set_apart(
    log: Path,
    strangers: Sequence[Companion],
    names: RunNames,
    inputs: Mapping[Path, Path],
    disk: Disk = DIRECT,
) -> list[Apart]:
    """Give strangers that are followed anyway a run of their own; returns all of them.

    `inputs`: the real paths of files that match a folder or glob of the user, and their names.
    Raises `TimeoutError`.
    """
    run = names.origin(str(log)).run
    by_reason: dict[str, list[Path]] = {}
    for each in strangers:
        followed = inputs.get(disk.realpath(each.path))
        end = "name the file together with the log to follow it"
        if followed is not None:
            end = "it is followed as a run of its own"
            if names.origin(str(followed)).run == run:
                names.tie(str(followed), own_run(str(followed), run))
        by_reason.setdefault(f"because {each.reason}; {end}", []).append(each.path)
    return [Apart(log, tuple(paths), why) for why, paths in by_reason.items()]


def notices_of(apart: Iterable[Apart]) -> Iterator[str]:
    """A notice for each reason: the files that are apart for it, and from which logs."""
    by_reason: dict[str, list[Apart]] = {}
    for each in apart:
        by_reason.setdefault(each.why, []).append(each)
    for why, found in by_reason.items():
        files = dict.fromkeys(path for each in found for path in each.files)
        logs = dict.fromkeys(each.log for each in found)
        yield f"{_listed([*files])}: no companion of {_listed([*logs])}, {why}"


def _listed(paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return ", ".join(map(str, paths[:LISTED])) + more
