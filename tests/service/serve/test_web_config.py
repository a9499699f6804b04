"""TLS and credentials by a web configuration file, over real connections."""

import asyncio
import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.service.notify.silences import Silences
from ldlm_monitor.service.serve import Gate, Server, Site, connections, server, web_config
from ldlm_monitor.service.serve.access import Access
from ldlm_monitor.service.serve.web_config import CHECK_SECONDS
from tests.service.certificates import old_only

TOKEN = "5f0d1c2b3a49586776859403"
PASSWORD = "hunter2"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
ADA = {"Authorization": "Basic " + base64.b64encode(f"ada:{PASSWORD}".encode()).decode()}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SILENCE = {
    "matchers": [{"name": "run", "value": "r1"}],
    "endsAt": "2999-01-01T00:00:00Z",
    "createdBy": "ada",
    "comment": "known",
}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class GatedSite:
    """A server behind a gate; `client` is the TLS context of its clients."""

    def __init__(self, snapshot, folder: Path, text: str) -> None:
        self.file = folder / "web.yml"
        self.file.write_text(text)
        self.clock = Clock()
        self.gate = Gate(self.file, clock=self.clock)
        self.silences = Silences(folder / "silences.sqlite")
        self.reloads = 0
        self.server = Server(
            "127.0.0.1",
            0,
            Site(
                snapshot=lambda: snapshot,
                ready=lambda: True,
                reload=self.reload,
                silencing=self.silences,
                gate=self.gate,
            ),
        )
        self.server.start()
        self.client = ssl.create_default_context()

    def reload(self) -> str:
        self.reloads += 1
        return ""

    def change(self, text: str) -> None:
        """Write the file anew, and let it be looked at."""
        self.file.write_text(text)
        self.clock.now += 2

    def ask(
        self, path: str = "/-/healthy", method: str = "GET", fields: object = None, **headers: str
    ) -> http.client.HTTPResponse:
        where = ("127.0.0.1", self.server.port)
        if self.gate.encrypts:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                *where, timeout=10, context=self.client
            )
        else:
            connection = http.client.HTTPConnection(*where, timeout=10)
        try:
            body = None if fields is None else json.dumps(fields).encode()
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer
        finally:
            connection.close()

    def close(self) -> None:
        self.server.stop()
        self.silences.close()


@pytest.fixture
def serve(make_snapshot, tmp_path: Path) -> Iterator[Callable[[str], GatedSite]]:
    sites: list[GatedSite] = []

    def begin(text: str) -> GatedSite:
        sites.append(GatedSite(make_snapshot(), tmp_path, text))
        return sites[-1]

    yield begin
    for site in sites:
        site.close()


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    """The line that names a file of tokens."""
    file = tmp_path / "tokens"
    file.write_text(f"# attach\n{TOKEN}\n")
    file.chmod(0o600)
    return "bearer_tokens_file: tokens\n"


@pytest.fixture
def tls(certificates, tmp_path: Path) -> str:
    """The lines that name a certificate and its key, which stand beside the file."""
    for file in certificates.of("server"):
        shutil.copy(file, tmp_path / f"server{file.suffix}")
    return "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"


TLS = "tls_server_config: {cert_file: server.pem, key_file: server.key"
USERS = f"basic_auth_users:\n  ada: {HASH}\n"


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/-/healthy", "/-/ready", "/api/v1/alerts", "/nothing"]
)
def test_every_page_asks_for_credentials(serve, path: str) -> None:
    site = serve(USERS)
    refused = site.ask(path)
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic realm=")
    assert site.ask(path, **ADA).status == (404 if path == "/nothing" else 200)


def test_only_a_token_commands_what_others_can_reach(serve, tokens: str) -> None:
    site = serve(USERS + tokens)
    command = ("/api/v1/silences", "POST", SILENCE)
    assert site.ask(*command).status == 401
    assert site.ask(*command, **ADA).status == 403
    assert site.ask(*command, **BEARER).status == 201
    assert site.ask(*command, **BEARER, Origin="https://evil.example").status == 403
    reload = ("/-/reload", "POST", {})
    assert [site.ask(*reload, **headers).status for headers in ({}, ADA, BEARER)] == [401, 403, 200]
    assert site.reloads == 1


def test_a_client_that_trusts_the_authority_uses_https(serve, tls: str, certificates) -> None:
    site = serve(tls)
    with pytest.raises(ssl.SSLCertVerificationError):
        site.ask()
    site.client.load_verify_locations(certificates.ca)
    assert site.ask("/metrics").status == 200


