"""The program's own messages on stderr."""

import json
import logging

import pytest

from ldlm_monitor.service.cli.logs import LogFormatter, configure
from ldlm_monitor.service.config import Settings


def record(message: str) -> logging.LogRecord:
    made = logging.LogRecord("ldlm_monitor.logs.source", logging.WARNING, "", 0, message, (), None)
    made.created = 1769681700.0
    return made


def test_text_is_time_level_message() -> None:
    assert LogFormatter().format(record("a.log: truncated")) == (
        "2026-01-29T10:15:00Z warning: a.log: truncated"
    )


def test_a_file_name_cannot_forge_a_line_or_move_the_cursor() -> None:
    shown = LogFormatter().format(record("a\n2026 error: b\x1b[2J.log"))
    assert shown.endswith(r"a\n2026 error: b.log")


def test_json_is_one_object_a_line() -> None:
    assert json.loads(LogFormatter("json").format(record("a\nb"))) == {
        "time": "2026-01-29T10:15:00Z",
        "level": "warning",
        "logger": "ldlm_monitor.logs.source",
        "message": "a\nb",
    }


@pytest.mark.usefixtures("logger_as_it_was")
def test_messages_go_to_stderr_from_the_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    configure(Settings(log_level="warning", log_format="json"))
    logging.getLogger("ldlm_monitor.service.daemon.daemon").info("not this")
    logging.getLogger("ldlm_monitor.service.daemon.daemon").warning("but this")
    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["message"] for line in err.splitlines()] == ["but this"]
