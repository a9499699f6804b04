"""Plays timed inputs on a clock that can be stopped, sped up and moved to the next alert.

`Playback` is deterministic and reads no clock: `advance` gets the time that passed. `Showing`
calls `advance` in a thread of its own, because the screen has to answer keys meanwhile.
"""

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.names import RUN_FINISHED
from ldlm_monitor.base.queries import Played, PlayerCommand
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.finished.playback.timed_inputs import Piece, TimedInputs
from ldlm_monitor.logs.source.log_parts import LogReader

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 1e4, 1e5)
"""Seconds of training per second: a choice; the highest plays four months in 2 minutes."""
WHOLE_SECONDS = 120.0
"""Most seconds to play all at default speed: a choice; more is tedious, less hard to follow."""
STEP_BYTES = 256 * 1024
"""Bytes that one `advance` judges: a choice; less is slower, more delays keys (now tens of ms)."""
_PIECE = 2048
"""Bytes whose judging takes as long as a piece's fixed cost; added to the size of each piece."""
_PULSE = 1.0
"""Seconds that `_seek` moves past an overdue timer: a choice; more overshoots, less is slow."""
TURN_SECONDS = 0.05  # between two turns of the thread: a choice; less costs CPU, more looks jerky
PICTURE_SECONDS = 0.2
"""Least seconds between two snapshots: a screen draws four a second, more would be unseen."""


class Playback:
    """Plays what `load` gives. `speed`: training seconds per second (None: by `WHOLE_SECONDS`)."""

    def __init__(self, load: Callable[[], TimedInputs], speed: float | None = None) -> None:
        self._load = load
        self.rewind()
        length = self._reel.end - self._reel.start
        self.speed = speed or next((s for s in SPEEDS if length <= s * WHOLE_SECONDS), SPEEDS[-1])

    def rewind(self) -> None:
        """Load the inputs again, and play it from its start."""
        self._reel = self._load()
        self._pieces = iter(self._reel.pieces)
        self._next: Piece | None = next(self._pieces, None)
        self.at = self._reel.start
        self._is_playing, self._seeks, self._has_ended = True, False, False
        self._alert: Transition | None = None

    @property
    def version(self) -> int:
        """A number that changes whenever the snapshot does."""
        return self._reel.monitor.version

    def snapshot(self) -> Snapshot:
        """The monitor's snapshot at the time `at`."""
        return self._reel.monitor.snapshot()

    def opened(self, path: str) -> LogReader:
        """The log at `path`, up to where it was played. Raises `OSError`."""
        return self._reel.opened(path)

    def played(self) -> Played:
        """The player's position, speed and state."""
        return Played(
            start=self._reel.start,
            end=self._reel.end,
            at=self.at,
            runs=self._reel.runs,
            speed=self.speed,
            is_playing=self._is_playing,
            seeks=self._seeks,
            has_ended=self._has_ended,
            alert=self._alert.alert if self._alert else "",
            run=self._alert.labels.get("run", "") if self._alert else "",
        )

    def toggle(self) -> None:
        """Stop if playing or seeking, otherwise go on; after the end, begin again."""
        if self._has_ended:
            self.rewind()
        else:
            self._is_playing, self._seeks = not (self._is_playing or self._seeks), False
        self._alert = None

    def change_speed(self, by: int) -> None:
        """Move the speed by `by` entries of `SPEEDS`; a negative number makes it slower."""
        near = min(range(len(SPEEDS)), key=lambda i: abs(SPEEDS[i] - self.speed))
        self.speed = SPEEDS[max(0, min(near + by, len(SPEEDS) - 1))]

    def seek_alert(self) -> None:
        """Let `advance` go to where the next alert begins to fire, and stop there."""
        if not self._has_ended:
            self._is_playing, self._seeks, self._alert = False, True, None

    def advance(self, elapsed: float) -> None:
        """Play on after `elapsed` seconds of real time."""
        if self._seeks:
            self._seek()
        elif self._is_playing:
            target = min(self.at + elapsed * self.speed, self._reel.end)
            if self._play_to(target):
                self._reel.monitor.tick(target)
                self.at = target
        if not (self._has_more() or self._has_ended):
            self._stop_at(self._reel.finish())
            self._has_ended, self._is_playing, self._seeks = True, False, False

    def _has_more(self) -> bool:
        """Whether time or a piece is left before the end that the inputs had when it was loaded."""
        waits = self._next is not None and self._next.at <= self._reel.end
        return waits or self.at < self._reel.end

    def _play_to(self, target: float) -> bool:
        """Judge the pieces up to `target`; return False after `STEP_BYTES`, if some are left."""
        left = STEP_BYTES
        while self._next is not None and self._next.at <= target:
            if left <= 0:
                self.at = max(self.at, min(self._next.at, target))
                return False
            left -= self._next.size + _PIECE
            self._take()
        return True

    def _seek(self) -> None:
        """Play piece by piece and timer by timer, as fast as possible, until an alert fires."""
        monitor, left = self._reel.monitor, STEP_BYTES
        while left > 0 and self._seeks and self._has_more():
            due = monitor.due()
            soon = math.inf if due is None else due if due > self.at else self.at + _PULSE
            if self._next is not None and self._next.at <= soon:
                left -= self._next.size
                self.at = max(self.at, self._next.at)
                self._stop_at(self._take())
            else:
                self.at = min(soon, self._reel.end)
                self._stop_at(monitor.tick(self.at))
            left -= _PIECE

    def _take(self) -> list[Transition]:
        piece, self._next = self._next, next(self._pieces, None)
        return [] if piece is None else piece.play()

    def _stop_at(self, transitions: Iterable[Transition]) -> None:
        firing = [
            each
            for each in transitions
            if each.state == "firing" and not each.is_heartbeat and each.alert != RUN_FINISHED
        ]
        if self._seeks and firing and self.at > self._reel.start:
            self._seeks, self._alert = False, firing[0]


