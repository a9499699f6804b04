"""A playback in a thread of its own, for a screen that must answer keys meanwhile."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from ldlm_monitor.model.queries import Played, PlayerCommand
from ldlm_monitor.model.view import Snapshot
from ldlm_monitor.playback.engine import Playback

TURN_SECONDS = 0.05
PICTURE_SECONDS = 0.2
"""How often a new picture is taken; it costs a fifth of the time at most."""


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
