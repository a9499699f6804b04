"""What goes out goes where it was sent, to who proves to be that."""

import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request

import pytest

from ldlm_monitor.base.errors import ConfigError, DeliveryError, RemoteError
from ldlm_monitor.screen.remote import RemoteSource
from ldlm_monitor.service.notify.alertmanager import AlertmanagerClient
from ldlm_monitor.service.notify.apprise import apprise_services
from ldlm_monitor.service.notify.dead_mans_switch import HeartbeatSender
from ldlm_monitor.service.notify.http_client import post
from ldlm_monitor.service.notify.message import message_of
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.slack_message import SlackWebhook
from ldlm_monitor.service.notify.states import Pulse
from ldlm_monitor.service.notify.webhook import WebhookSender
from tests.service.certificates import old_only

pytest.importorskip("apprise", reason="apprise is not installed")


@dataclass
class Server:
    """Keeps the requests it gets, and sends them on to `elsewhere` where that is set."""

    status: int = 200
    elsewhere: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    running: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def begin(tls: ssl.SSLContext | None = None) -> Server:
        state = Server()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                state.asked.append((self.path, self.headers["Authorization"]))
                self.send_response(state.status)
                if state.elsewhere:
                    self.send_header("Location", state.elsewhere)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)  # 127.0.0.2 as well
        server.handle_error = lambda *args: None  # type: ignore[method-assign]
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        running.append((server, thread))
        state.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
        return state

    yield begin
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


class Senders:
    """Each of our senders, by what it is called; `send` raises where nothing was accepted."""

    names = ("slack", "webhook", "apprise", "alertmanager", "heartbeat", "attach")

    def __init__(self, outbox: Outbox, make_notification) -> None:
        self._outbox = outbox
        self._message = message_of(make_notification())

    def send(self, name: str, url: str) -> None:
        secret = "Bearer 5f0d1c2b3a49586776859403"
        match name:
            case "slack":
                SlackWebhook(f"{url}/services/x").send(self._message)
            case "webhook":
                WebhookSender(f"{url}/x").send(self._message)
            case "apprise":
                (service,) = apprise_services([url.replace("http", "json", 1)])
                service.send(self._message)
            case "alertmanager":
                AlertmanagerClient(url, authorization=secret).send([], 0.0)
            case "heartbeat":
                beat = HeartbeatSender(url, 3600, Pulse(lambda: 1), self._outbox)
                if beat.turn() != 3600:
                    raise DeliveryError("not taken")
            case "attach":
                RemoteSource(url, authorization=secret).start()


@pytest.fixture
def senders(outbox: Outbox, make_notification) -> Senders:
    return Senders(outbox, make_notification)


@pytest.mark.parametrize("name", Senders.names)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_carries_no_secret_elsewhere(
    senders: Senders, serve, name: str, status: int
) -> None:
    metadata, receiver = serve(), serve()
    receiver.status, receiver.elsewhere = status, f"{metadata.url}/latest/meta-data"
    with pytest.raises((DeliveryError, RemoteError)):
        senders.send(name, receiver.url)
    assert metadata.asked == []
    assert len(receiver.asked) == 1


@pytest.mark.parametrize("name", Senders.names)
@pytest.mark.parametrize("elsewhere", ["/there", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_nor_is_one_to_another_path_or_scheme(
    senders: Senders, serve, name: str, elsewhere: str
) -> None:
    receiver = serve()
    receiver.status, receiver.elsewhere = 302, elsewhere
    with pytest.raises((DeliveryError, RemoteError)):
        senders.send(name, receiver.url)
    assert len(receiver.asked) == 1


@pytest.fixture
def proxied(serve, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A proxy for every scheme, by the environment; it answers as a receiver does."""
    proxy = serve()
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return proxy


@pytest.mark.parametrize("name", [name for name in Senders.names if name != "apprise"])
def test_what_is_for_this_machine_goes_through_no_proxy(
    senders: Senders, serve, proxied: Server, name: str
) -> None:
    receiver = serve()
    with suppress(DeliveryError, RemoteError):  # not every answer is what its sender wants
        senders.send(name, receiver.url)
    assert (len(receiver.asked), proxied.asked) == (1, [])


def test_a_proxy_that_fails_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://me:sesame@127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(DeliveryError, match=r"through the proxy 127\.0\.0\.1:9: ") as raised:
        post(Request("https://hooks.example.com/services/x", data=b"{}"))
    assert "sesame" not in str(raised.value)


def test_a_redirect_says_what_to_do(senders: Senders, serve) -> None:
    receiver = serve()
    receiver.status, receiver.elsewhere = 307, "/there"
    with pytest.raises(DeliveryError, match=r"answered 307: a redirect, which is not followed"):
        senders.send("webhook", receiver.url)


@pytest.fixture
def encrypted(serve, certificates) -> Server:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.of("receiver"))
    return serve(context)


@pytest.fixture
def trusting(certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names our authority."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificates.ca))


@pytest.mark.parametrize("name", Senders.names)
def test_a_certificate_of_an_unknown_authority_gets_nothing(
    senders: Senders, encrypted: Server, name: str
) -> None:
    with pytest.raises((DeliveryError, RemoteError)):
        senders.send(name, encrypted.url)
    assert encrypted.asked == []


@pytest.mark.parametrize("name", Senders.names)
def test_an_authority_of_ones_own_is_believed_where_the_environment_names_it(
    senders: Senders, encrypted: Server, trusting, name: str
) -> None:
    if name == "attach":
        with pytest.raises(RemoteError, match="as ldlm-monitor does"):
            senders.send(name, encrypted.url)
    else:
        senders.send(name, encrypted.url)
    assert len(encrypted.asked) == 1


@pytest.mark.parametrize("name", Senders.names)
def test_a_certificate_for_another_name_gets_nothing(
    senders: Senders, encrypted: Server, trusting, name: str
) -> None:
    with pytest.raises((DeliveryError, RemoteError)) as refused:
        senders.send(name, encrypted.url.replace("127.0.0.1", "127.0.0.2"))
    assert "onnection refused" not in str(refused.value)
    assert encrypted.asked == []


@pytest.mark.parametrize("name", Senders.names)
@pytest.mark.parametrize("kind", ["expired", "TLS 1.1"])
@pytest.mark.usefixtures("trusting")
def test_an_expired_certificate_or_an_old_tls_gets_nothing(
    senders: Senders, serve, certificates, kind: str, name: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if kind == "expired":
        context.load_cert_chain(*certificates.expired())
    else:
        context.load_cert_chain(*certificates.of("receiver"))
        old_only(context)
    server = serve(context)
    with pytest.raises((DeliveryError, RemoteError)) as refused:
        senders.send(name, server.url)
    if name not in ("apprise", "heartbeat"):  # which show no reason
        assert re.search("expired" if kind == "expired" else "(?i)version", str(refused.value))
    assert server.asked == []


@pytest.mark.parametrize("wish", ["verify=no", "redirect=yes"])
def test_a_service_that_would_believe_or_follow_anybody_is_refused(wish: str) -> None:
    with pytest.raises(ConfigError, match="URL 1 would follow redirects, or trust any"):
        list(apprise_services([f"jsons://hunter2@example.org/?{wish}"]))
