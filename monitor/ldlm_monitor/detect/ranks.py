"""One rank against the others of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ldlm_monitor.detect.window import Values, Window, median, positive

RECENT = 20
LEAST_RANKS = 2


class RankDetector:
    """Which rank is behind, and which is slow.

    - `rank_lag_steps`: the furthest rank's step less this rank's, as they were told.
    - `rank_slowdown_ratio`: the median of the last 20 `step_seconds` that this rank
      reported, over the median of the ranks' medians. Ranks that wait for each other take
      the same time, so `busy_seconds` counts instead where ranks report it: how long each
      worked before it waited.
    """

    __slots__ = ("_busy", "_seconds", "_steps")

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}
        self._seconds: dict[int, Window] = {}
        self._busy = False

    def take_steps(self, steps: Mapping[int, int]) -> None:
        """By rank, the last step told."""
        self._steps = dict(steps)

    def take_seconds(self, rank: int, seconds: Values, *, busy: bool = False) -> None:
        """The next durations of steps that a rank reported; `busy`: those of its own work."""
        if busy and not self._busy:
            self._busy = True
            self._seconds.clear()
        if busy is not self._busy:
            return
        window = self._seconds.setdefault(rank, Window(RECENT))
        window.extend(positive(seconds))

    def measures(self) -> Iterator[tuple[int, str, float]]:
        """Rank, name without its prefix, and value."""
        if len(self._steps) >= LEAST_RANKS:
            furthest = max(self._steps.values())
            for rank, step in self._steps.items():
                yield rank, "rank_lag_steps", furthest - step
        medians = {
            rank: median(window.values)
            for rank, window in self._seconds.items()
            if len(window) == RECENT
        }
        if len(medians) >= LEAST_RANKS:
            usual = median([*medians.values()])
            for rank, own in medians.items():
                yield rank, "rank_slowdown_ratio", own / usual
