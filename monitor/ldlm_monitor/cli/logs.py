"""The program's own messages: to stderr, as text or as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TextIO

from ldlm_monitor.text.format import printable

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
    handler.setFormatter(Lines(settings.log_format))
    logger = logging.getLogger("ldlm_monitor")
    logger.handlers = [handler]
    logger.setLevel(settings.log_level.upper())
    logger.propagate = False


def _redacted(text: str) -> str:
    """An error's text, as in a traceback, may hold what it failed at."""
    from ldlm_monitor.text.sanitize import redact  # a screen opens without it

    return redact(text)


class Lines(logging.Formatter):
    """One line each, but for a traceback below it: `2026-01-29T10:15:00Z warning: message`.

    As JSON an object: `time`, `level`, `logger`, `message`, and `exception` if any.
    """

    def __init__(self, form: Literal["text", "json"] = "text") -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """The line; what does not print, as in a file's name, is escaped."""
        created = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        level, message = record.levelname.lower(), _redacted(record.getMessage())
        failed = _redacted(self.formatException(record.exc_info)) if record.exc_info else ""
        if self._form == "text":
            line = f"{created} {level}: {printable(message)}"
            return f"{line}\n{failed}" if failed else line
        shown = {"time": created, "level": level, "logger": record.name, "message": message}
        return json.dumps(shown | ({"exception": failed} if failed else {}))