class Showing:
    """The `queries.Player` of a screen: plays `playback` in a thread from `start` until `close`."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rung = threading.Event()
        self._stopping = False
        self._picture_at = 0.0
        self._played = playback.played()
        self._snapshot = playback.snapshot()
        self.opened = playback.opened
        self._pool = ThreadPoolExecutor(1, "playback")
        self._ended: Future[None] = Future()

    def start(self) -> None:
        """Begin to play in a thread."""
        self._ended = self._pool.submit(self._run)

    def close(self) -> None:
        """End the thread. Raises the exception that ended the thread before this, if any."""
        self._stopping = True
        self._rung.set()
        self._pool.shutdown()
        self._ended.result()

    @property
    def has_failed(self) -> bool:
        """Whether the thread ended before `close`, which only an exception does."""
        return self._ended.done()

    def clock(self) -> float:
        """The playback's time, Unix seconds."""
        return self._played.at

    def snapshot(self) -> Snapshot:
        """The last snapshot."""
        return self._snapshot

    def played(self) -> Played:
        """The player's position, speed and state after the last turn."""
        return self._played

    def steer(self, command: PlayerCommand) -> None:
        """Queue a command for the thread."""
        playback = self._playback
        commands: dict[PlayerCommand, Callable[[], None]] = {
            "toggle": playback.toggle,
            "slower": lambda: playback.change_speed(-1),
            "faster": lambda: playback.change_speed(1),
            "seek": playback.seek_alert,
            "rewind": playback.rewind,
        }
        self._asked.put(commands[command])
        self._rung.set()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stopping:
            now = time.monotonic()
            self._turn(now - last, now)
            last = now
            if not self._playback.played().seeks:
                self._rung.wait(TURN_SECONDS)
            self._rung.clear()

    def _turn(self, elapsed: float, now: float) -> None:
        while not self._asked.empty():
            self._asked.get()()
            self._picture_at = 0.0
        self._playback.advance(elapsed)
        self._played = self._playback.played()
        changed = self._playback.version != self._snapshot.version or self._picture_at == 0.0
        if changed and now >= self._picture_at:
            self._snapshot = self._playback.snapshot()
            taken = time.monotonic() - now
            self._picture_at = now + max(
                PICTURE_SECONDS, 5 * taken
            )  # snapshots take a fifth of the time at most
