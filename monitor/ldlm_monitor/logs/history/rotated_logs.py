"""The files of a rotated log: which are of one log, in which order, and their common clock.

`ldlm-monitor run` numbers full files as they come, so that 1 is the oldest; logrotate and Python's
`logging` rename all of them each time, so that 1 is the newest; others add a date.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ldlm_monitor.base.chunk import Chunk, rotated_from
from ldlm_monitor.base.names import RUN_PREFIX
from ldlm_monitor.logs.history.arrival_times import Timeline
from ldlm_monitor.logs.history.history_file import HistoryFile
from ldlm_monitor.logs.history.stretch import LEAST_BLOCK, Stretch

_DATE_DIGITS = 8  # of a date, YYYYMMDD; a number is shorter


def logs_of(files: Sequence[HistoryFile]) -> list[list[HistoryFile]]:
    """The files of each log, the oldest first; each but the first continues the one before."""
    found: dict[tuple[str, str], dict[str, list[HistoryFile]]] = {}
    for file in files:
        log, added = rotated_from(str(file.backlog.place))
        found.setdefault((file.run, log), {}).setdefault(added, []).append(file)
    logs = [each for parts in found.values() for each in _ordered(parts)]
    for before, newer in (pair for each in logs for pair in pairwise(each)):
        before.is_continued, newer.continues = True, before.path
    return logs


def _ordered(parts: dict[str, list[HistoryFile]]) -> Iterator[list[HistoryFile]]:
    """The logs of the files with one name, by what was added to it."""
    dated = sorted(added for added in parts if len(added) >= _DATE_DIGITS)
    numbered = sorted((added for added in parts if 0 < len(added) < _DATE_DIGITS), key=int)
    # Numbers with a gap, from 0, or beside no file without one, are those of ranks, nodes or tasks,
    # which write side by side.
    if "" not in parts or [*map(int, numbered)] != [*range(1, len(numbered) + 1)]:
        yield from ([file] for added in numbered for file in parts[added])
        numbered = []
    elif not _are_rising([parts[added][0] for added in numbered], parts.get("")):
        numbered.reverse()
    if log := [file for added in (*dated, *numbered, "") for file in parts.get(added, ())]:
        yield log


def _are_rising(numbered: Sequence[HistoryFile], newest: Sequence[HistoryFile] | None) -> bool:
    """Whether file 1 is the oldest: it begins as `ldlm-monitor run` does, or was written first.

    Files of which the one without a number was not written last are copies, with no such times.
    """
    if not numbered:
        return False
    written = [file.backlog.modified for file in numbered]
    if newest and newest[0].backlog.modified < max(written):
        written = []
    first = numbered[0].backlog.head.split(b"\n", 1)[0]
    return RUN_PREFIX.encode() in first or (bool(written) and written[0] < written[-1])


@dataclass(frozen=True, slots=True)
class JoinedStretch(Stretch):
    """Stretches of a log's files, one behind the other; `parts` has where each file begins."""

    parts: Sequence[tuple[int, Stretch]] = ()

    @classmethod
    def of(cls, files: Sequence[HistoryFile]) -> "JoinedStretch":
        """The bytes that are read of a log's files, the oldest first."""
        at, parts, ends = 0, [], []
        for file in files:
            parts.append((at, file.whole()))
            at += file.backlog.size
            ends.append((at, file.backlog.modified))
        if at < LEAST_BLOCK * len(files):  # too few lines in a file to be spread over its time
            ends.clear()
        first, last = parts[0][1], parts[-1][1]
        return cls(first.backlog, first.start, at, last.written_at, ends, parts)

    def scan(self, start: int, stop: int) -> Iterator[Chunk]:
        """Chunks of bytes `start` to `stop` of the log."""
        for at, part in self.parts:
            first, last = max(start - at, part.start), min(stop - at, part.stop)
            if first < last:
                for chunk in part.scan(first, last):
                    yield replace(chunk, offset=chunk.offset + at)

    def split(self, whole: Timeline) -> Iterator[Timeline]:
        """The timeline of each file, by that of the log."""
        stops = [*(at for at, _ in self.parts[1:]), float("inf")]
        for (at, _), stop in zip(self.parts, stops, strict=True):
            yield whole.part(at, stop)
