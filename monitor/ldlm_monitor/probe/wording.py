"""How sets of ranks are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MAX_RANGES = 12
"""Ranges in one line; more are a count."""


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-36, 38-63`."""
    ordered = sorted(set(ranks))
    ranges = [f"{a}" if a == b else f"{a}-{b}" for a, b in _ranges(ordered)]
    more = f" and {len(ranges) - MAX_RANGES} more" if len(ranges) > MAX_RANGES else ""
    noun = "rank" if len(ordered) == 1 else "ranks"
    return f"{noun} {', '.join(ranges[:MAX_RANGES])}{more}"


def _ranges(ordered: list[int]) -> Iterator[tuple[int, int]]:
    start = previous = None
    for rank in ordered:
        if start is None or previous is None:
            start = rank
        elif rank != previous + 1:
            yield start, previous
            start = rank
        previous = rank
    if start is not None and previous is not None:
        yield start, previous