def test_plain_http_and_silence_on_an_https_port_do_no_harm(serve, tls: str, certificates) -> None:
    site = serve(tls)
    site.client.load_verify_locations(certificates.ca)
    with (
        socket.create_connection(("127.0.0.1", site.server.port), timeout=10) as plain,
        socket.create_connection(("127.0.0.1", site.server.port), timeout=10),
    ):
        plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"ldlm_" not in b"".join(iter(lambda: plain.recv(4096), b""))
        assert site.ask().status == 200


def test_clients_that_never_shake_hands_make_room_for_one_that_asks(
    serve, tls: str, certificates
) -> None:
    site = serve(tls)
    site.client.load_verify_locations(certificates.ca)
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(
                socket.create_connection(("127.0.0.1", site.server.port), timeout=10)
            )
            for _ in range(connections.MAX_CONNECTIONS)
        ]
        assert site.ask().status == 200
        silent[0].settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert silent[0].recv(1) == b"", "the first had to go, long before its time was over"


def test_old_versions_of_tls_are_refused(serve, tls: str, certificates) -> None:
    site = serve(tls + "  min_version: TLS13\n")
    site.client.load_verify_locations(certificates.ca)
    site.client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError, match=r"(?i)version|reset|EOF"):
        site.ask()
    site.client.maximum_version = ssl.TLSVersion.TLSv1_3
    assert site.ask().status == 200
    other = serve(tls)
    other.client.load_verify_locations(certificates.ca)
    old_only(other.client)
    with pytest.raises(OSError, match=r"(?i)version|reset|EOF"):
        other.ask()


@pytest.mark.parametrize(
    ("kind", "without"), [("RequireAndVerifyClientCert", False), ("VerifyClientCertIfGiven", True)]
)
def test_clients_show_a_certificate_of_the_authority(
    serve, tls: str, certificates, kind: str, without: bool
) -> None:
    site = serve(f"{tls}  client_auth_type: {kind}\n  client_ca_file: {certificates.ca}\n")
    site.client.load_verify_locations(certificates.ca)
    if without:
        assert site.ask().status == 200
    else:
        with pytest.raises(OSError, match=r"(?i)certificate|reset|EOF|closed"):
            site.ask()
    site.client.load_cert_chain(*certificates.of("client"))
    assert site.ask().status == 200
    stranger = certificates.folder / "stranger.pem", certificates.folder / "stranger.key"
    certificates.make(*stranger, "/CN=stranger")
    site.client = ssl.create_default_context(cafile=str(certificates.ca))
    site.client.load_cert_chain(*stranger)
    with pytest.raises(OSError, match=r"(?i)unknown|alert|reset|EOF|closed"):
        site.ask()


def test_what_changes_is_taken_up_and_what_is_wrong_is_not(serve, caplog) -> None:
    site = serve(USERS)
    other = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
    site.change(f"basic_auth_users: {{grace: {other}}}")
    grace = {"Authorization": "Basic " + base64.b64encode(b"grace:other").decode()}
    assert [site.ask(**ADA).status, site.ask(**grace).status] == [401, 200]
    site.change("basic_auth_users: [")
    assert site.ask(**grace).status == 200
    site.change("basic_auth_users: [ ")
    site.clock.now += 60
    assert site.ask().status == 401, "what is wrong opens no door"
    assert caplog.text.count("is not YAML") == 2
    site.file.unlink()
    site.clock.now += 2
    assert site.ask().status == 401
    site.change("")
    assert site.ask().status == 200


def test_a_file_that_changes_while_it_is_loaded_is_loaded_again(tmp_path, monkeypatch) -> None:
    web = tmp_path / "web.yml"
    web.write_text(USERS)
    clock = Clock()
    gate = Gate(web, clock=clock)

    def meanwhile(users: dict[str, str], tokens: tuple[str, ...]) -> Access:
        web.write_text("")
        return Access(users, tokens)

    with monkeypatch.context() as change:
        change.setattr(web_config, "Access", meanwhile)
        web.write_text(USERS + "\n")
        clock.now += CHECK_SECONDS
        assert gate.access().is_required
    clock.now += CHECK_SECONDS
    assert not gate.access().is_required


