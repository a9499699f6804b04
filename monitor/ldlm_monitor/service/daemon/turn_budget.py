"""How many bytes a turn reads, so that judging them takes about `TURN_SECONDS`."""

from ldlm_monitor.logs.source.follower import TURN_BYTES

TURN_SECONDS = 0.125
"""How long a turn may judge new bytes: urgent lines of other files, and timers, wait for so long. A
choice: with a thousand growing logs, finding what is new in each takes a third of that."""
LEAST_BYTES = 64 * 1024
"""Bytes that a turn reads at least. A choice: fewer cost more for the turn than for the bytes."""


class TurnBudget:
    """`size`: the bytes of the next turn, by the speed of the last ones."""

    def __init__(self) -> None:
        self.size = LEAST_BYTES

    def note(self, size: int, seconds: float, *, has_backlog: bool) -> None:
        """Note that a turn judged `size` bytes in `seconds`, and whether it left some unread."""
        if 0 < size < LEAST_BYTES / 2:  # few bytes show no speed; none come of a record that is cut
            return
        if seconds > TURN_SECONDS / 2:
            affordable = int(size * TURN_SECONDS / seconds)
            self.size = max(LEAST_BYTES, min(affordable, 2 * self.size, TURN_BYTES))
        elif has_backlog:
            self.size = min(2 * self.size, TURN_BYTES)
