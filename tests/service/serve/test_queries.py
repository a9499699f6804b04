"""GET /api/v1/series and /api/v1/logs on a real port, and what a client need not ask again."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from ldlm_monitor.base.snapshot import CurveView, Snapshot
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences
from ldlm_monitor.service.serve import Server, Site


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(
        b"[rank0]: step 1 loss 2.5\n10%\r20%\r\nERROR: token=hunter2hunter2hunter2\n"
        b"WARNING: slow\nlast"
    )
    return path


@pytest.fixture
def search(site) -> Callable[..., dict[str, Any]]:
    def find(text: str, **more: object) -> dict[str, Any]:
        (run,) = site.snapshot.runs
        query = urlencode({"path": run.files[0], "at": 0, "after": 1, "find": text, **more})
        return ask(site, f"/api/v1/logs?{query}")

    return find


@pytest.mark.parametrize("guess", ["hunter2", "h", "=hunter", "token=h"])
@pytest.mark.parametrize("where", [{}, {"backwards": "true", "at": 10_000}])
def test_a_search_finds_nothing_of_what_is_redacted(search, guess: str, where) -> None:
    """Else a secret could be guessed letter by letter."""
    answer = search(guess, **where)
    assert (answer["found"], answer["lines"]) == (None, [])


def test_a_search_passes_over_much_that_is_redacted(search, log: Path) -> None:
    log.write_bytes(b"token=hunter2hunter2hunter2\n" * 300 + b"a hunter2\n")
    first = search("hunter2")
    assert (first["found"], first["lines"]) == (None, [])
    (line,) = search("hunter2", at=first["end"])["lines"]  # a client goes on from there
    assert line["text"] == "a hunter2"
    log.write_bytes(b"token=hunter2hunter2hunter2\n" * 100 + b"a hunter2\n")
    (line,) = search("hunter2")["lines"]
    assert (line["text"], line["line"]) == ("a hunter2", 101)


@pytest.mark.parametrize("where", [{}, {"backwards": "true", "at": 10_000}])
def test_a_search_finds_what_is_shown_beside_it(search, where) -> None:
    (line,) = search("error: TOKEN=", **where)["lines"]
    assert line["text"] == "ERROR: token=[redacted]"


@pytest.fixture
def site(running, tmp_path: Path, log: Path, make_snapshot: Callable[..., Snapshot]):
    """A server whose run has one file and one curve, in the place of the plain one."""
    plain = make_snapshot()
    run = plain.runs[0].model_copy(update={"files": (str(log),)})
    steps = range(100)
    losses = [float(step) for step in steps]
    curve = CurveView(
        steps=steps, times=losses, lows=losses, highs=losses, means=losses,
        nonfinite=[0] * 99 + [2], lines=steps, offsets=steps, origins=[0] * 100, files=("a.log",),
    )  # fmt: skip
    snapshot = plain.model_copy(update={"runs": (run,), "curves": {"r1": {"loss": curve}}})
    running.snapshot = snapshot
    silences = Silences(tmp_path / "silences.sqlite")
    server = Server(
        "127.0.0.1",
        0,
        Site(
            snapshot=lambda: running.snapshot,
            ready=lambda: True,
            redact=redact,
            source=LocalSource(lambda: running.snapshot, silences, "a.log"),
        ),
    )
    before, running.port = running.port, server.port
    server.start()
    yield running
    running.port = before
    server.stop()
    silences.close()


def ask(site, path: str) -> dict[str, Any]:
    answer = site.ask(path)
    assert answer.status == 200, answer.body
    return dict(json.loads(answer.body))


def test_a_curve_comes_in_as_many_points_as_are_asked_for(site) -> None:
    found = ask(site, "/api/v1/series?run=r1&quantity=loss&points=10&start=50&end=99")
    assert found["steps"] == [50, 55, 60, 65, 70, 75, 80, 85, 90, 95]
    assert found["highs"] == [54.0, 59.0, 64.0, 69.0, 74.0, 79.0, 84.0, 89.0, 94.0, 99.0]
    assert found["nonfinite"] == [0] * 9 + [2]


def test_a_log_comes_by_line_by_byte_and_from_its_end(site, log: Path) -> None:
    by_line = ask(site, f"/api/v1/logs?path={log}&at_line=3&after=2")
    lines = by_line["lines"]
    assert [(line["line"], line["level"]) for line in lines] == [(3, "error"), (4, "warning")]
    assert "hunter2" not in lines[0]["text"]
    by_end = ask(site, f"/api/v1/logs?path={log}&before=2")
    assert by_end["end"] == by_end["size"] == log.stat().st_size
    (_, last) = by_end["lines"]
    assert (last["text"], last["line"], last["is_open"]) == ("last", 5, True)


def test_bars_that_were_overwritten_come_only_on_request(site, log: Path) -> None:
    few = ask(site, f"/api/v1/logs?path={log}&before=9")["lines"]
    all_of_them = ask(site, f"/api/v1/logs?path={log}&before=9&bars=1")["lines"]
    assert [line["text"] for line in few][:3] == ["[rank0]: step 1 loss 2.5", "20%", few[2]["text"]]
    assert [line["text"] for line in all_of_them][1:3] == ["10%", "20%"]


def test_a_log_is_filtered_and_searched(site, log: Path) -> None:
    errors = ask(site, f"/api/v1/logs?path={log}&before=9&level=warning")["lines"]
    assert [line["line"] for line in errors] == [3, 4]
    ranked = ask(site, f"/api/v1/logs?path={log}&before=9&rank=0")["lines"]
    assert [line["line"] for line in ranked] == [1]
    found = ask(site, f"/api/v1/logs?path={log}&at=0&after=1&find=SLOW")
    assert [line["text"] for line in found["lines"]] == ["WARNING: slow"]


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/api/v1/logs?path=/etc/passwd", 404, "not followed"),
        ("/api/v1/logs", 400, "path"),
        ("/api/v1/logs?path=x&at=-1", 400, "at"),
        ("/api/v1/logs?path=x&colour=red", 400, "colour"),
        ("/api/v1/logs?path=x&level=loud", 400, "level"),
        ("/api/v1/series?run=r1", 400, "quantity"),
        ("/api/v1/series?run=r1&quantity=nothing", 404, "no curve"),
    ],
)
def test_what_cannot_be_answered_is_said(site, path: str, status: int, word: str) -> None:
    answer = site.ask(path)
    assert answer.status == status
    assert word in answer.body.decode()


def test_what_a_client_has_already_is_not_sent_again(site) -> None:
    first = site.ask("/api/v1/runs")
    tag = first.headers["ETag"]
    again = site.ask("/api/v1/runs", headers={"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    site.snapshot = site.snapshot.model_copy(update={"version": 6})
    assert site.ask("/api/v1/runs", headers={"If-None-Match": tag}).status == 200


def test_a_record_has_its_own_time(site, log: Path) -> None:
    log.write_bytes(
        b'{"type": "step", "step": 1, "time": 1795285958.87, "loss": 2.5}\n'
        b"[2026-01-29T10:15:00Z] zoned\n2026-01-29 10:15:00,123 INFO naive\nnone\n"
        b"2026-99-29 10:15:00 no date\n"
    )
    lines = ask(site, f"/api/v1/logs?path={log}&before=9")["lines"]
    naive = datetime.fromisoformat("2026-01-29T10:15:00").astimezone().timestamp()
    times = [line["time"] for line in lines]
    assert (times[0], times[2:]) == (1795285958.87, [naive + 0.123, None, None])


def test_events_that_stayed_are_not_sent_again(site) -> None:
    tag = site.ask("/api/v1/events").headers["ETag"]
    site.snapshot = site.snapshot.model_copy(update={"version": 7})
    assert site.ask("/api/v1/events", headers={"If-None-Match": tag}).status == 304
    events = (*site.snapshot.events, site.snapshot.events[0])
    site.snapshot = site.snapshot.model_copy(update={"events": events})
    assert site.ask("/api/v1/events", headers={"If-None-Match": tag}).status == 200
