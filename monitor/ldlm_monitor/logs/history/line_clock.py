"""Places a log by the times in its lines, and its bars between these lines."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from ldlm_monitor.logs.history.arrival_times import (
    FROM_LAST_WRITE,
    FROM_LINE_ABOVE,
    StepClock,
    Timeline,
)

Place: TypeAlias = tuple[int, float]
"""A line's first byte, and its time in Unix seconds."""
START_SECONDS = 60.0
"""Where the last write says that the first bar came later than this after the line above it, the
last write is that of a copy, and the bar came at once unless lines further on exclude it. A choice:
trainings load for so long between a line and a bar; a copied log's last write may be years late."""

BEFORE_SECONDS = 2.0
"""Lines without a time come this long before the line with one below them. A choice: a launcher
reports a failure within a second or two; more judges a crash before its report is there."""


def from_lines(lines: Sequence[Place]) -> Timeline:
    """The timeline of a log whose `lines` have times; both numbers rise."""
    offsets, times = [offset for offset, _ in lines], [when for _, when in lines]
    if not offsets[0]:
        return Timeline(offsets, times, dated=True)
    return Timeline([0, *offsets], [times[0] - BEFORE_SECONDS, *times], dated=True)


def with_ends(lines: Sequence[Place], ends: Sequence[Place]) -> list[Place]:
    """`lines`, and those `ends` of a rotated log's files that fit between them.

    `ends`: where each file ends, and its last write. Those of copies may be the times of copying:
    then they do not rise with the offsets, or fall behind the next line's time, and are left out.
    """
    found = list(lines)
    if any(after[1] < before[1] for before, after in pairwise(ends)):
        return found
    for offset, when in ends:
        index = bisect_right(found, (offset, -math.inf))
        before = found[index - 1][1] if index else -math.inf
        after = found[index] if index < len(found) else (math.inf, math.inf)
        if before <= when <= after[1] and offset < after[0]:
            found.insert(index, (offset, when))
    return found


def between_lines(
    bars: Timeline, clock: StepClock, lines: Sequence[Place]
) -> tuple[Timeline, StepClock]:
    """The timeline and clock of bars that are drawn between `lines`; without lines, as they are.

    The bars move as a whole, as little as needed, so that none comes before the line above it or
    after the line below. Bars after a longer pause, as those of another launch, move on further.
    """
    if not lines:
        return bars, clock
    drawn = bars.places
    shift, guess = _shift(drawn, lines)
    olds, news = [-math.inf], [0.0]
    merged: list[Place] = []
    latest = -math.inf
    for offset, when, is_line in sorted(
        [(*each, 1) for each in lines] + [(*each, 0) for each in drawn]
    ):
        if not is_line and offset:
            shift = max(shift, latest - when)
            olds.append(when)
            news.append(when + shift)
        latest = max(latest, when if is_line else when + shift)
        if not merged or (offset > merged[-1][0] and latest > merged[-1][1]):
            merged.append((offset, latest))
    moves = [new - old for old, new in zip(olds, news, strict=True)]
    moves[0] = moves[1] if len(moves) > 1 else shift
    offsets, times = [offset for offset, _ in merged], [when for _, when in merged]
    timeline = Timeline(offsets, times, dated=True, guess=guess)
    return timeline, clock.moved(lambda when: when + moves[bisect_right(olds, when) - 1])


def _shift(drawn: Sequence[Place], lines: Sequence[Place]) -> tuple[float, str]:
    """Seconds by which to move all bars: the fewest by which they come between the lines.

    And why their times are guesses, "" where lines stand close enough above and below.
    """
    least, begins, most = -math.inf, -math.inf, math.inf
    offsets = [offset for offset, _ in drawn]
    for offset, when in lines:
        after = bisect_right(offsets, offset)
        if after < len(drawn):
            least = max(least, when - drawn[after][1])
        if after == 1:  # above the first bar, whose clock begins below it
            begins = max(begins, when - drawn[0][1])
        if after > 1:  # the first place is the start of the file, and no bar
            most = min(most, when - drawn[after - 1][1])
    moved = min(max(0.0, least), most)
    is_copied = -math.inf < least < moved - START_SECONDS
    if is_copied:
        moved = min(max(least, begins), most)
    is_known = most - max(least, begins) < START_SECONDS
    return moved, "" if is_known else FROM_LINE_ABOVE if is_copied else FROM_LAST_WRITE
