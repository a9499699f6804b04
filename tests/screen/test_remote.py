"""A daemon elsewhere, as the screen asks it: what is sent, read, kept, and said of a bad answer."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ldlm_monitor.base.errors import InputError, RemoteError, UsageError
from ldlm_monitor.base.queries import LogQuery
from ldlm_monitor.screen import remote as remote_module
from ldlm_monitor.screen.remote import RemoteSource
from tests.screen.screens import Shown

PARTS = ("alerts", "incidents", "events")


class Daemon(ThreadingHTTPServer):
    """Answers by path; each answer is (status, headers, body). `asked`: what came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []

    def says(self, path: str, document: object, status: int = 200, **headers: str) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.answers[path] = status, headers, body


class Handler(BaseHTTPRequestHandler):
    server: Daemon

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        path = self.path.partition("?")[0]
        status, headers, answer = self.server.answers.get(path, (404, {}, b"no such page"))
        if headers.get("ETag") and self.headers.get("If-None-Match") == headers["ETag"]:
            status, answer = 304, b""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815 the name that http.server looks for

    def log_message(self, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def daemon(shown: Shown) -> Iterator[Daemon]:
    made = Daemon()
    publish(made, shown)
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def publish(daemon: Daemon, shown: Shown, tag: str = '"1"') -> None:
    whole = json.loads(shown.snapshot.model_dump_json(exclude={"points"}))
    parts: dict[str, Any] = {name: {name: whole.pop(name)} for name in PARTS}
    for name, part in {"runs": whole, **parts}.items():
        daemon.says(f"/api/v1/{name}", part, ETag=tag)


def source(daemon: Daemon, **more: Any) -> RemoteSource:
    return RemoteSource(f"http://127.0.0.1:{daemon.server_port}", **more)


def test_its_snapshot_is_the_daemons_and_asked_for_by_tag(daemon: Daemon, shown: Shown) -> None:
    remote = source(daemon, authorization="Bearer abc")
    remote._update()
    left_out = {"points", "curves"}
    first = remote.snapshot()
    assert first.model_dump_json(exclude=left_out) == shown.snapshot.model_dump_json(
        exclude=left_out
    )
    assert [path for _, path, _, _ in daemon.asked] == [
        f"/api/v1/{name}" for name in ("runs", *PARTS)
    ]
    assert all(headers["Authorization"] == "Bearer abc" for _, _, headers, _ in daemon.asked)
    assert not any("If-None-Match" in headers for _, _, headers, _ in daemon.asked)
    daemon.asked.clear()
    remote._update()
    assert remote.snapshot() is first
    assert [headers["If-None-Match"] for _, _, headers, _ in daemon.asked] == ['"1"'] * 4
    shown.snapshot = shown.snapshot.model_copy(update={"version": 10**6})
    publish(daemon, shown, '"2"')
    remote._update()
    assert remote.snapshot().version == 10**6
    assert remote.name == f"127.0.0.1:{daemon.server_port}"


def test_it_polls_until_it_is_stopped_and_says_why_it_is_old(
    daemon: Daemon, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "POLL_SECONDS", 0.01)
    remote = source(daemon)
    remote.start()
    good = daemon.answers["/api/v1/alerts"]
    try:
        daemon.says("/api/v1/alerts", b"<html>")
        until(lambda: remote.problem == "does not answer as ldlm-monitor does")
        daemon.answers["/api/v1/alerts"] = good
        until(lambda: remote.problem == "")
    finally:
        remote.stop()
    asked = len(daemon.asked)
    threading.Event().wait(0.05)
    assert len(daemon.asked) == asked


def until(holds: Any) -> None:
    for _ in range(2000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came to be so")


def test_a_curve_is_asked_for_with_what_is_given_alone(daemon: Daemon, shown: Shown) -> None:
    remote, (run, *_) = source(daemon), shown.snapshot.runs
    curve = shown.source.series(run.name, "loss", None, None, 50)
    daemon.says("/api/v1/series", json.loads(CURVES.dump_json(curve)))
    found = remote.series(run.name, "loss", 0, None, 50)
    assert found is not None
    assert list(found.means) == list(curve.means)  # type: ignore[union-attr]
    assert daemon.asked[-1][1] == f"/api/v1/series?run={run.name}&quantity=loss&start=0&points=50"
    daemon.says("/api/v1/series", {"no": "curve"})
    with pytest.raises(RemoteError, match="does not answer as ldlm-monitor does"):
        remote.series(run.name, "loss", None, None, 50)
    del daemon.answers["/api/v1/series"]
    assert remote.series(run.name, "nothing", None, None, 50) is None


CURVES = remote_module._CURVES


def test_records_are_asked_for_with_flags_as_numbers(daemon: Daemon, shown: Shown) -> None:
    (run, *_) = shown.snapshot.runs
    query = LogQuery(path=run.files[0], before=20, find="loss", backwards=True)
    answer = shown.source.log(LogQuery(path=run.files[0], before=20))
    daemon.says("/api/v1/logs", json.loads(remote_module._LOGS.dump_json(answer)))
    assert source(daemon).log(query) == answer
    asked = daemon.asked[-1][1]
    assert "&backwards=1" in asked
    assert "&bars=0" in asked
    assert "at=" not in asked
    del daemon.answers["/api/v1/logs"]
    with pytest.raises(InputError, match="no such page"):
        source(daemon).log(query)


def test_queries_of_a_moment_and_of_a_range_go_to_their_own_pages(daemon: Daemon) -> None:
    daemon.says("/prometheus/api/v1/query", {"status": "success", "data": {"a": 1}})
    daemon.says("/prometheus/api/v1/query_range", {"data": {"b": 2}, "warnings": ["w"]})
    remote = source(daemon)
    assert remote.query({"query": "up"}) == {"data": {"a": 1}}
    assert remote.query({"query": "up", "start": "1"}) == {"data": {"b": 2}, "warnings": ["w"]}


def test_what_holds_alerts_back_is_read_and_sent(daemon: Daemon) -> None:
    daemon.says("/api/v1/silences", {"silences": [{"id": 1}], "other": 3})
    daemon.says("/api/v1/acks", {})
    remote = source(daemon)
    assert remote.held_back() == {"silences": [{"id": 1}], "acks": []}
    remote.send("acks", {"alert": "A"})
    method, path, _, body = daemon.asked[-1]
    assert (method, path, json.loads(body)) == ("POST", "/api/v1/acks", {"alert": "A"})


@pytest.mark.parametrize(
    ("status", "headers", "body", "said"),
    [
        (401, {}, b"", "asks for credentials"),
        (302, {"Location": "http://127.0.0.1:1/"}, b"", "answers 302, a redirect, which is not"),
        (399, {}, b"", "answers 399"),
        (500, {}, b"broken", "does not answer as ldlm-monitor does"),
        (200, {}, b"[1]", "does not answer as ldlm-monitor does"),
        (200, {}, b"{", "does not answer as ldlm-monitor does"),
        (200, {}, b"[" * 100_000, "does not answer as ldlm-monitor does"),
        (200, {}, b'{"runs": 7}', "has another version"),
        (200, {"Content-Length": "5"}, b"", "does not answer"),
        (500, {"Transfer-Encoding": "chunked"}, b"no size\r\n", "does not answer"),
    ],
)
def test_a_bad_answer_is_named_with_what_to_do(
    daemon: Daemon, status: int, headers: dict[str, str], body: bytes, said: str
) -> None:
    daemon.says("/api/v1/runs", body, status, **headers)
    with pytest.raises(RemoteError, match=said):
        source(daemon).start()


def test_an_answer_that_was_cut_is_asked_for_again(daemon: Daemon, shown: Shown) -> None:
    remote = source(daemon)
    remote._update()
    shown.snapshot = shown.snapshot.model_copy(update={"version": 10**6})
    publish(daemon, shown, '"2"')
    status, headers, body = whole = daemon.answers["/api/v1/runs"]
    length = {"Content-Length": str(len(body))}
    daemon.answers["/api/v1/runs"] = status, headers | length, body[: len(body) // 2]
    with pytest.raises(RemoteError):
        remote._update()
    daemon.answers["/api/v1/runs"] = whole
    remote._update()
    assert remote.snapshot().version == 10**6


def test_credentials_that_are_refused_are_named(daemon: Daemon) -> None:
    daemon.says("/api/v1/runs", b"", 401)
    with pytest.raises(RemoteError, match="refuses these credentials"):
        source(daemon, authorization="Bearer abc").start()


def test_more_values_than_a_fleet_has_are_refused(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"runs": [1] * 50}).encode()
    for bound, is_read in ((52, True), (51, False)):
        monkeypatch.setattr(remote_module, "MAX_VALUES", bound)
        daemon.says("/api/v1/other", body)
        remote = source(daemon)
        if is_read:
            assert remote._get("/api/v1/other", {}) == {"runs": [1] * 50}
        else:
            with pytest.raises(RemoteError):
                remote._get("/api/v1/other", {})


def test_a_daemon_of_another_version_is_shown(daemon: Daemon) -> None:
    """One of before reports its reading as an object; one that is newer may say more."""
    status, headers, body = daemon.answers["/api/v1/runs"]
    other = json.loads(body)
    del other["judged_to"]
    other |= {"reading": {"share": 0.5, "judged_to": 60.0}, "of_another_version": 1}
    daemon.answers["/api/v1/runs"] = status, headers, json.dumps(other).encode()
    remote = source(daemon)
    remote._update()
    assert (remote.snapshot().reading, remote.snapshot().judged_to) == (0.5, 60.0)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("file:///etc/passwd", "is no URL"), ("http://[::1", "is no URL"),
        ("http://127.0.0.1:99999", "is no URL"), ("http://127.0.0.1:0", "is no URL"),
        ("http://", "is no URL"), ("http://me:secret@127.0.0.1", "a user name or a password"),
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_daemon_is_refused(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RemoteSource(url)


def test_credentials_leave_this_host_encrypted_alone() -> None:
    with pytest.raises(UsageError, match="in the clear"):
        RemoteSource("http://gpu01:9847", authorization="Bearer abc")
    for url in ("https://gpu01:9847", "http://localhost:9847", "127.0.0.1:9847"):
        RemoteSource(url, authorization="Bearer abc")
    assert RemoteSource("gpu01:9847").name == "gpu01:9847"


def test_nobody_there_is_said() -> None:
    with pytest.raises(RemoteError, match=r"does not answer \(.*refused"):
        RemoteSource("127.0.0.1:9").start()
