"""Facts that are read from a file's bytes: its launch, its form, and the times in it."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ldlm_monitor.model.chunk import Chunk, ClockMark
from ldlm_monitor.model.chunk import form_of as frames_of
from ldlm_monitor.parse import METRIC_TIME, clock_marks, frame_times, metric_of
from ldlm_monitor.parse.blocks import BLOCK_SECONDS
from ldlm_monitor.parse.jsonl import EARLIEST, LATEST
from ldlm_monitor.parse.patterns import compile_pattern
from ldlm_monitor.parse.stamps import Stamp, placed, stamps
from ldlm_monitor.parse.tracebacks import MAX_TEXT_BYTES
from ldlm_monitor.run.line_clock import BEFORE_SECONDS, Place, with_ends
from ldlm_monitor.run.timeline import StepClock, Timeline, from_rows, from_steps
from ldlm_monitor.source.backlog import Backlog
from ldlm_monitor.source.companions import LaunchFacts
from ldlm_monitor.source.file_system import DIRECT, Disk
from ldlm_monitor.source.run_names import RunNames

HEAD_BYTES = 256 * 1024
"""Bytes at a log's start searched for its launch: a choice; 50 times our need, and more is slow."""
_DIRECTORY = re.compile(
    rb"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )?Working directory: (\S[^\r\n]*)", re.MULTILINE
)
"""A line of MM-LDLM's trainer, which names its folder; `ldlm_trainer` puts the time in front."""
_NCCL_FILE = re.compile(rb"\bNCCL_DEBUG_FILE=([^\s'\"]+)")  # names NCCL's log, as `env` prints it
_RUN_NAME = re.compile(rb"\blogging\.run_name=([^\s'\",\]]+)")  # a Hydra override of MM-LDLM
_CALLBACK_SCHEMA = "ldlm.health/"  # `schema` of the callback's first row, up to its version
Form: TypeAlias = Literal["text", "rows", "metric", "frames"]
"""What a file holds: text, JSON lines, one metric of MLflow, frames of TensorBoard or W&B."""
BEFORE_BYTES = 64 * 1024
"""Bytes before a part to search for a progress bar: a choice; they hold 100s, and more is slow."""
# A date and time of ISO 8601; some loggers print the fraction after a comma.
_STAMP = rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_ROW_TIME = re.compile(
    rb'"(?:time|timestamp|_timestamp)":\s?(?:(\d{9,10}(?:\.\d+)?)(?!\d)|"(' + _STAMP + rb')")'
)
"""The time of a JSON row: `time` of the callback, `timestamp` of common loggers, `_timestamp` of
W&B. Nine or ten digits are Unix seconds (1973 to 2286); fewer are a duration, more other units."""
_TIME_KEY = compile_pattern(r'"(?:time|timestamp|_timestamp)":')
"""Tested before `_ROW_TIME`: re2 is twice as fast as `re` without a match, half as fast with."""
BLOCK_BYTES = 4096
"""Bytes of lines without a time that are placed together: a choice; a traceback fits."""
LEAST_BLOCK = MAX_TEXT_BYTES
"""Least bytes of such lines that are spread: fewer may be a record of the line above, such as a
logger's traceback, which is not complete after `BLOCK_SECONDS` if its parts come later."""
_MOST_TIMES = 100_000
"""Times kept of a text log: a choice; a day with one a second fits, more cost 100 bytes each."""
NOMINAL_ROWS = 3_600
"""Most times, a second apart, given to a file without times: a choice; more are finer, slower."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes `start` to `stop` of `backlog`; the last one was written at `written_at` (Unix s).

    `ends`: offsets at which the files of a rotated log end, and when each was written last.
    """

    backlog: Backlog
    start: int
    stop: int
    written_at: float
    ends: Sequence[Place] = ()

    def scan(self, start: int, stop: int) -> Iterator[Chunk]:
        """Chunks of bytes `start` to `stop`, also of an unfinished record."""
        return self.backlog.scan(start, stop)

    @property
    def form(self) -> Form:
        """The form of the file's content."""
        return form_of(self.backlog)

    def chunks(self) -> Iterator[Chunk]:
        """The bytes as chunks of whole records."""
        return self.scan(self.start, self.stop)

    def marks(self, *, rows: bool = False) -> Iterator[ClockMark]:
        """Positions of steps: with `rows` those in rows, otherwise those in progress bars."""
        for chunk in self.chunks():
            yield from clock_marks(chunk.data, chunk.offset, rows=rows)

    def marks_before(self) -> list[ClockMark]:
        """The progress bars in the last `BEFORE_BYTES` in front of the stretch."""
        start = max(0, self.start - BEFORE_BYTES)
        return clock_marks(self.backlog.part(start, self.start), start)

    def line_times(self, apart: float, *, spread: bool) -> list[tuple[int, float]]:
        """Offset and time (Unix s) of lines of text with a time, at least `apart` seconds apart.

        Of more than `_MOST_TIMES`, every second one is left out, again and again. `spread`: lines
        without a time are spread over the time up to `BEFORE_SECONDS` before the line below them:
        where only a launcher prints times, errors come with its report of them.
        """
        kept: list[Stamp] = []
        ends: dict[int, int] = {}
        for chunk in self.chunks():
            for stamp in stamps(chunk.data, chunk.offset):
                if kept and 0 <= stamp.when - kept[-1].when < apart:
                    ends[kept[-1].offset] = stamp.offset
                    continue
                kept.append(stamp)
                if len(kept) > _MOST_TIMES:
                    del kept[1::2]
                    apart *= 2
        here = datetime.fromtimestamp(self.written_at).astimezone().utcoffset()
        lines = placed(kept, self.written_at, here.total_seconds() if here else 0.0)
        if spread:
            lines = with_ends(lines, self.ends)
        found = lines[:1]
        for (first, since), (last, until) in pairwise(lines):
            if spread:
                found += self._spread(ends.get(first, first), since, last, until - BEFORE_SECONDS)
            found.append((last, until))
        return found

    def _spread(
        self, first: int, since: float, last: int, until: float
    ) -> Iterator[tuple[int, float]]:
        """Places, by offset, of lines below the one at `first`; those near `last` at `until`."""
        if until <= since or (last - first < LEAST_BLOCK and until - since > BLOCK_SECONDS):
            return
        offset, apart = first, 1
        for chunk in self.scan(first, last):
            while end := chunk.data.find(b"\n", max(offset + apart - 1 - chunk.offset, 0)) + 1:
                offset = chunk.offset + end
                if offset >= last:
                    return
                rest = max(last - first - BLOCK_BYTES, 1)
                yield offset, since + (until - since) * min((offset - first) / rest, 1.0)
                apart = max(BLOCK_BYTES, (last - first) // NOMINAL_ROWS)

    def row_times(self, apart: float) -> Iterator[tuple[int, float]]:
        """First offset and last time (Unix s) of groups of rows between two multiples of `apart` s.

        Rows of equal time, or earlier than the row before, are in one group. The first row is a
        group of its own: bytes before it that have no time get its time. Times that the parser
        refuses are skipped.
        """
        begin, first, until, last = -1, -math.inf, -math.inf, -math.inf
        for at, when in self._row_times():
            if not EARLIEST <= when <= LATEST:  # also NaN; some loggers write milliseconds
                continue
            if when < until or when == first:
                last = max(last, when)
                continue
            if begin >= 0:
                yield begin, last
                first, until = when, (when // apart + 1) * apart if apart else when
            begin, last = at, when
        if begin >= 0:
            yield begin, last

    def _row_times(self) -> Iterator[tuple[int, float]]:
        form = self.form
        for chunk in self.chunks():
            offset, block = chunk.offset, chunk.data
            if form == "frames":
                yield from frame_times(chunk)
            elif form == "metric":
                for match in METRIC_TIME.finditer(block):
                    yield offset + match.start(), int(match[1]) / 1000  # MLflow's milliseconds
            elif has_times(block):
                for at, when in row_moments(block):
                    yield offset + block.rfind(b"\n", 0, at) + 1, when

    def row_offsets(self) -> list[int]:
        """Offsets of all rows, or of `NOMINAL_ROWS` at most, evenly spaced, if there are more."""
        offsets, apart = [self.start], 1
        for chunk in self.chunks():
            while end := chunk.data.find(b"\n", max(offsets[-1] + apart - 1 - chunk.offset, 0)) + 1:
                offsets.append(chunk.offset + end)
                if len(offsets) > NOMINAL_ROWS:
                    del offsets[1::2]
                    apart = (offsets[-1] - self.start) // len(offsets)
        return offsets[:-1] if offsets[-1] >= self.stop else offsets


def has_times(block: bytes) -> bool:
    """Whether a JSON row in `block` may have a time."""
    return _TIME_KEY.search(block) is not None


def row_moments(block: bytes) -> Iterator[tuple[int, float]]:
    """Where the times of JSON rows stand in `block`, and the times (Unix seconds)."""
    for match in _ROW_TIME.finditer(block):
        when = float(match[1]) if match[1] else _moment(match[2])
        if when is not None:
            yield match.start(), when


def _moment(stamp: bytes) -> float | None:
    try:
        return datetime.fromisoformat(stamp.decode().replace(",", ".")).timestamp()
    except (ValueError, OverflowError, OSError):  # no date, or one outside of Unix times
        return None


def form_of(backlog: Backlog) -> Form:
    """What a file holds, by its name and its first bytes."""
    if frames_of(backlog.head):
        return "frames"
    if backlog.head.lstrip()[:1] == b"{":
        return "rows"
    return "text" if metric_of(backlog.path, backlog.head) is None else "metric"


def row_timeline(stretch: Stretch, clock: StepClock | None, apart: float) -> Timeline:
    """The times of rows.

    Their own times, `apart` as in `row_times`; otherwise those of their steps on the run's
    `clock` (None: no clock is known); otherwise nominal seconds, which show the order alone.
    """
    times = list(stretch.row_times(apart))
    if times:
        return Timeline([0, *(offset for offset, _ in times[1:])], [when for _, when in times])
    if clock is not None:
        return from_steps(stretch.marks(rows=True), clock)
    return nominal(stretch, together=5)  # as the seconds between two evaluations, by default


def nominal(stretch: Stretch, *, together: int = 1) -> Timeline:
    """The order of rows or lines without times: a nominal second each; of many, `together` come."""
    offsets = [0, *stretch.row_offsets()[1:]]
    apart = together if 2 * len(offsets) > NOMINAL_ROWS else 1
    return from_rows(offsets[::apart], stretch.written_at, float(apart))


def launch_facts(log: Path, disk: Disk = DIRECT) -> LaunchFacts:
    """Facts in a log that lead to the files of its launch. Raises `TimeoutError` (no answer)."""
    return facts_in(part(log, 0, disk))


def facts_in(head: bytes) -> LaunchFacts:
    """The same of a log's first bytes."""
    # A search for the bare words first: it takes a hundredth of the time.
    directory = _DIRECTORY.search(head) if b"Working directory: " in head else None
    nccl = _NCCL_FILE.search(head) if b"NCCL_DEBUG_FILE=" in head else None
    named = _RUN_NAME.findall(head) if b"logging.run_name=" in head else ()
    return LaunchFacts(
        working_directory=_text(directory[1]) if directory else None,
        run_names=tuple(sorted({_text(name) for name in named})),
        nccl_debug_file=_text(nccl[1]) if nccl else None,
    )


def name_by_content(path: Path, names: RunNames, disk: Disk = DIRECT) -> None:
    """Tie an untied file of the callback to the run in its first row. Raises `TimeoutError`."""
    if not names.is_tied(str(path)) and (named := callback_run(path, disk)) is not None:
        names.tie(str(path), named)


def callback_run(path: Path, disk: Disk = DIRECT) -> str | None:
    """The run in a callback's first row; None for any other file. Raises `TimeoutError`."""
    header = callback_header(part(path, 0, disk))
    return None if header is None else str(header["run"])


def callback_header(head: bytes) -> dict[str, Any] | None:
    """The callback's first row in a file's first bytes, with a `run`; None for any other file."""
    try:
        header: dict[str, Any] = json.loads(head.split(b"\n", 1)[0])
        ours = header["type"] == "run" and header["schema"].startswith(_CALLBACK_SCHEMA)
        return header if ours and header["run"] is not None else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # not the callback's first row: other fields, no JSON, or nested too deep


def first_moment(head: bytes) -> float | None:
    """The first date and time of a line in a text's first bytes (Unix seconds); None without one.

    Without a zone it is taken as this host's.
    """
    found = next((stamp for stamp in stamps(head) if stamp.has_year), None)
    if found is None or found.zoned:
        return None if found is None else found.when
    return datetime.fromtimestamp(found.when, UTC).replace(tzinfo=None).timestamp()


def part(path: Path, start: int, disk: Disk) -> bytes:
    """Up to `HEAD_BYTES` of a file from `start` on; none if unreadable. Raises `TimeoutError`."""
    try:
        return disk.part(path, start, HEAD_BYTES)
    except TimeoutError:
        raise
    except OSError:  # the error is reported where the file is followed
        return b""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()
