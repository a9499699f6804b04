"""The program's own messages: to stderr, as text or as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TextIO

from ldlm_monitor.base.text.format import printable

if TYPE_CHECKING:
    from ldlm_monitor.service.config import Settings


def configure(settings: Settings, handler: logging.Handler | None = None) -> None:
    """Send messages of `ldlm_monitor.*` from `log_level` on to `handler` (None: to stderr)."""
    handler = handler or logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter(settings.log_format))
    logger = logging.getLogger("ldlm_monitor")
    logger.handlers = [handler]
    logger.setLevel(settings.log_level.upper())
    logger.propagate = False


class KeptMessages(logging.Handler):
    """The last messages, because the screen occupies the terminal.

    The screen shows the severe ones; at its end stderr gets all.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=200)  # for stderr at the end: a few screens to read
        self._news: deque[str] = deque(maxlen=20)  # for the screen: more than it shows at once

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message; from WARNING on the screen shows it at once."""
        self._lines.append(self.format(record))
        if record.levelno >= logging.WARNING:
            self._news.append(printable(_redacted(record.getMessage())))

    def take(self) -> list[str]:
        """Warnings and errors since the last call."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def flush_to(self, stream: TextIO) -> None:
        """Write all kept messages to `stream`."""
        for line in self._lines:
            stream.write(f"{line}\n")


def _redacted(text: str) -> str:
    """The text without secrets: an error's text may contain the value that caused the error."""
    from ldlm_monitor.base.text.sanitize import redact  # late: opening the screen does not need it

    return redact(text)


class LogFormatter(logging.Formatter):
    """A line for each message, and its traceback below: `2026-01-29T10:15:00Z warning: message`.

    As JSON an object: `time`, `level`, `logger`, `message`, and `exception` if any.
    """

    def __init__(self, form: Literal["text", "json"] = "text") -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; unprintable characters, as in file names, are escaped."""
        created = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        level, message = record.levelname.lower(), _redacted(record.getMessage())
        failed = _redacted(self.formatException(record.exc_info)) if record.exc_info else ""
        if self._form == "text":
            line = f"{created} {level}: {printable(message)}"
            return f"{line}\n{failed}" if failed else line
        shown = {"time": created, "level": level, "logger": record.name, "message": message}
        return json.dumps(shown | ({"exception": failed} if failed else {}))
