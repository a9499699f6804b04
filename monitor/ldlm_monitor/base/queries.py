"""The protocols by which the screen reads a monitor: in the same process, or a remote daemon."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

from pydantic import ConfigDict, Field

from ldlm_monitor.base.snapshot import CurveView, Snapshot

Level: TypeAlias = Literal["error", "warning", "info"]  # of a log line, the worst first
Natural: TypeAlias = Annotated[int, Field(ge=0, lt=10**18)]
"""A count or byte offset in a request; below `MAX_COUNT`, which signed 64-bit file offsets hold."""
MAX_LINES = 1000
"""Most records that one answer has before the requested place, and after it. A choice: more make
answers larger than 10 MB, fewer need more requests for a few screens."""
MAX_POINTS = 4096  # buckets in one answer. A choice: 2 fill a terminal's column, none has 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    r"""One record of a log, safe to show: without secrets, escapes and control characters.

    The record is bytes `offset` to `end` (exclusive). `line` is 1-based and counts `\n`, or
    None if it was not counted; text ended by `\r` is a record of its own on the same line.
    `rank`, `time` (Unix seconds) and `level` come from the prefix of the text. `is_open`: the
    record has no line end yet and may grow.
    """

    offset: int
    end: int
    line: int | None
    text: str
    rank: int | None = None
    time: float | None = None
    level: Level | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """Some consecutive records of a followed file of `size` bytes.

    Bytes `start` to `end` were read; `lines` lacks those of their records that a filter drops.
    `found`: the offset of the record that contains the text of `LogQuery.find`. If `found` is None
    after a search, the search reached `end` without a match; the next one may begin there.
    `matches`: which of how many occurrences was found; None if they were not counted.
    """

    path: str
    size: int
    start: int
    end: int
    lines: tuple[LogLine, ...]
    found: int | None = None
    matches: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Asks for up to `before` records before byte `at` of a log, and up to `after` from it on.

    If `at` is None, the place is the start of line `at_line`, or the file's end if both are None.
    If both are given, the line at `at` has the number `at_line`, so that no lines are counted.
    `rank` keeps the records of one rank, `level` those as bad or worse. States of a progress bar
    that a terminal would have overwritten are left out unless `bars`; the record at `at` stays
    if both `before` and `after` are asked for. `find` searches from `at` on (`backwards`:
    before it), ignoring case; the answer is then around the record that was found.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    path: str
    at: Natural | None = None
    at_line: Natural | None = None
    before: Natural = 0
    after: Natural = 0
    rank: Natural | None = None
    level: Level | None = None
    bars: bool = False
    find: str = ""
    backwards: bool = False


Withholding: TypeAlias = Literal["acks", "silences"]
"""The two ways to hold back an alert's messages, as the API's paths name them."""


class Source(Protocol):
    """A monitor as the screen reads it. Calls may block and raise `UsageError` or `RemoteError`.

    `name` names the monitor; `problem` says why its snapshot is not fresh, "" if it is.
    """

    name: str
    problem: str

    def snapshot(self) -> Snapshot:
        """The last snapshot; the same object as before if nothing changed."""

    def series(
        self, run: str, quantity: str, start: int | None, end: int | None, points: int
    ) -> CurveView | None:
        """A curve as `part_of` cuts it; None if the run or the quantity is unknown."""

    def log(self, query: LogQuery) -> LogSlice:
        """The records of a followed file for which `query` asks."""

    def held_back(self) -> dict[str, list[dict[str, Any]]]:
        """The current `silences` and `acks` (acknowledgements), as the HTTP API writes them."""

    def send(self, what: Withholding, document: dict[str, Any]) -> None:
        """Adds an acknowledgement or a silence; `document` has the HTTP API's form."""


_HIDDEN = 200
"""Hidden texts that one search passes over; the client goes on from there. A choice: each costs two
reads, and an answer blocks one of few threads."""


def visible(source: Source, query: LogQuery, redact: Callable[[str], str]) -> LogSlice:
    """The answer to a query; a search passes over texts that `redact` hides.

    Otherwise a client could find out a secret by searches, letter by letter.
    """
    for _ in range(_HIDDEN):
        found = replace(source.log(query), matches=None)  # a count would include hidden texts
        if found.found is None:
            return found
        hit = source.log(LogQuery(path=query.path, at=found.found, after=1, bars=True))
        if any(query.find.lower() in redact(line.text).lower() for line in hit.lines):
            return found
        query = replace(query, at=hit.start if query.backwards else hit.end)
    return replace(found, start=query.at or 0, end=query.at or 0, lines=(), found=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The state of a playback, which is at `at` between `start` and `end` (Unix seconds).

    `runs`: the number of runs in the recording. `speed`: recorded seconds per second.
    `seeks`: the playback is running to the next alert. `alert` and `run`: name and run of the
    alert at which it stopped; "" if it is at none. `has_ended`: the end is reached.
    """

    start: float
    end: float
    at: float
    runs: int
    speed: float
    is_playing: bool
    seeks: bool = False
    has_ended: bool = False
    alert: str = ""
    run: str = ""


PlayerCommand: TypeAlias = Literal["toggle", "slower", "faster", "seek", "rewind"]
"""Pauses or resumes, changes the speed, runs to the next alert (`seek`), or goes to the start."""


class Player(Protocol):
    """Plays a recording on a virtual clock. No method blocks."""

    def played(self) -> Played:
        """The present state of the playback."""

    def steer(self, command: PlayerCommand) -> None:
        """Applies a command to the playback."""


def part_of(curve: CurveView, start: int | None, end: int | None, points: int) -> CurveView:
    """The buckets from step `start` to `end` (None: no bound), merged into at most `points` ones.

    Merging keeps minima and maxima, so that no spike is lost; a mean is the buckets' mean.
    """
    steps = curve.steps
    kept = [
        index
        for index in range(len(steps))
        if (end is None or steps[index] <= end)
        and (start is None or index + 1 >= len(steps) or steps[index + 1] > start)
    ]
    size = -(-len(kept) // max(points, 1)) or 1  # rounded up
    groups = [kept[index : index + size] for index in range(0, len(kept), size)]

    def joined(column: Sequence[float], choose: Callable[[list[float]], float]) -> list[float]:
        numbers = ([v for i in group if (v := column[i]) == v] for group in groups)
        return [choose(values) if values else math.nan for values in numbers]

    first = {
        name: [getattr(curve, name)[group[0]] for group in groups]
        for name in ("steps", "times", "lines", "offsets", "origins")
    }
    return CurveView(
        lows=joined(curve.lows, min),
        highs=joined(curve.highs, max),
        means=joined(curve.means, lambda values: sum(values) / len(values)),
        nonfinite=[sum(curve.nonfinite[i] for i in group) for group in groups],
        files=curve.files,
        **first,
    )