def test_a_new_certificate_is_taken_up_and_tls_is_not_switched_off(
    serve, tls: str, certificates, tmp_path: Path, caplog
) -> None:
    site = serve(tls)
    site.client.load_verify_locations(certificates.ca)

    def serial() -> str:
        address = ("127.0.0.1", site.server.port)
        with (
            socket.create_connection(address, timeout=10) as plain,
            site.client.wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            return str(encrypted.getpeercert()["serialNumber"])

    before = serial()
    shutil.copy(certificates.of("renewed")[0], tmp_path / "server.pem")
    site.clock.now += 2
    assert serial() == before, "a certificate without its key is of no use yet"
    shutil.copy(certificates.of("renewed")[1], tmp_path / "server.key")
    site.clock.now += 2
    assert serial() != before
    site.change("")
    assert serial() != before
    assert "restart" in caplog.text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", r"^web\.yml: is not YAML; see docs/security\.md"),
        ("- a", r"^web\.yml: should be"),
        ("users: {}", r"^web\.yml: users: unknown key"),
        ("http_server_config: {http2: true}", r"http_server_config: unknown key"),
        ("basic_auth_users: {ada: hunter2}", r'the value of "ada" is no bcrypt hash'),
        ("basic_auth_users: {ada: 7}", r"basic_auth_users\.ada: should be"),
        ("bearer_tokens_file: none", r"bearer_tokens_file: none: cannot be read \(No such file"),
        ("bearer_tokens_file: short", r"needs a token of 16 or more ASCII characters"),
        ("bearer_tokens_file: open", r"is a secret that others may read \(mode 0644\); chmod 600"),
        ("tls_server_config: {cert_file: server.pem}", r"tls_server_config\.key_file: Field requ"),
        ("tls_server_config: {cert_file: x, key_file: server.key}", r"x: cannot be read"),
        (
            "tls_server_config: {cert_file: server.key, key_file: server.key}",
            r"tls_server_config: a certificate or key cannot be used",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: open.key}",
            r"tls_server_config\.key_file: open\.key: is a secret that others may read",
        ),
        (
            f"{TLS}, min_version: TLS10}}",
            r"min_version: should be 'TLS12' or 'TLS13'",
        ),
        (
            f"{TLS}, client_auth_type: RequireAndVerifyClientCert}}",
            r"client_ca_file and a client_auth_type that verifies belong together",
        ),
        (
            f"{TLS}, client_auth_type: RequestClientCert}}",
            r"client_auth_type: should be 'NoClientCert'",
        ),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line_with_the_place(
    tls: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content, mode in (
        ("web.yml", text, 0o644),
        ("short", "hunter2\n", 0o600),
        ("open", TOKEN, 0o644),
        ("open.key", Path("server.key").read_text(), 0o644),
    ):
        Path(name).write_text(content)
        Path(name).chmod(mode)
    with pytest.raises(ConfigError, match=complaint) as refused:
        Gate(Path("web.yml"))
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert refused.value.remedy


def test_the_example_of_the_documentation_works(tls: str, tokens: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/security.md").read_text("utf-8")
    (example,) = re.findall("```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "web.yml").write_text(example)
    gate = Gate(tmp_path / "web.yml")
    basic = "Basic " + base64.b64encode(b"prometheus:change me").decode()
    assert gate.encrypts
    assert asyncio.run(gate.access().grant(basic)) == "user"
    assert asyncio.run(gate.access().grant(f"Bearer {TOKEN}")) == "token"


def test_the_bounds_of_the_documentation_are_those_that_hold() -> None:
    page = (Path(__file__).parents[3] / "docs/security.md").read_text("utf-8")
    for words in (
        f"| {connections.MAX_CONNECTIONS}; if all are taken",
        f"{connections.REQUEST_SECONDS:g} s",
        f"{connections.ANSWER_SECONDS:g} s, however slowly",
        f"| {server.MAX_HEAD // 1024} KiB |",
        f"| {server.MAX_BODY // 1024} KiB |",
    ):
        assert words in page


def test_a_key_with_a_password_is_refused_and_asks_nobody_for_it(
    tls: str, tmp_path: Path, certificates
) -> None:
    key, locked = tmp_path / "server.key", tmp_path / "locked.key"
    os.system(f"openssl ec -aes128 -passout pass:hunter2 -in {key} -out {locked} 2>/dev/null")
    locked.chmod(0o600)
    (tmp_path / "web.yml").write_text(tls.replace("server.key", "locked.key"))
    with pytest.raises(ConfigError, match="without a password"):
        Gate(tmp_path / "web.yml")
