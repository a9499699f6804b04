"""Silences and acknowledgements over a real connection, kept in a real file."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.service.notify.silences import Silences
from ldlm_monitor.service.serve import Server, Site

SILENCE = {
    "matchers": [{"name": "run", "value": "hunter2"}],
    "endsAt": "2999-01-01T00:00:00Z",
    "createdBy": "ada",
    "comment": "known",
}
ACK = {
    "alert": "NonFiniteLoss",
    "labels": {"run": "r1", "severity": "critical"},
    "by": "ada",
    "comment": "",
}


@pytest.fixture
def serve(running, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Puts a server that knows silences in the place of the one that does not."""
    silences = Silences(tmp_path / "silences.sqlite")
    servers: list[Server] = []

    def begin(*, takes_commands: bool) -> None:
        server = Server(
            "127.0.0.1",
            0,
            Site(
                snapshot=lambda: running.snapshot,
                ready=lambda: True,
                redact=lambda text: text.replace("hunter2", "[redacted]"),
                silencing=silences,
                takes_commands=takes_commands,
            ),
        )
        servers.append(server)
        running.port = server.port
        server.start()

    yield begin
    for server in servers:
        server.stop()
    silences.close()


@pytest.fixture
def site(running, serve):
    serve(takes_commands=True)
    return running


def post(site, path: str, fields: object, **headers: str):
    return site.ask(path, "POST", headers=headers, body=json.dumps(fields).encode())


def listing(site):
    return json.loads(site.ask("/api/v1/silences").body)


def test_a_silence_is_made_listed_and_ended(site):
    made = post(site, "/api/v1/silences", SILENCE)
    number = json.loads(made.body)["silenceID"]
    assert made.status == 201
    (shown,) = listing(site)["silences"]
    assert shown["id"] == number
    assert shown["status"] == {"state": "active"}
    assert shown["matchers"] == [
        {"name": "run", "value": "[redacted]", "isRegex": False, "isEqual": True}
    ]
    assert (shown["endsAt"], shown["createdBy"]) == ("2999-01-01T00:00:00Z", "ada")
    assert site.ask(f"/api/v1/silences/{number}", "DELETE").status == 200
    assert site.ask(f"/api/v1/silences/{number}", "DELETE").status == 404
    assert listing(site)["silences"] == []


def test_an_alert_that_is_active_can_be_acknowledged_and_no_other(site):
    made = post(site, "/api/v1/acks", ACK)
    assert made.status == 201
    assert listing(site)["acks"] == [{"id": json.loads(made.body)["silenceID"], **ACK}]
    other = post(site, "/api/v1/acks", {**ACK, "alert": "LossSpike"})
    assert other.status == 404
    assert b"/api/v1/alerts" in other.body


@pytest.mark.parametrize("path", ["/api/v1/silences", "/api/v1/acks"])
def test_what_cannot_be_used_is_a_400_of_one_line(site, path):
    for body in (b"", b"{", b"[]", b'{"endsAt": "hunter2"}'):
        answer = site.ask(path, "POST", body=body)
        assert answer.status == 400
        assert answer.body.count(b"\n") == 1
        assert b"hunter2" not in answer.body


def test_beyond_loopback_no_command_is_accepted(running, serve):
    serve(takes_commands=False)
    assert post(running, "/api/v1/silences", SILENCE).status == 403
    assert post(running, "/api/v1/acks", ACK).status == 403
    assert running.ask("/api/v1/silences/1", "DELETE").status == 403
    assert listing(running) == {"silences": [], "acks": []}


def test_a_page_in_a_browser_cannot_command(site):
    answer = post(site, "/api/v1/silences", SILENCE, Origin="http://evil.example")
    assert answer.status == 403
    assert listing(site)["silences"] == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("", b"400"),
        ("Content-Length: -1\r\n", b"400"),
        ("Content-Length: 65537\r\n", b"413"),
        (f"Content-Length: {'9' * 5000}\r\n", b"400"),
    ],
)
def test_a_body_of_no_or_great_length_is_not_read(site, headers, status):
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.sendall(f"POST /api/v1/silences HTTP/1.0\r\n{headers}\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.split()[1] == status


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        ("/api/v1/silences", "DELETE", "GET, HEAD, POST"),
        ("/api/v1/silences/1", "POST", "DELETE"),
        ("/api/v1/runs", "POST", "GET, HEAD"),
    ],
)
def test_other_methods_are_405_and_say_what_is_allowed_there(site, path, method, allowed):
    answer = site.ask(path, method, body=b"{}")
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)


def test_a_server_without_silences_has_no_such_page(running):
    assert running.ask("/api/v1/silences").status == 404
    assert running.ask("/api/v1/silences", "POST", body=b"{}").status == 404
