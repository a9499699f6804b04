"""The program's own messages: to stderr, as text or as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ldlm_monitor.config import Settings


def configure(settings: Settings) -> None:
    """Sends what `ldlm_monitor.*` logs from `log_level` on to stderr; once a process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    logger = logging.getLogger("ldlm_monitor")
    logger.handlers = [handler]
    logger.setLevel(settings.log_level.upper())
    logger.propagate = False


class TextLines(logging.Formatter):
    """`2026-01-29T10:15:00Z warning: message`, one line each but for a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; what does not print, as in a file's name, is escaped."""
        message = printable(record.getMessage())
        line = f"{_time(record)} {record.levelname.lower()}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, and `exception` if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The object."""
        shown = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def printable(text: str) -> str:
    """`text`, in it what does not print escaped, as Python would write it."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
