"""`attach` to what is no daemon of ours, or a daemon that was taken over."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any
from urllib.request import Request

import pytest

from ldlm_monitor.base.errors import DeliveryError, RemoteError
from ldlm_monitor.screen import remote
from ldlm_monitor.screen.remote import RESOURCES, RemoteSource
from ldlm_monitor.service.notify import http_client
from tests.screen.screens import NOW, Screen, Shown, on_screen

OK = b"HTTP/1.1 200 OK\r\n"
DRAWN = "\x1b[2J\x1b]0;evil\x07\x9b31m\u202e"
Serve = Callable[[Callable[[str], Iterator[bytes]]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves what a function of the request's path yields, piece by piece; returns the URL."""
    all_listening: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def answer(client: socket.socket, pieces: Callable[[str], Iterator[bytes]]) -> None:
        with client, suppress(OSError):
            path = client.recv(65536).split(b" ")[1].decode()
            for piece in pieces(path):
                client.sendall(piece)

    def accept(listening: socket.socket, pieces: Callable[[str], Iterator[bytes]]) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                threads.append(threading.Thread(target=answer, args=(client, pieces)))
                threads[-1].start()

    def begin(pieces: Callable[[str], Iterator[bytes]]) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        all_listening.append(listening)
        threads.append(threading.Thread(target=accept, args=(listening, pieces)))
        threads[-1].start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield begin
    for listening in all_listening:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
    for thread in threads:
        thread.join()


def slowly(first: bytes, piece: bytes) -> Iterator[bytes]:
    """What is never complete."""
    yield first
    for _ in count():
        threading.Event().wait(0.01)
        yield piece


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        pytest.param(OK + b"X-A: ", b"a", id="a head"),
        pytest.param(OK + b'\r\n{"runs": ["', b"a", id="a body"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="answers before the answer"),
    ],
)
def test_an_answer_that_comes_byte_by_byte_ends(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, first: bytes, piece: bytes
) -> None:
    monkeypatch.setattr(remote, "WHOLE_ANSWER_SECONDS", 0.3)
    source = RemoteSource(serve(lambda path: slowly(first, piece)))
    with pytest.raises(RemoteError, match="timed out"):
        source.start()


def test_a_receiver_that_answers_byte_by_byte_holds_nothing_back(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "WHOLE_ANSWER_SECONDS", 0.3)
    never = serve(lambda path: slowly(OK + b"X-A: ", b"a"))
    with pytest.raises(DeliveryError, match="timed out"):
        http_client.post(Request(never, b"{}"))
    accepted = serve(lambda path: slowly(OK + b"\r\n", b"a"))
    assert http_client.post(Request(accepted, b"{}")).status == 200


def endless() -> Iterator[bytes]:
    yield OK + b'\r\n{"runs": ["'
    for _ in count():
        yield b"a" * 65536


def many(item: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([OK, b'\r\n{"runs": [', item * remote.MAX_VALUES, b"{}]}"])


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(endless, id="without end"),
        pytest.param(many(b"[],"), id="more values than a fleet has"),
        pytest.param(lambda: iter([OK, b"Content-Encoding: gzip\r\n\r\n\x1f\x8b"]), id="gzip"),
        pytest.param(lambda: iter([OK, b"\r\n{", b'"a":{' * 100_000]), id="deep"),
        pytest.param(lambda: iter([OK, b'\r\n{"version": ' + b"9" * 5000 + b"}"]), id="a number"),
        pytest.param(lambda: iter([DRAWN.encode(), b"\r\n\r\n"]), id="no HTTP"),
        pytest.param(lambda: iter([b"HTTP/1.1 500 ", DRAWN.encode(), b"\r\n\r\n"]), id="reason"),
        pytest.param(lambda: iter([b"HTTP/1.1 403 x\r\n\r\n", DRAWN.encode()]), id="an error"),
        pytest.param(lambda: iter([b"HTTP/1.1 302 x\r\nLocation: http://[::1\r\n\r\n"]), id="302"),
    ],
)
def test_what_is_no_answer_of_ours_is_one_line(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, pieces: Callable[[], Iterator[bytes]]
) -> None:
    monkeypatch.setattr(remote, "MAX_ANSWER", 2**20)
    monkeypatch.setattr(remote, "MAX_VALUES", 1000)
    with pytest.raises(RemoteError) as found:
        RemoteSource(serve(lambda path: pieces())).start()
    assert str(found.value).isprintable()


def answers(shown: Shown, change: Callable[[str, Any], Any]) -> Callable[[str], Iterator[bytes]]:
    """The daemon's own answers, with each value that is no list or object changed by its name."""
    whole = json.loads(shown.snapshot.model_dump_json())

    def changed(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: changed(key, each) for key, each in value.items()}
        if isinstance(value, list):
            return [changed(name, each) for each in value]
        return change(name, value)

    def answer(path: str) -> Iterator[bytes]:
        known = path.rpartition("/")[2] in RESOURCES
        body = json.dumps(changed("", whole) if known else {}).encode()
        yield OK + b"Content-Length: %d\r\n\r\n" % len(body) + body

    return answer


def other_number(number: float) -> Callable[[str, Any], Any]:
    def change(name: str, value: Any) -> Any:
        del name
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return number if isinstance(value, float) else int(number)

    return change


def with_escapes(name: str, value: Any) -> Any:
    return value + DRAWN if isinstance(value, str) and name in FREE_TEXT else value


FREE_TEXT = ("name", "run", "message", "title", "reasons", "framework", "summary", "why")
ALL_PAGES = [*"1234567890", "enter", "tab", "down", "enter", "escape", "escape", "a", "i", "h"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(with_escapes, id="escapes"),
        *(pytest.param(other_number(each), id=f"{each:g}") for each in (-1.0, 2.0**62, 1e300)),
    ],
)
@pytest.mark.slice(2)
def test_whatever_a_daemon_says_is_drawn_without_harm(
    serve: Serve, shown: Shown, change: Callable[[str, Any], Any]
) -> None:
    source = RemoteSource(serve(answers(shown, change)))
    source.start()

    async def steps(screen: Screen) -> None:
        for key in ALL_PAGES:
            await screen.press(key)
            assert all(line.isprintable() for line in screen.lines)

    try:
        on_screen(source, steps, clock=lambda: NOW)
    finally:
        source.stop()
