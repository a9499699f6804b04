"""What hostile or slow clients can take up, over real connections."""

import asyncio
import contextlib
import gzip
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from ldlm_monitor.service.serve import Server, Site, connections
from ldlm_monitor.service.serve.connections import MAX_CONNECTIONS
from ldlm_monitor.service.serve.server import MAX_BODY, MAX_HEAD

PATIENCE = 10.0
HUGE = 12_000_000
"""Bytes: more than the kernel buffers for a client that does not read."""
WEBSOCKET = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
GET = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n"
H2C = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
UNSENT_BODY = b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 600\r\n\r\nx"


class Peer:
    """A raw connection to the server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def rest(self) -> bytes:
        """All bytes until the server ends the connection."""
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := self.socket.recv(65536):
                received += data
        return received

    def is_cut(self) -> bool:
        """Whether the server has ended it by now."""
        self.socket.settimeout(0.005)
        try:
            return self.socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True


@pytest.fixture
def connect(running) -> Iterator:
    peers: list[Peer] = []

    def begin(data: bytes = b"") -> Peer:
        peers.append(Peer(running.port))
        peers[-1].send(data)
        return peers[-1]

    yield begin
    for peer in peers:
        peer.socket.close()


def status(answer: bytes) -> bytes:
    return answer.split(b" ", 2)[1]


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"GET /metrics HTTP/1.1\r\n", b"x: y\r\n"),
        (b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n", b"x"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["head", "body", "chunks"],
)
def test_a_request_that_arrives_slowly_is_cut(connect, monkeypatch, start, drop) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.4)
    slow = connect(start)
    deadline = time.monotonic() + PATIENCE
    while not slow.is_cut():
        assert time.monotonic() < deadline
        with contextlib.suppress(OSError):
            slow.send(drop)


def test_a_connection_serves_many_requests_until_it_is_idle(connect, monkeypatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 1.0)
    peer = connect(GET + GET)
    answers = b""
    while answers.count(b"healthy\n") < 2:
        answers += peer.socket.recv(4096)
    peer.send(GET)
    assert peer.rest().count(b"healthy\n") == 1


def test_an_answer_that_the_client_does_not_read_is_cut(
    running, connect, make_snapshot, monkeypatch
) -> None:
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 4.0)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 1)
    running.snapshot = make_snapshot(message="x" * HUGE)
    lazy = connect(b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
    assert lazy.socket.recv(1) == b"H"
    deadline = time.monotonic() + PATIENCE
    while status(connect(GET).socket.recv(4096) or b"- 503 ") != b"200":
        assert time.monotonic() < deadline
        time.sleep(0.1)  # each try holds a descriptor
    assert len(lazy.rest()) < HUGE


def test_clients_that_hold_every_place_make_room_for_one_that_asks(running, connect) -> None:
    slow = [connect(b"GET /metrics HTTP/1.0\r\n") for _ in range(MAX_CONNECTIONS)]
    assert not slow[-1].is_cut()
    for _ in range(3):
        assert running.ask("/-/healthy").status == 200
    cut = [client.is_cut() for client in slow]
    assert cut[0], "the one that has waited longest is cut"
    assert 1 <= sum(cut) <= 3


def test_idle_connections_make_room_as_well(running, connect) -> None:
    idle = [connect(GET) for _ in range(MAX_CONNECTIONS)]
    for peer in idle:
        answer = b""
        while not answer.endswith(b"healthy\n"):
            answer += peer.socket.recv(4096)
    assert running.ask("/-/healthy").status == 200
    assert sum(peer.is_cut() for peer in idle) == 1


def test_one_more_than_all_that_are_being_answered_gets_503(
    running, connect, make_snapshot, monkeypatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    running.snapshot = make_snapshot(message="x" * HUGE)
    busy = [connect(b"GET /api/v1/events HTTP/1.0\r\n\r\n") for _ in range(2)]
    assert [client.socket.recv(1) for client in busy] == [b"H", b"H"]
    assert status(connect().rest()) == b"503"
    busy[0].socket.close()
    deadline = time.monotonic() + PATIENCE
    while status(connect(b"GET /-/healthy HTTP/1.0\r\n\r\n").rest() or b"- 503 ") != b"200":
        assert time.monotonic() < deadline
        time.sleep(0.1)  # each try holds a descriptor


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET /" + b"x" * 1000 + b" HTTP/1.0\r\n\r\n", b"404"),
        (b"GET /?" + b"x" * (MAX_HEAD - 20) + b" HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /?" + b"x" * 32_000 + b" HTTP/1.0\r\na: " + b"x" * 800 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"x" * 2 * MAX_HEAD + b" HTTP/1.0\r\n\r\n", b"431"),
        (b"GET / HTTP/1.0\r\na: " + b"x" * (MAX_HEAD - 20) + b"\r\n\r\n", b"200"),
        (b"GET / HTTP/1.0\r\na: " + b"x" * MAX_HEAD + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.0\r\n" + (b"a: " + b"x" * 1000 + b"\r\n") * 40 + b"\r\n", b"431"),
        (b"POST /-/reload HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1), b"413"),
        (b"GET / HTTP/1.0\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 99_999, b"413"),
    ],
    ids=["path", "query", "query and head", "line", "head", "long head", "many", "body",
         "body of GET"],
)  # fmt: skip
def test_the_size_of_a_request_is_bounded(connect, caplog, head: bytes, expected: bytes) -> None:
    assert status(connect(head).rest()) == expected
    assert caplog.text == ""


def test_a_body_without_end_is_not_kept(running, connect) -> None:
    """Chunks have no length in advance; megabytes would fill hypercorn's queue."""
    chunk = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
    flood = connect(b"POST /-/reload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    with contextlib.suppress(OSError):
        for _ in range(1000):
            flood.send(chunk)
    assert running.ask("/-/healthy").status == 200
    with contextlib.suppress(OSError):
        assert status(flood.rest() or b"- 413 ") == b"413"


@pytest.mark.parametrize(
    "request_",
    [
        WEBSOCKET,
        H2C,
    ],
    ids=["websocket", "h2c"],
)
def test_other_protocols_are_cut(running, connect, caplog, request_) -> None:
    assert b"ldlm-monitor</" not in connect(request_).rest()
    assert running.ask("/-/healthy").status == 200
    assert caplog.text == ""


def test_the_librarys_own_answers_do_not_name_the_library(connect) -> None:
    answer = connect(b"NONSENSE\r\n\r\n").rest() + connect(b"GET / HTTP/1.1\r\n\r\n").rest()
    assert answer.count(b"HTTP/1.1 400") == answer.count(b"server: ldlm-monitor") == 2
    assert b"corn" not in answer


def test_answers_are_compressed_for_clients_that_accept_it(running) -> None:
    plain = running.ask("/metrics")
    packed = running.ask("/metrics", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    bodies = [gzip.decompress(packed.body), plain.body]
    # What the process has used is another number at each request.
    one, two = (
        [line for line in b.splitlines() if not line.startswith(b"process_")] for b in bodies
    )
    assert one == two
    assert len(packed.body) < len(plain.body) / 3


class WatchedServer(Server):
    """Gives access to its event loop, once it runs."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.loop: Future[asyncio.AbstractEventLoop] = Future()

    async def _serve(self) -> None:
        self.loop.set_result(asyncio.get_running_loop())
        await super()._serve()


@pytest.mark.parametrize(
    "request_",
    [GET, GET[:9], UNSENT_BODY, WEBSOCKET, H2C],
    ids=["whole", "head", "body", "websocket", "h2c"],
)
@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_ends_leaves_no_task(make_snapshot, monkeypatch, request_, reset) -> None:
    """hypercorn alone keeps the tasks of one that asked for HTTP/2 for ever."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    site = Site(snapshot=make_snapshot, ready=lambda: True)
    served = WatchedServer("127.0.0.1", 0, site)
    served.start()
    peer = Peer(served.port)
    peer.send(request_)
    if reset:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        peer.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):
            peer.socket.recv(4096)
    peer.socket.close()
    loop, deadline = served.loop.result(PATIENCE), time.monotonic() + PATIENCE / 2
    while len(asyncio.all_tasks(loop)) > 1:
        assert time.monotonic() < deadline
    served.stop()


def test_stop_does_not_wait_for_clients_or_handlers(make_snapshot) -> None:
    entered, release = threading.Event(), threading.Event()

    def hangs() -> bool:
        entered.set()
        return release.wait(PATIENCE)

    site = Site(snapshot=make_snapshot, ready=hangs)
    hanging = Server("127.0.0.1", 0, site)
    hanging.start()
    peers = [Peer(hanging.port) for _ in range(3)]
    peers[0].send(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
    assert entered.wait(PATIENCE)
    hanging.stop()
    assert [peer.rest() for peer in peers] == [b""] * 3
    release.set()
    hanging._thread.join(PATIENCE)
    assert not hanging._thread.is_alive()
    for peer in peers:
        peer.socket.close()
