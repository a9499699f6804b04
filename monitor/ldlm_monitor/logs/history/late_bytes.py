"""When bytes came that were read late, and have no times of their own: evenly, as far as known.

Otherwise all of them would have the time of the reading or of the last write, and what came before
would be a silence of the run.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.history.arrival_times import ONLY_ORDER, Timeline
from ldlm_monitor.logs.history.stretch import Stretch
from ldlm_monitor.logs.parse import clock_marks
from ldlm_monitor.logs.parse.stamps import stamps

SPREAD_SECONDS = 5.0
"""Seconds between two times of late bytes. A choice: a sixth of the least default stall limit; less
takes more rows of the read log."""
_STEP = re.compile(
    rb"^(?:step|iter|iteration|epoch)\b[ :=#\[(]{0,3}\d", re.IGNORECASE | re.MULTILINE
)
"""A line that begins with a step: no line of a traceback does, as its lines are indented."""


def evenly(chunks: Iterable[Chunk], since: float, until: float) -> list[tuple[int, float]]:
    """Offsets, and when the bytes before each came, of what came from `since` to `until` (Unix s).

    What follows the last offset came at `until`. They lie only before what begins a record for
    sure, a row, a bar, a line with a time or a step: a traceback whose lines do not come at once
    would be another event after a restart. `chunks`: consecutive bytes of one file.
    """
    if not SPREAD_SECONDS < until - since < math.inf:
        return []
    count, begin, stop = math.ceil((until - since) / SPREAD_SECONDS), -1, 0
    records: list[int] = []
    for chunk in chunks:
        begin = chunk.offset if begin < 0 else begin
        stop = chunk.offset + len(chunk.data)
        records += _record_starts(chunk)
    found: dict[int, float] = {}
    for number in range(1, count):
        index = bisect_left(records, begin + (stop - begin) * number // count)
        if index < len(records):
            found.setdefault(records[index], since + (until - since) * number / count)
    return list(found.items())


def spread(stretch: Stretch, since: float) -> Timeline:
    """An order of bytes without times that were written evenly from `since` (Unix s) on."""
    ends = evenly(stretch.chunks(), since, stretch.written_at)
    offsets = [stretch.start, *(offset for offset, _ in ends)]
    times = [*(when for _, when in ends), stretch.written_at]
    return Timeline(offsets, times, timed=False, guess=ONLY_ORDER)


def _record_starts(chunk: Chunk) -> list[int]:
    marks = [*clock_marks(chunk.data, rows=True), *clock_marks(chunk.data)]
    places = [each.offset for each in marks] + [each.offset for each in stamps(chunk.data)]
    places += [each.start() for each in _STEP.finditer(chunk.data)]
    return sorted(chunk.offset + each for each in places)
