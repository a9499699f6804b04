"""What shows that a run is over: a signal, an exit code, words, a full bar, an exception."""

import pytest

from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.judge.run.endings import end_by, end_of_gone


def event(kind: str, **fields: object) -> Event:
    message, path = str(fields.pop("message", kind)), str(fields.pop("path", "a.log"))
    return Event(
        kind=kind, severity="error", run="r", message=message, fields={"role": "root", **fields},
        position=Position(path, 3, 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (event("elastic_worker_failed", exitcode=-9), "signal"),
        (event("elastic_worker_failed", exitcode=0), "exit_code"),
        (event("elastic_worker_failed", exitcode=1), "exit_code"),
        (event("elastic_worker_failed", root_exitcode=-6), "signal"),
        (event("elastic_worker_failed", exit_code=3), "exit_code"),
        (event("elastic_worker_failed", exitcode=1, signal="SIGTERM"), "signal"),
        (event("own", meaning={"ends": "killed"}), "signal"),
        (event("own", meaning={"ends": "crashed"}), "exception"),
        (event("own", meaning={"ends": "finished"}), "words"),
        (event("own", meaning={"ends": "crashed", "is": "exit report"}), "exit_code"),
    ],
)
def test_an_end_has_the_reason_that_its_line_shows(found: Event, reason: str) -> None:
    assert (end_by(found).reason, end_by(found).at) == (reason, found.position)


def test_an_end_without_a_file_cites_no_line() -> None:
    found = event("elastic_worker_failed", exitcode=1, path="")
    assert end_by(found).at is None


@pytest.mark.parametrize(
    ("statuses", "out_of_memory", "reason"),
    [
        ([], False, "writer_gone"), ([None], False, "writer_gone"), ([0], False, "exit_code"),
        ([1 << 8], False, "exit_code"), ([0, 9], False, "signal"), ([], True, "signal"),
        ([0x80], False, "exit_code"),
    ],
)  # fmt: skip
def test_processes_that_are_gone_ended_by_a_signal_or_a_code_or_unseen(
    statuses: list[int | None], out_of_memory: bool, reason: str
) -> None:
    gone = [{"pid": 1, "status": status} for status in statuses]
    assert end_of_gone(gone, out_of_memory=out_of_memory).reason == reason  # type: ignore[arg-type]
