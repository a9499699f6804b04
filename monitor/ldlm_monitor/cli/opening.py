"""The screen opens at once, while the daemon starts in a thread.

Importing the daemon, compiling its patterns and reading the logs take seconds.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.model.view import AlertView, CurveView, MonitorView, Snapshot

if TYPE_CHECKING:
    from ldlm_monitor.daemon.signals import Handler
    from ldlm_monitor.model.queries import LogQuery, LogSlice, Source

NOTHING = Snapshot(
    version=-2,
    at=0.0,
    runs=(),
    alerts=(),
    events=(),
    monitor=MonitorView.fresh(),
    points=(),
)


class Opening:
    """`queries.Source` of a daemon that is starting; then that daemon's source.

    `run` runs the daemon, which passes its source to `_show` and ends when the screen is closed.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Callable[..., int], Callable[[Handler], None]], int],
    ) -> None:
        self.name = name
        self.problem = ""
        self._run = run
        self._source: Source | None = None
        self._thread = threading.Thread(target=self._work, name="daemon")
        self._closed = threading.Event()
        self._daemon_ended: Callable[[], bool] = lambda: False
        self._has_ended = False
        self._code = 0
        self._failure: BaseException | None = None
        self._handler: Handler | None = None

    def start(self) -> None:
        """Start the daemon."""
        if not self._closed.is_set():
            self._thread.start()

    def heed_signals(self) -> None:
        """Pass signals to the daemon; until it has started they close the screen."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._heed)

    def ended(self) -> bool:
        """Whether the screen should close."""
        return self._has_ended or self._daemon_ended()

    def close(self, code: int) -> int:
        """End the daemon after the screen was closed with this exit code; returns the daemon's.

        Raises the exception that ended the daemon, if any.
        """
        self._code = code
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._code

    def reading(self) -> float | None:
        """The share of the files' first content that has been read, 0 to 1."""
        return 0.0 if self._source is None else self._source.reading()

    def snapshot(self) -> Snapshot:
        """The last snapshot."""
        return NOTHING if self._source is None else self._source.snapshot()

    def series(
        self, run: str, quantity: str, start: int | None, end: int | None, points: int
    ) -> CurveView | None:
        """A curve between two steps."""
        return self._there().series(run, quantity, start, end, points)

    def log(self, query: LogQuery) -> LogSlice:
        """Records of a followed file."""
        return self._there().log(query)

    def held_back(self) -> dict[str, list[dict[str, Any]]]:
        """Silences and acknowledgements."""
        return {} if self._source is None else self._source.held_back()

    def acknowledge(self, alert: AlertView, by: str, comment: str) -> None:
        """Acknowledge an alert."""
        self._there().acknowledge(alert, by, comment)

    def silence(self, alert: AlertView, seconds: float, by: str, comment: str) -> None:
        """Silence alerts with these labels."""
        self._there().silence(alert, seconds, by, comment)

    def _there(self) -> Source:
        if self._source is None:
            raise UsageError("the monitor is still starting", remedy="wait a moment")
        return self._source

    def _work(self) -> None:
        try:
            self._code = self._run(self._show, self._take_handler)
        except BaseException as failure:  # noqa: BLE001 - raised again by `close`
            self._failure = failure
        finally:
            self._has_ended = True

    def _take_handler(self, handler: Handler) -> None:
        self._handler = handler

    def _show(self, source: Source, url: str, ended: Callable[[], bool]) -> int:
        """Use the source of the daemon, until the screen is closed."""
        self.name, self._source, self._daemon_ended = source.name, source, ended
        self._closed.wait()
        return self._code

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if self._handler is not None:
            self._handler(number, frame)
        else:
            self._has_ended = True
