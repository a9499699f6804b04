"""DNS rebinding: a page's own name, made to lead to this machine, gets nothing of the monitor."""

import http.client
import socket
from collections.abc import Callable, Iterator

import pytest

from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.listener import names_for
from ldlm_monitor.service.serve import Server, Site
from ldlm_monitor.service.serve.access import HostNames
from ldlm_monitor.service.serve.web_config import Gate

PATHS = ["/", "/metrics", "/-/healthy", "/-/ready", "/api/v1/runs", "/nothing"]


@pytest.fixture
def status(make_snapshot: Callable[..., Snapshot]) -> Iterator[Callable[..., int]]:
    """The status of a request to a server on loopback that has one name more, `monitor.lan`."""
    server = Server(
        "127.0.0.1",
        0,
        Site(
            snapshot=make_snapshot,
            ready=lambda: True,
            reload=lambda: "",
            takes_commands=True,
            names=HostNames(["Monitor.lan"]),
        ),
    )
    server.start()

    def ask(host: str, path: str = "/-/healthy", method: str = "GET") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        try:
            connection.request(method, path, headers={"Host": host.format(port=server.port)})
            answer = connection.getresponse()
            text = answer.read().decode()
            assert ("allowed_hosts" in text) == (answer.status == 421 and method != "HEAD")
            return answer.status
        finally:
            connection.close()

    yield ask
    server.stop()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_a_name_of_somebody_else_is_answered_nothing(status, path, method):
    assert status("evil.example:{port}", path, method) == 421


def test_a_command_by_a_name_of_somebody_else_is_not_done(status):
    assert status("evil.example", "/-/reload", "POST") == 421
    assert status("localhost:{port}", "/-/reload", "POST") == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost:{port}", "LOCALHOST.", "127.0.0.1:{port}", "127.8.0.1", "[::1]",
        "[::1]:{port}", "monitor.lan:{port}", "MONITOR.LAN.", "192.168.3.4:{port}",
        "[fe80::1]:80",
    ],
)  # fmt: skip
def test_its_names_and_addresses_are_answered(status, host):
    """An address is safe: no page can be moved from one to another."""
    assert status(host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost.evil.example", "127.0.0.1.nip.example", "evil.localhost", "lan", "2130706433",
        "a.monitor.lan", "localhost,evil.example", "localhost@evil.example", "[::1", "[localhost]",
        "0x7f.1", ":{port}", "evil.example#localhost", "localhost#.evil.example",
        "evil.example@localhost", "localhost/.evil.example", "localhost?.evil.example",
        "localhost\\.evil.example", "localhost:1:2", "localhost:{port}@evil.example",
        "ｌocalhost.example",
    ],
)  # fmt: skip
def test_what_only_looks_like_one_is_not(host):
    assert not HostNames(["monitor.lan"]).accepts(host.format(port=1))


def test_a_client_that_says_no_name_is_no_browser(status, make_snapshot):
    assert HostNames().accepts(None)
    server = Server(
        "127.0.0.1",
        0,
        Site(
            snapshot=make_snapshot,
            ready=lambda: True,
            names=HostNames(),
        ),
    )
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    server.stop()


def test_beyond_loopback_any_name_is_its_own_unless_some_are_given():
    """Prometheus asks by the names of nodes and services, which the monitor does not know."""
    assert names_for(Settings(), "0.0.0.0") is None
    assert names_for(Settings(), "gpu-07") is None
    given = names_for(Settings(allowed_hosts=("gpu-07",)), "0.0.0.0")
    assert given is not None
    assert given.accepts("gpu-07:9847")
    assert not given.accepts("evil.example")


def test_the_address_for_people_is_one_of_its_names():
    names = names_for(Settings(external_url="https://monitor.lan/ldlm"), "127.0.0.1")
    assert names is not None
    assert names.accepts("monitor.lan")
    assert not names.accepts("evil.example")


def test_on_loopback_this_machines_own_name_is_one_of_its_names():
    """/etc/hosts often lets it lead to 127.0.0.1."""
    names = names_for(Settings(), "127.0.0.1")
    assert names is not None
    assert names.accepts(f"{socket.gethostname()}:9847")
    assert not names.accepts(f"{socket.gethostname()}.evil.example")


def test_where_a_token_is_asked_for_any_name_will_do(make_snapshot, tmp_path):
    """No browser sends it to another site, and its owner chose the address."""
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text("0123456789abcdef\n")
    (tmp_path / "web.yml").write_text("bearer_tokens_file: tokens\n")
    server = Server(
        "127.0.0.1",
        0,
        Site(
            snapshot=make_snapshot,
            ready=lambda: True,
            gate=Gate(tmp_path / "web.yml"),
            names=HostNames(),
        ),
    )
    server.start()
    statuses = []
    for more in ({}, {"Authorization": "Bearer 0123456789abcdef"}):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/-/healthy", headers={"Host": "gpu-07.example", **more})
        statuses.append(connection.getresponse().status)
        connection.close()
    server.stop()
    assert statuses == [401, 200]
