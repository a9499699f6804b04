"""The start of the daemon in a thread, so that its screen opens at once.

Importing the daemon, compiling its patterns and reading the logs take seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.snapshot import MonitorView, Snapshot
from ldlm_monitor.service.daemon.stop_signals import SEND_SECONDS, Signals

if TYPE_CHECKING:
    from ldlm_monitor.base.queries import Source
    from ldlm_monitor.service.config import Settings

NOTHING = Snapshot(  # the version differs from every daemon's, so its first snapshot is drawn
    version=-2,
    at=0.0,
    runs=(),
    alerts=(),
    events=(),
    monitor=MonitorView.fresh(),
    reading=0.0,
    points=(),
)

_UNTIL_OPEN: dict[str, Callable[[], object]] = {
    "snapshot": lambda: NOTHING,
    "held_back": dict,
}
"""Methods that a screen calls without a key press, with their results until the daemon runs."""


class Opening:
    """A `queries.Source` that is empty until the daemon has started, and then the daemon's.

    If the daemon or its screen ends, so does the other. `load` reads the settings for a reload.
    `send_seconds` and `outlasts` are those of `Signals`.
    """

    problem = ""

    def __init__(
        self,
        found: Settings,
        load: Callable[[], Settings],
        *,
        has_screen: bool = False,
        send_seconds: float = SEND_SECONDS,
        outlasts: bool = False,
    ) -> None:
        self.name = found.files[0]
        self._found = found
        self._load = load
        self._signals = Signals(has_screen=has_screen, send_seconds=send_seconds, outlasts=outlasts)
        self._source: Source | None = None
        self._url = ""
        self._is_open = threading.Event()
        self._last: Snapshot | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="pump")

    def start(self) -> None:
        """Start the daemon."""
        if not self._signals.stop:
            self._thread.start()

    def url(self) -> str:
        """The daemon's URL. Blocks until it serves; "" if it ended before."""
        self._is_open.wait()
        return self._url

    def ended(self) -> bool:
        """Whether the screen should close."""
        return self._signals.stop or self._last is not None or self._failure is not None

    def close(self, code: int, *, send_seconds: float | None = None) -> tuple[int, Snapshot | None]:
        """End the daemon after the screen was closed with the exit code `code`.

        `send_seconds` replaces the constructor's. Returns the process's exit code and, if a person
        ended the monitor, the last snapshot. Raises the exception that ended the daemon, if any.
        """
        by_a_person = not self.ended()
        if send_seconds is not None:
            self._signals.send_seconds = send_seconds
        self._signals.end()
        if self._thread.ident is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        by_a_person = by_a_person or bool(self._signals.exit_code)
        return self._signals.exit_code or code, self._last if by_a_person else None

    def __getattr__(self, name: str) -> Any:
        """A method of the daemon's source; before, one of `_UNTIL_OPEN`, or raises UsageError."""
        if self._source is not None:
            return getattr(self._source, name)
        if name in _UNTIL_OPEN:
            return _UNTIL_OPEN[name]
        raise UsageError("the monitor is still starting", remedy="wait a moment")

    def _work(self) -> None:
        try:
            from ldlm_monitor.service.cli.health_report import run_page
            from ldlm_monitor.service.daemon import daemon

            self._last = daemon.run(
                self._found, self._load, self._signals, self._opened, page=run_page
            )
        except BaseException as failure:  # noqa: BLE001 - raised again by `close`
            self._failure = failure
        finally:
            self._is_open.set()

    def _opened(self, source: Source, url: str) -> None:
        self.name, self._source, self._url = source.name, source, url
        self._is_open.set()
