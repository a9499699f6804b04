"""`attach`: the same screen over a real server on a real port."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ldlm_monitor.base.errors import RemoteError, UsageError
from ldlm_monitor.base.queries import LogQuery
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.screen.remote import RemoteSource
from ldlm_monitor.service.serve import Server, Site
from tests.screen.screens import NOW, Screen, Shown, on_screen


@pytest.fixture
def server(shown: Shown) -> Iterator[Server]:
    server = Server(
        "127.0.0.1",
        0,
        Site(
            snapshot=lambda: shown.snapshot,
            ready=lambda: True,
            redact=redact,
            silencing=shown.silences,
            takes_commands=True,
            source=shown.source,
        ),
    )
    server.start()
    yield server
    server.stop()


@pytest.fixture
def remote(server: Server) -> Iterator[RemoteSource]:
    remote = RemoteSource(f"http://127.0.0.1:{server.port}")
    remote.start()
    yield remote
    remote.stop()


def test_the_pictures_are_the_same(shown: Shown, remote: RemoteSource) -> None:
    here, there = shown.snapshot, remote.snapshot()
    left_out = {"points", "curves"}
    assert there.model_dump_json(exclude=left_out) == here.model_dump_json(exclude=left_out)


def test_curves_and_logs_are_the_same(shown: Shown, remote: RemoteSource) -> None:
    (run, *_) = shown.snapshot.runs
    one, other = (each.series(run.name, "loss", 10, 90, 50) for each in (shown.source, remote))
    assert one is not None
    assert other is not None
    assert list(one.lows) == list(other.lows)
    assert one.position(3) == other.position(3)
    assert remote.series(run.name, "nothing", None, None, 10) is None
    query = LogQuery(path=run.files[0], before=20)
    assert remote.log(query) == shown.source.log(query)


def test_a_picture_that_did_not_change_is_the_same_object(
    shown: Shown, remote: RemoteSource
) -> None:
    before = remote.snapshot()
    remote._update()
    assert remote.snapshot() is before
    shown.snapshot = shown.snapshot.model_copy(update={"version": 10**6})
    remote._update()
    assert remote.snapshot().version == 10**6


def test_an_attached_screen_shows_jumps_and_commands(shown: Shown, remote: RemoteSource) -> None:
    async def steps(screen: Screen) -> None:
        await screen.until("3 runs", "GO_ON (probable)", "127.0.0.1")
        await screen.press("3", "a")
        await screen.until("acknowledged by")
        await screen.press("s")
        await screen.until("4 hours")
        await screen.press("enter")
        await screen.press("enter")
        await screen.until("Traceback (most recent call last)")

    on_screen(remote, steps, size=(140, 36), clock=time.time)  # the daemon's
    kept = shown.silences.listing(NOW)
    assert [len(kept["acks"]), len(kept["silences"])] == [1, 1]


def test_a_daemon_that_is_gone_is_said_and_the_last_picture_stays(
    server: Server, remote: RemoteSource
) -> None:
    before = remote.snapshot()
    server.stop()
    with pytest.raises(RemoteError, match="does not answer"):
        remote._update()
    assert remote.snapshot() is before


def test_what_is_no_daemon_is_refused(server: Server) -> None:
    with pytest.raises(UsageError, match="is no URL"):
        RemoteSource("file:///etc/passwd")
    nobody = RemoteSource("127.0.0.1:9")
    with pytest.raises(RemoteError, match="does not answer"):
        nobody.start()
    for url in ("http://[::1", "http://127.0.0.1:99999"):
        with pytest.raises(UsageError, match="is no URL"):
            RemoteSource(url)


class Front(ThreadingHTTPServer):
    """Passes requests on to `port`; the next answer is what `spoil` makes of head and body."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.behind = port
        self.spoil: Callable[[bytes, bytes], bytes] | None = None


class Passing(BaseHTTPRequestHandler):
    server: Front

    def do_GET(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        known = self.headers.get("If-None-Match")
        connection.request("GET", self.path, headers={"If-None-Match": known} if known else {})
        answer = connection.getresponse()
        body = answer.read()
        fields = "".join(f"{name}: {value}\r\n" for name, value in answer.getheaders())
        head = f"HTTP/1.0 {answer.status} x\r\n{fields}\r\n".encode()
        spoil, self.server.spoil = self.server.spoil, None
        self.wfile.write(spoil(head, body) if spoil else head + body)
        connection.close()

    def log_message(self, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def front(server: Server) -> Iterator[Front]:
    front = Front(server.port)
    thread = threading.Thread(target=front.serve_forever, args=(0.05,))
    thread.start()
    yield front
    front.shutdown()
    thread.join()
    front.server_close()


def test_an_answer_that_was_cut_is_asked_for_again(shown: Shown, front: Front) -> None:
    remote = RemoteSource(f"http://127.0.0.1:{front.server_port}")
    remote._update()
    runs = shown.snapshot.runs[:1]
    shown.snapshot = shown.snapshot.model_copy(update={"version": 10**6, "runs": runs})
    front.spoil = lambda head, body: head + body[: len(body) // 2]
    with pytest.raises(RemoteError):
        remote._update()
    remote._update()
    assert [run.name for run in remote.snapshot().runs] == [run.name for run in runs]


def test_a_daemon_of_another_version_is_shown(front: Front) -> None:
    def of_before(head: bytes, body: bytes) -> bytes:
        runs = json.loads(body)
        del runs["judged_to"]
        runs |= {"reading": {"share": 0.5, "judged_to": 60.0}, "of_another_version": 1}
        return b"HTTP/1.1 200 x\r\n\r\n" + json.dumps(runs).encode()

    remote = RemoteSource(f"http://127.0.0.1:{front.server_port}")
    front.spoil = of_before
    remote._update()
    assert (remote.snapshot().reading, remote.snapshot().judged_to) == (0.5, 60.0)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 x\r\n\r\n" + b"[" * 200_000, id="nested too deep"),
        pytest.param(
            b"HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n", id="no chunk"
        ),
    ],
)
def test_any_bad_answer_is_an_error_that_polling_survives(front: Front, answer: bytes) -> None:
    remote = RemoteSource(f"http://127.0.0.1:{front.server_port}")
    front.spoil = lambda head, body: answer
    with pytest.raises(RemoteError):
        remote._update()
    remote._update()
    assert remote.snapshot().runs
