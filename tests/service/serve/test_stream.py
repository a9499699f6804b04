"""`/api/v1/stream`: what changes, as server-sent events over a real connection."""

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.service.serve import connections, stream


def a_transition(number: int, run: str = "r1") -> Transition:
    return Transition(
        time=1_700_000_000.0 + number, alert="LossSpike", state="firing", previous="inactive",
        reason="condition holds", labels={"run": run}, value=float("nan"), active_at=1.0,
    )  # fmt: skip


class Client:
    """Reads events; a comment is an event of the name `:`."""

    def __init__(self, port: int, path: str = "", **headers: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
        head = f"GET /api/v1/stream{path} HTTP/1.1\r\nHost: localhost\r\n{''.join(lines)}\r\n"
        self._socket.sendall(head.encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.head = b"".join(iter(self._file.readline, b"\r\n")).decode().lower()

    def events(self) -> Iterator[tuple[str, Any, str]]:
        """Name, data and id of each event; an empty line ends it."""
        name, data, number = "", None, ""
        while size := int(self._file.readline() or b"0", 16):
            for line in self._file.read(size).decode().split("\n"):
                key, _, value = line.partition(": ")
                if key == "":
                    if name or value:
                        yield (name or ":", data, number)
                    name, data, number = "", None, ""
                elif key == "event":
                    name = value
                elif key == "data":
                    data = json.loads(value)
                elif key == "id":
                    number = value
            self._file.readline()

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def connect(running: Any) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def begin(*arguments: str, **headers: str) -> Client:
        clients.append(Client(running.port, *arguments, **headers))
        return clients[-1]

    yield begin
    for client in clients:
        client.close()


def show(running: Any, transitions: list[Transition], **changes: object) -> None:
    running.snapshot = running.snapshot.model_copy(
        update={
            "version": running.snapshot.version + 1, "transitions": tuple(transitions), **changes
        }
    )  # fmt: skip


def test_a_client_gets_what_changes(running: Any, connect: Callable[..., Client]) -> None:
    old = a_transition(1)
    show(running, [old])
    client = connect()
    assert "text/event-stream" in client.head
    events = client.events()
    assert next(events)[:2] == ("snapshot", {"version": 6, "at": 1_700_000_100.0})
    (run,) = running.snapshot.runs
    crashed = run.model_copy(update={"state": "crashed"})
    show(running, [old, a_transition(2, run="hunter2")], runs=(crashed,))
    name, data, number = next(events)
    assert (name, data["labels"], data["value"]) == ("transition", {"run": "[redacted]"}, "NaN")
    assert number == stream.identity(a_transition(2, run="hunter2"))
    name, data, _ = next(events)
    assert (name, data["run"], data["state"]) == ("run", "r1", "crashed")
    assert next(events)[:2] == ("snapshot", {"version": 7, "at": 1_700_000_100.0})


def test_a_client_that_comes_back_gets_what_it_missed(
    running: Any, connect: Callable[..., Client]
) -> None:
    kept = [a_transition(number) for number in range(5)]
    show(running, kept)

    def missed(*path: str, **headers: str) -> list[float]:
        found = []
        for name, data, _ in connect(*path, **headers).events():
            if name == "snapshot":
                return found
            found.append(data["time"] - 1_700_000_000.0)
        raise AssertionError

    assert missed(Last_Event_ID=stream.identity(kept[2])) == [3, 4]
    assert missed(Last_Event_ID="gone") == [0, 1, 2, 3, 4]
    assert missed("?since=1700000002") == [3, 4]
    assert missed() == []
    assert connect("?since=yesterday").status == 400


def test_silence_is_broken_and_a_stream_outlives_the_time_of_an_answer(
    running: Any, connect: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.3)
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.8)
    names = (name for name, _, _ in connect().events())
    assert next(names) == "snapshot"
    assert [next(names) for _ in range(6)] == [":"] * 6


def test_the_number_of_clients_is_bounded_and_places_become_free(
    running: Any, connect: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_STREAMS", 2)
    clients = [connect() for _ in range(2)]
    for client in clients:
        next(client.events())
    assert connect().status == 503
    clients[0].close()
    while (status := connect().status) != 200:  # noticed a moment later
        assert status == 503
