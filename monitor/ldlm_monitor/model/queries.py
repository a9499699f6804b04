"""What the screen asks for, of the daemon in its own process or of one elsewhere: one protocol."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

from pydantic import ConfigDict, Field

from ldlm_monitor.model.view import CurveView, Snapshot

Level: TypeAlias = Literal["error", "warning", "info"]
Natural: TypeAlias = Annotated[int, Field(ge=0, lt=10**18)]
MAX_LINES = 1000
"""Records of a log in one answer, on each side."""
MAX_POINTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    r"""One record of a log as it may be shown: no secrets, escapes or control characters.

    It begins at byte `offset` and ends before `end`. `line` is 1-based and counts `\n`,
    None where nobody counted; what a `\r` ends is a record of its own on the same line.
    `rank`, `time` (Unix seconds) and `level` are what stands in front of its text. `is_open`:
    it has no end yet, and may go on.
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

    `start` and `end` are the bytes that were looked at: with a filter they are more than
    the `lines` hold. `found` is where the text that was searched for stands, None: nowhere
    between where the search began and `end`, from where it may go on.
    """

    path: str
    size: int
    start: int
    end: int
    lines: tuple[LogLine, ...]
    found: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Which records of a log: up to `before` of them before byte `at`, and `after` from it on.

    `at` None is the end of the file. `at_line` is the number of the line at `at` where that is
    known; with `at` None it is the line that is wanted. `rank` and `level` (and what is worse)
    let through only such records. Records that a terminal would have overwritten, as all but
    the last of a progress bar, are left out unless `bars`; that at `at` itself is there where
    one looks both ways. `find` searches from `at` on (`backwards`: before it) and
    then answers around what was found; letters of either case count the same.
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


class Source(Protocol):
    """Five questions and a command. Each may block, and raises `RemoteError` or `UsageError`.

    `name` says where the picture comes from; `problem` what keeps it from being fresh.
    """

    name: str
    problem: str

    def reading(self) -> float | None:
        """How much of what was there at first has been read, 0 to 1; None: all, or not known."""

    def snapshot(self) -> Snapshot:
        """The last picture; the same object where nothing changed."""

    def series(
        self, run: str, quantity: str, start: int | None, end: int | None, points: int
    ) -> CurveView | None:
        """A curve between two steps in at most `points` buckets; None: there is none."""

    def log(self, query: LogQuery) -> LogSlice:
        """Records of a followed file."""

    def held_back(self) -> dict[str, list[dict[str, Any]]]:
        """The `silences` and `acks` that are kept, as the API spells them."""

    def send(self, what: Withholding, document: dict[str, Any]) -> None:
        """Hold back messages: an acknowledgement or a silence, as the API spells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How far something is played back: `at` between `start` and `end`, Unix seconds.

    `runs`: how many are in it. `speed`: seconds of it in one second. `seeks`: on its way to
    the next alert. `alert`: the one that it was stopped at, and its `run`; empty: none.
    `has_ended`: nothing more comes.
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


class Player(Protocol):
    """Plays back on a clock of its own. None of this blocks."""

    def played(self) -> Played:
        """How far it is."""

    def steer(self, command: PlayerCommand) -> None:
        """`toggle`: stop, or go on; `seek`: to where the next alert begins to fire."""


def part_of(curve: CurveView, start: int | None, end: int | None, points: int) -> CurveView:
    """The buckets between two steps, neighbours joined until there are at most `points`.

    The least and greatest values stay, and NaN is counted: no spike is lost.
    """
    steps = curve.steps
    kept = [
        index
        for index in range(len(steps))
        if (end is None or steps[index] <= end)
        and (start is None or index + 1 >= len(steps) or steps[index + 1] > start)
    ]
    size = -(-len(kept) // max(points, 1)) or 1
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
