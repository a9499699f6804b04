"""What the tests of report get, also those that take the whole."""

from tests.finished.report.conftest import (
    make_alert,
    make_event,
    make_incident,
    make_run,
    make_snapshot,
    make_statistics,
)

__all__ = [
    "make_alert",
    "make_event",
    "make_incident",
    "make_run",
    "make_snapshot",
    "make_statistics",
]
