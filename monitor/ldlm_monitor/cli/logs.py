"""The program's own messages: to stderr, as text or as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from ldlm_monitor.text.sanitize import printable

if TYPE_CHECKING:
    from ldlm_monitor.config import Settings


def configure(settings: Settings) -> None:
    """Sends what `ldlm_monitor.*` logs from `log_level` on to stderr; once a process."""
    _install(logging.StreamHandler(sys.stderr), settings)


def keep(settings: Settings) -> KeptMessages:
    """Keeps what would go to stderr: a screen has the terminal."""
    kept = KeptMessages()
    _install(kept, settings)
    return kept


class KeptMessages(logging.Handler):
    """The last messages, for the screen while it is there and for stderr at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=200)
        self._news: deque[str] = deque(maxlen=20)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one; news are those that a person should see at once."""
        self._lines.append(self.format(record))
        if record.levelno >= logging.WARNING:
            self._news.append(printable(_redacted(record.getMessage())))

    def take(self) -> list[str]:
        """Warnings and errors since the last call."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def flush_to(self, stream: TextIO) -> None:
        """Write what was kept."""
        for line in self._lines:
            stream.write(f"{line}\n")


def _install(handler: logging.Handler, settings: Settings) -> None:
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    logger = logging.getLogger("ldlm_monitor")
    logger.handlers = [handler]
    logger.setLevel(settings.log_level.upper())
    logger.propagate = False


def _redacted(text: str) -> str:
    """An error's text, as in a traceback, may hold what it failed at."""
    from ldlm_monitor.text.sanitize import redact

    return redact(text)


class TextLines(logging.Formatter):
    """`2026-01-29T10:15:00Z warning: message`, one line each but for a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; what does not print, as in a file's name, is escaped."""
        message = printable(_redacted(record.getMessage()))
        line = f"{_time(record)} {record.levelname.lower()}: {message}"
        if record.exc_info:
            line += f"\n{_redacted(self.formatException(record.exc_info))}"
        return line


class JsonLines(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, and `exception` if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The object."""
        shown = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _redacted(record.getMessage()),
        }
        if record.exc_info:
            shown["exception"] = _redacted(self.formatException(record.exc_info))
        return json.dumps(shown)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
