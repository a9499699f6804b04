"""Long reading of finished logs: a line that shows how far it is, and Ctrl-C that keeps it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final

from ldlm_monitor.base.text.format import byte_size, duration

if TYPE_CHECKING:
    from ldlm_monitor.base.snapshot import Snapshot
    from ldlm_monitor.finished.playback.log_replay import Replay
    from ldlm_monitor.logs.history.merge import History

SHOWN_AFTER: Final = 1.0  # seconds until the line appears. A choice: what takes less needs none
REDRAWN_AFTER: Final = 0.25  # seconds between two states of the line. A choice: eyes see no more
_CLEAR: Final = "\r\x1b[K"  # to the line's start; erase to its end (ECMA-48)


class Reading:
    """A context in which a history is played; Ctrl-C ends it between two pieces, without an error.

    So all that was judged before is whole; a second Ctrl-C raises KeyboardInterrupt at once. If
    stderr is a terminal, a line shows the bytes, the share that is read, and the time left.
    `keeps`: False where a part is worth nothing: then Ctrl-C says so and raises KeyboardInterrupt.
    `is_interrupted`: Ctrl-C came.
    """

    def __init__(self, history: History, *, keeps: bool = True) -> None:
        self.is_interrupted = False
        self._history, self._keeps = history, keeps
        self._is_shown = sys.stderr.isatty()
        self._takes_signals = threading.current_thread() is threading.main_thread()
        self._is_drawn = self._has_ended = False
        self._done = self._total = 0

    def __enter__(self) -> Reading:
        self._began = time.monotonic()
        self._draws_at = self._began + SHOWN_AFTER
        self._history.watch = self._note
        if self._takes_signals:
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._takes_signals:
            signal.signal(signal.SIGINT, self._handler)
        self._history.watch = None
        self._erase()
        if self._has_ended and not self._keeps:
            print(f"interrupted: {self._part()} alone show nothing", file=sys.stderr)
        return self._has_ended and self._keeps

    def print(self, line: str) -> None:
        """Print a line of output, above the line that shows how far it is."""
        self._erase()
        print(line)

    def say_part(self) -> None:
        """If Ctrl-C came, print on stderr of which part of the logs the output is."""
        if self.is_interrupted:
            print(f"interrupted: this is what {self._part()} say", file=sys.stderr)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.is_interrupted = True

    def _note(self, done: int, total: int) -> None:
        self._done, self._total = done, total
        if self.is_interrupted:
            self._has_ended = True
            raise KeyboardInterrupt
        now = time.monotonic()
        if self._is_shown and now >= self._draws_at:
            self._draws_at, self._is_drawn = now + REDRAWN_AFTER, True
            sys.stderr.write(f"{_CLEAR}reading {self._state(now)}")
            sys.stderr.flush()

    def _erase(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def _state(self, now: float) -> str:
        if self._total < self._done:  # of standard input, whose end is not known
            return byte_size(self._done)
        left = (self._total - self._done) * (now - self._began) / max(self._done, 1)
        return f"{byte_size(self._total)}: {self._share()}, {duration(round(left))} left"

    def _part(self) -> str:
        share = f" ({self._share()})" if self._total >= self._done else ""
        return f"the first {byte_size(self._done)}{share}"

    def _share(self) -> str:
        return f"{100 * self._done / max(self._total, 1):.0f} %"


def read_to_end(replay: Replay) -> tuple[Snapshot, bool]:
    """The state at the end of the logs, or where Ctrl-C came, and whether it came."""
    with Reading(replay.history) as reading:
        for _ in replay.played():
            pass
    reading.say_part()
    return replay.snapshot(), reading.is_interrupted
