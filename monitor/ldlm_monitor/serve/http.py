"""The HTTP server: a plain function from request to answer, and threads around it."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from ldlm_monitor.queries import Source
from ldlm_monitor.serve import api, commands, questions
from ldlm_monitor.serve.metrics import exposition
from ldlm_monitor.view import Snapshot

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

log = logging.getLogger(__name__)

REQUEST_SECONDS = 30
"""So long may a client take over one read or write."""

_TEXT = "text/plain; charset=utf-8"
_HEADERS = (
    ("Server", "ldlm-monitor"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Status line, content type, and body of one response; `tag` names this state of it."""

    status: str
    content_type: str
    body: bytes
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is served: each part is asked anew for every request.

    `notifications` is `Outbox.counts`, `behind` and `free` give bytes. `redact` is applied to
    every text of the JSON API. `reload` loads the settings anew and returns what went
    wrong (None: not from here). `silencing` lists silences and, with `takes_commands`,
    takes new ones. `source` answers what a screen asks beyond the snapshot.
    """

    snapshot: Callable[[], Snapshot]
    notifications: Callable[[], Mapping[tuple[str, str], int]]
    behind: Callable[[], int]
    ready: Callable[[], bool]
    redact: Callable[[str], str] = str
    reload: Callable[[], str] | None = None
    silencing: commands.Silencing | None = None
    takes_commands: bool = False
    source: Source | None = None
    free: Callable[[], int | None] = lambda: None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI application."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        allowed = commands.methods(path) if self.silencing is not None else ()
        more: list[tuple[str, str]] = []
        if method in ("POST", "PUT") and path == "/-/reload":
            answer = self._reload(environ)
        elif method in ("GET", "HEAD"):
            answer = self._safely(path, lambda: self._answer_to(environ))
        elif method in allowed:
            answer = self._safely(path, lambda: self._obey(environ))
        else:
            may = ", ".join(("GET", "HEAD", *allowed))
            answer, more = _line("405 Method Not Allowed", f"only {may}"), [("Allow", may)]
        if answer.tag:
            more.append(("ETag", answer.tag))
            if environ.get("HTTP_IF_NONE_MATCH") == answer.tag:
                answer = Answer("304 Not Modified", answer.content_type, b"")
        about = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
        ]
        start_response(answer.status, [*about, *more, *_HEADERS])
        return [] if method == "HEAD" else [answer.body]

    def _safely(self, path: str, answer: Callable[[], Answer]) -> Answer:
        try:
            return answer()
        except Exception:  # a request's thread ends here, and the client is to hear of it
            log.exception("a fault of ours while answering %s", path[:200])
            return _line("500 Internal Server Error", "a fault of the monitor; its log tells more")

    def _answer_to(self, environ: WSGIEnvironment) -> Answer:
        path = environ["PATH_INFO"]
        if self.source is not None and path in (questions.SERIES, questions.LOGS):
            try:
                document = questions.answer(self.source, path, environ.get("QUERY_STRING", ""))
            except commands.RefusedError as refusal:
                return _line(refusal.status, self.redact(refusal.text))
            return self._json("200 OK", document)
        return self.answer(path, environ.get("HTTP_ACCEPT", ""), environ.get("HTTP_IF_NONE_MATCH"))

    def answer(self, path: str, accept: str, known: str | None = None) -> Answer:
        """The response to a GET of `path`; `known` is the ETag of what the client has."""
        match path:
            case "/metrics":
                return Answer("200 OK", *self._metrics(accept))
            case "/-/healthy":
                return _line("200 OK", "healthy")
            case "/-/ready":
                return (
                    _line("200 OK", "ready")
                    if self.ready()
                    else _line("503 Service Unavailable", "not ready")
                )
            case "/":
                page = api.landing_page(self.snapshot())
                return Answer("200 OK", "text/html; charset=utf-8", page)
        return self._resource(path, known)

    def _resource(self, path: str, known: str | None) -> Answer:
        if path == commands.SILENCES and self.silencing is not None:
            return self._json("200 OK", self.silencing.listing(time.time()))
        for name in api.RESOURCES:
            if path == f"/api/v1/{name}":
                snapshot = self.snapshot()
                tag = api.tag(snapshot, name)
                unchanged = known == tag
                body = b"" if unchanged else api.resource(snapshot, name, self.redact)
                return Answer("200 OK", "application/json", body, tag)
        return _line("404 Not Found", "no such page; / lists what there is")

    def _reload(self, environ: WSGIEnvironment) -> Answer:
        # A browser names the page that sends a POST: no page may command the monitor.
        if self.reload is None or "HTTP_ORIGIN" in environ:
            return _line("403 Forbidden", "only where the monitor listens on loopback")
        problem = self.reload()
        if problem:
            return _line("500 Internal Server Error", self.redact(problem))
        return _line("200 OK", "reloaded")

    def _obey(self, environ: WSGIEnvironment) -> Answer:
        if self.silencing is None or not self.takes_commands:
            return _line("403 Forbidden", "only where the monitor listens on loopback")
        try:
            alerts, now = self.snapshot().alerts, time.time()
            return self._json(*commands.obey(environ, self.silencing, alerts, now))
        except commands.RefusedError as refusal:
            return _line(refusal.status, self.redact(refusal.text))

    def _json(self, status: str, document: Mapping[str, object]) -> Answer:
        return Answer(status, "application/json", api.encoded(document, self.redact))

    def _metrics(self, accept: str) -> tuple[str, bytes]:
        return exposition(
            self.snapshot(),
            notifications=self.notifications(),
            behind=self.behind(),
            free=self.free(),
            accept=accept,
        )


def _line(status: str, text: str) -> Answer:
    return Answer(status, _TEXT, f"{text}\n".encode())


class Server:
    """Serves a Site on one address, each request in a daemon thread.

    Binds at once (port 0: any free one); raises OSError if the address is taken.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        snapshot: Callable[[], Snapshot],
        notifications: Callable[[], Mapping[tuple[str, str], int]],
        behind: Callable[[], int],
        ready: Callable[[], bool],
        redact: Callable[[str], str] = str,
        reload: Callable[[], str] | None = None,
        silencing: commands.Silencing | None = None,
        takes_commands: bool = False,
        source: Source | None = None,
        free: Callable[[], int | None] = lambda: None,
    ) -> None:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._server = _ThreadingServer(family, (str(address[0]), port))
        self._server.set_app(
            Site(
                snapshot=snapshot,
                notifications=notifications,
                behind=behind,
                ready=ready,
                redact=api.remembering(redact),
                reload=reload,
                silencing=silencing,
                takes_commands=takes_commands,
                source=source,
                free=free,
            )
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="http"
        )
        self._thread.daemon = True

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port; requests under way are not waited for."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, family: int, address: tuple[str, int]) -> None:
        self.address_family = family
        super().__init__(address, _RequestHandler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up or sends nothing is no fault of ours."""
        if not isinstance(sys.exception(), OSError):
            log.error("a fault of ours while serving %s", client_address, exc_info=True)


class _RequestHandler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # so named above
        """Requests are not logged."""
