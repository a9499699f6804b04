"""What clients that mean no good, or are only slow, can take up."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ldlm_monitor.serve import connections
from ldlm_monitor.serve.connections import MAX_CONNECTIONS, MAX_HEAD, MAX_REQUEST_LINE

PATIENCE = 10.0


class Client:
    """A raw connection to the server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def rest(self) -> bytes:
        """What comes until the server ends it."""
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := self.socket.recv(65536):
                received += data
        return received

    def is_cut(self) -> bool:
        """Whether the server has ended it by now."""
        self.socket.settimeout(0.05)
        try:
            return self.socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True


@pytest.fixture
def connect(running) -> Iterator:
    clients: list[Client] = []

    def begin(data: bytes = b"") -> Client:
        clients.append(Client(running.port))
        clients[-1].send(data)
        return clients[-1]

    yield begin
    for client in clients:
        client.socket.close()


def status(answer: bytes) -> bytes:
    return answer.split(b" ", 2)[1]


def test_a_head_that_comes_drop_by_drop_is_given_up(running, connect, monkeypatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.4)
    drops = connect(b"GET /metrics HTTP/1.0\r\n")
    began = time.monotonic()
    while not drops.is_cut():
        assert time.monotonic() - began < PATIENCE
        with contextlib.suppress(OSError):
            drops.send(b"x: y\r\n")


def test_an_answer_that_is_not_taken_is_given_up(
    running, connect, make_snapshot, monkeypatch
) -> None:
    monkeypatch.setattr(connections, "WHOLE_SECONDS", 4.0)
    running.snapshot = make_snapshot(message="x" * 30_000_000)
    lazy = connect(b"GET /api/v1/events HTTP/1.0\r\n\r\n")
    threading.Event().wait(5)  # nothing is read meanwhile
    assert len(lazy.rest()) < 30_000_000


def test_clients_that_hold_every_place_make_room_for_one_that_asks(running, connect) -> None:
    slow = [connect(b"GET /metrics HTTP/1.0\r\n") for _ in range(MAX_CONNECTIONS)]
    assert not slow[-1].is_cut()
    for _ in range(3):
        assert running.ask("/-/healthy").status == 200
    cut = [client.is_cut() for client in slow]
    assert cut[0], "the one that has kept it waiting longest had to go"
    assert 1 <= sum(cut) <= 3


def test_where_all_places_are_being_answered_one_more_is_told_to_come_later(
    running, connect, make_snapshot, monkeypatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    running.snapshot = make_snapshot(message="x" * 30_000_000)
    busy = [connect(b"GET /api/v1/events HTTP/1.0\r\n\r\n") for _ in range(2)]
    assert [client.socket.recv(1) for client in busy] == [b"H", b"H"]
    assert status(connect().rest()) == b"503"
    busy[0].socket.close()
    deadline = time.monotonic() + PATIENCE
    while status(connect(b"GET /-/healthy HTTP/1.0\r\n\r\n").rest() or b"- 503 ") != b"200":
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET /" + b"x" * 1023 + b" HTTP/1.0\r\n\r\n", b"404"),
        (b"GET /" + b"x" * 1024 + b" HTTP/1.0\r\n\r\n", b"414"),
        (b"GET /" + b"x" * MAX_REQUEST_LINE + b" HTTP/1.0\r\n\r\n", b"414"),
        (b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 99 + b"\r\n", b"200"),
        (b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 101 + b"\r\n", b"431"),
        (b"GET / HTTP/1.0\r\na: " + b"x" * (MAX_HEAD - 10) + b"\r\n\r\n", b"200"),
        (b"GET / HTTP/1.0\r\na: " + b"x" * MAX_HEAD + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.0\r\n" + (b"a: " + b"x" * 1000 + b"\r\n") * 40 + b"\r\n", b"431"),
    ],
    ids=["path", "long path", "line", "99 lines", "101 lines", "head", "long head", "many"],
)
def test_the_head_of_a_request_is_bounded(connect, caplog, head: bytes, expected: bytes) -> None:
    assert status(connect(head).rest()) == expected
    assert caplog.text == ""


def test_the_librarys_own_answers_do_not_name_the_library(connect) -> None:
    answer = connect(b"NONSENSE\r\n\r\n").rest() + connect(b"GET / HTTP/9.9\r\n\r\n").rest()
    assert b"Python" not in answer
    assert b"WSGI" not in answer
