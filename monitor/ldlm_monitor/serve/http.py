"""The HTTP server: a plain function from request to answer, and threads around it."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ldlm_monitor.model.queries import Source
from ldlm_monitor.model.view import Snapshot
from ldlm_monitor.serve import api, commands, questions
from ldlm_monitor.serve.access import Access, Grant
from ldlm_monitor.serve.connections import ThreadingServer
from ldlm_monitor.serve.host_names import NOT_OURS, HostNames
from ldlm_monitor.serve.metrics import exposition
from ldlm_monitor.serve.web_config import Gate

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

log = logging.getLogger(__name__)

MAX_PATH = 1024
"""Characters of a path."""

_ONLY = "only where the monitor listens on loopback, or with a bearer token"
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
    every text that may come from a log. `reload` loads the settings anew and returns what went
    wrong. `silencing` keeps silences. `source` answers what a screen asks beyond the snapshot.
    `gate` says who may ask; commands take a bearer token, or `takes_commands` (as on loopback).
    `names` are those that it may be asked by, where neither credentials nor a certificate tell
    whom a client means; None: any.
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
    gate: Gate = field(default_factory=Gate)
    names: HostNames | None = None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI application."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        access = self.gate.access()
        grant = access.judge(environ.get("HTTP_AUTHORIZATION", ""))
        allowed = commands.methods(path) if self.silencing is not None else ()
        more: list[tuple[str, str]] = []
        if not self._is_meant(environ, access):
            answer = _line("421 Misdirected Request", NOT_OURS)
        elif grant is None:
            answer = _line("401 Unauthorized", "credentials are needed")
            more = [("WWW-Authenticate", access.challenge)]
        elif len(path) > MAX_PATH:
            answer = _line("414 URI Too Long", f"at most {MAX_PATH} characters")
        elif method in ("POST", "PUT") and path == "/-/reload":
            answer = self._reload(environ, grant)
        elif method in ("GET", "HEAD"):
            answer = self._safely(path, lambda: self._answer_to(environ))
        elif method in allowed:
            answer = self._safely(path, lambda: self._obey(environ, grant))
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

    def _is_meant(self, environ: WSGIEnvironment, access: Access) -> bool:
        if self.names is None or self.gate.encrypts or access.asks:
            return True
        return self.names.know(environ.get("HTTP_HOST"))

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
                page = api.landing_page(self.snapshot(), self.redact)
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

    def _may_command(self, grant: Grant) -> bool:
        return self.takes_commands or grant == "token"

    def _reload(self, environ: WSGIEnvironment, grant: Grant) -> Answer:
        # A browser names the page that sends a POST: no page may command the monitor.
        if self.reload is None or "HTTP_ORIGIN" in environ or not self._may_command(grant):
            return _line("403 Forbidden", _ONLY)
        problem = self.reload()
        if problem:
            return _line("500 Internal Server Error", self.redact(problem))
        return _line("200 OK", "reloaded")

    def _obey(self, environ: WSGIEnvironment, grant: Grant) -> Answer:
        if self.silencing is None or not self._may_command(grant):
            return _line("403 Forbidden", _ONLY)
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
            redact=self.redact,
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
        gate: Gate | None = None,
        names: HostNames | None = None,
    ) -> None:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        gate = gate or Gate()
        self._server = ThreadingServer(family, (str(address[0]), port), gate.tls)
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
                gate=gate,
                names=names,
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
