"""Plays a reel on a clock that can be stopped, hurried and sent on to the next alert.

`Playback` is deterministic and reads no clock: `advance` gets the time that passed. `Showing`
calls it in a thread, for a screen that must answer keys meanwhile.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable

from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.queries import Played, PlayerCommand
from ldlm_monitor.model.view import Snapshot
from ldlm_monitor.playback.reel import Piece, Reel
from ldlm_monitor.source.log_parts import LogReader

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 1e4, 1e5)
"""Seconds of the training in one second."""
WHOLE_SECONDS = 120.0
"""Unless a speed is asked for, all of it takes no longer than this."""
STEP_BYTES = 256 * 1024
"""What one `advance` judges, about; then the clock waits for the rest."""
_PIECE = 2048
"""A piece costs as much as these bytes, however small it is."""
_PULSE = 1.0
TURN_SECONDS = 0.05
PICTURE_SECONDS = 0.2
"""How often a new picture is taken; it costs a fifth of the time at most."""


class Playback:
    """`load` gives the reel, anew each time that it is begun again. `speed` None: by its length."""

    def __init__(self, load: Callable[[], Reel], speed: float | None = None) -> None:
        self._load = load
        self.rewind()
        length = self._reel.end - self._reel.start
        self.speed = speed or next((s for s in SPEEDS if length <= s * WHOLE_SECONDS), SPEEDS[-1])

    def rewind(self) -> None:
        """Begin again."""
        self._reel = self._load()
        self._pieces = iter(self._reel.pieces)
        self._next: Piece | None = next(self._pieces, None)
        self.at = self._reel.start
        self._is_playing, self._seeks, self._has_ended = True, False, False
        self._alert: Transition | None = None

    @property
    def version(self) -> int:
        """Of the snapshot that would be taken now."""
        return self._reel.monitor.version

    def snapshot(self) -> Snapshot:
        """The picture at this time."""
        return self._reel.monitor.snapshot()

    def opened(self, path: str) -> LogReader:
        """A log as far as it was played. Raises `OSError`."""
        return self._reel.opened(path)

    def played(self) -> Played:
        """How far it is."""
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
        """Stop, or go on; after the end, begin again."""
        if self._has_ended:
            self.rewind()
        else:
            self._is_playing, self._seeks = not (self._is_playing or self._seeks), False
        self._alert = None

    def change_speed(self, by: int) -> None:
        """So many notches faster, or slower."""
        near = min(range(len(SPEEDS)), key=lambda i: abs(SPEEDS[i] - self.speed))
        self.speed = SPEEDS[max(0, min(near + by, len(SPEEDS) - 1))]

    def seek_alert(self) -> None:
        """Go to where the next alert begins to fire, and stop there."""
        if not self._has_ended:
            self._is_playing, self._seeks, self._alert = False, True, None

    def advance(self, elapsed: float) -> None:
        """Let so many seconds go by, in front of the screen."""
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
        """Whether time or a piece is left; a recording that grows ends where it once did."""
        waits = self._next is not None and self._next.at <= self._reel.end
        return waits or self.at < self._reel.end

    def _play_to(self, target: float) -> bool:
        """RuleEngine what came up to then; False: not all of it yet."""
        left = STEP_BYTES
        while self._next is not None and self._next.at <= target:
            if left <= 0:
                self.at = max(self.at, min(self._next.at, target))
                return False
            left -= self._next.size + _PIECE
            self._take()
        return True

    def _seek(self) -> None:
        """As fast as can be, a moment after the other, until something fires."""
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
        """Where one sought the next alert, and this is it."""
        firing = [each for each in transitions if each.state == "firing" and not each.is_heartbeat]
        if self._seeks and firing and self.at > self._reel.start:
            self._seeks, self._alert = False, firing[0]


class Showing:
    """`queries.Player`, and the snapshot that a `LocalSource` shows. Close it at the end."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rung = threading.Event()
        self._stopping = False
        self._failure: BaseException | None = None
        self._picture_at = 0.0
        self._played = playback.played()
        self._snapshot = playback.snapshot()
        self.opened = playback.opened
        self._thread = threading.Thread(target=self._run, name="playback")

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. Raises what it met."""
        self._stopping = True
        self._rung.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    @property
    def has_failed(self) -> bool:
        """Whether the thread ended by itself."""
        return self._failure is not None

    def clock(self) -> float:
        """The time that is shown, Unix seconds."""
        return self._played.at

    def snapshot(self) -> Snapshot:
        """The last picture."""
        return self._snapshot

    def played(self) -> Played:
        """How far it is."""
        return self._played

    def steer(self, command: PlayerCommand) -> None:
        """Have the thread do it."""
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
        try:
            last = time.monotonic()
            while not self._stopping:
                now = time.monotonic()
                self._turn(now - last, now)
                last = now
                if not self._playback.played().seeks:
                    self._rung.wait(TURN_SECONDS)
                self._rung.clear()
        except BaseException as failure:  # noqa: BLE001 - raised again where main closes
            self._failure = failure

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
            self._picture_at = now + max(PICTURE_SECONDS, 5 * taken)
