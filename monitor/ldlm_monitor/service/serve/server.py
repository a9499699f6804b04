"""The HTTP server: hypercorn in a thread of its own, with bounds on a request's size and time."""

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.typing import LifespanState
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ldlm_monitor.service.serve.connections import BACKLOG, REQUEST_SECONDS, Listener
from ldlm_monitor.service.serve.routes import Routes
from ldlm_monitor.service.serve.site import Site
from ldlm_monitor.service.serve.web_config import Gate

MAX_HEAD = 32 * 1024
"""Bytes of the request line and all header lines: several times what browsers send with cookies."""
MAX_BODY = 64 * 1024  # bytes of a request's body: far more than a silence with its matchers has

_STOP_SECONDS = 1.0
"""Seconds that `stop` waits to cut all connections: a choice; a hanging handler delays the end."""
_TOO_LARGE = PlainTextResponse(f"the body may have at most {MAX_BODY} bytes\n", 413)
_HEADERS = [  # answers contain log text: caches must not store it, nor browsers run or embed it
    (b"server", b"ldlm-monitor"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
"""The header of answers that have none of their own: a page may run its own script."""

log = logging.getLogger(__name__)


class _Config(Config):
    keep_alive_timeout = REQUEST_SECONDS  # the deadline of an idle connection
    h11_max_incomplete_size = MAX_HEAD
    # 0: no bound. `_ServerLimits` reads a body up to MAX_BODY and then answers. A full queue would
    # block hypercorn's reader on the rest of a larger body, and the request would never end.
    max_app_queue_size = 0
    include_server_header = False  # _HEADERS has it without a version
    errorlog = log.getChild("hypercorn")

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """The headers of every response, also of hypercorn's own errors."""
        return [*super().response_headers(protocol), *_HEADERS]


class _ServerLimits:
    """ASGI middleware: bounds a request's size and the time it takes.

    It reads the body before it calls `app` and puts it into `scope["state"]["body"]`: a client
    that is still sending its body counts as waiting, and handlers may run in threads.
    """

    def __init__(self, app: ASGIApp, listener: Listener) -> None:
        self._app = app
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # ASGI
        client = self._listener.clients.get(scope["client"])
        if client is None:
            return
        # hypercorn switches to HTTP/2 and to WebSockets on request. The monitor does not use
        # them, and the deadlines are those of one request at a time.
        if scope["type"] != "http" or scope["http_version"] == "2":
            client.cut()
            return
        app = _refusal(scope)
        if app is None:
            body = await _body(receive)
            if body is None:
                return
            scope["state"]["body"] = body
            app = self._app if len(body) <= MAX_BODY else _TOO_LARGE
        client.begin(answering=True)

        async def sending(message: Message) -> None:
            await send(message)
            if scope["state"].get("renews_deadline"):  # a stream, for each part that was read
                client.begin(answering=True)

        try:
            await app(scope, receive, partial(_with_policy, sending))
        finally:
            client.begin(answering=False)


async def _with_policy(send: Send, message: Message) -> None:
    if message["type"] == "http.response.start" and _POLICY[0] not in dict(message["headers"]):
        message = {**message, "headers": [*message["headers"], _POLICY]}
    await send(message)


def _refusal(scope: Scope) -> ASGIApp | None:
    """The answer to a request that is too large by its head; None for all other requests."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    # h11 does not apply its limit to a head that arrives in one piece. 4: `: ` and the line's end.
    line = len(scope["raw_path"]) + len(scope["query_string"])
    if line + sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEAD:
        return PlainTextResponse(f"request line and headers: at most {MAX_HEAD} bytes\n", 431)
    # h11 has checked that Content-Length is a number.
    if int(dict(headers).get(b"content-length", b"0")) > MAX_BODY:
        return _TOO_LARGE
    return None


async def _body(receive: Receive) -> bytes | None:
    """The request's body, or a little more than MAX_BODY of it; None if the client has gone."""
    body = b""
    while len(body) <= MAX_BODY:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            break
    return body


class _ReloadedContext(ssl.SSLContext):
    """Delegates each new connection to the TLS context that the gate loaded last."""

    gate: Gate

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        context = self.gate.tls()
        assert context is not None
        return context.wrap_bio(*args, **options)


class Server:
    """Serves a Site on one address, in a thread with an event loop of its own.

    Binds at once (port 0: any free port). Raises OSError if the address cannot be used.
    """

    def __init__(self, host: str, port: int, site: Site) -> None:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._site = site
        self._listener = Listener(family, (str(address[0]), port), encrypts=site.gate.encrypts)
        self.port: int = self._listener.getsockname()[1]
        self._app = ASGIWrapper(cast(Any, _ServerLimits(Routes(site).app(), self._listener)))
        self._stopping: Future[None] = Future()
        # The threads of handlers inherit `daemon`: one that hangs does not delay the exit.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="http", daemon=True
        )

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port and cut all connections; requests in progress are not waited for."""
        if self._thread.is_alive():
            self._stopping.set_result(None)
            self._thread.join(_STOP_SECONDS)
        self._listener.close()

    async def _serve(self) -> None:
        context = None
        if self._site.gate.encrypts:
            context = _ReloadedContext(ssl.PROTOCOL_TLS_SERVER)
            context.gate = self._site.gate
        mounted = self._site.mounted
        async with contextlib.nullcontext() if mounted is None else mounted.run():
            await asyncio.start_server(
                self._serve_connection, sock=self._listener, ssl=context, backlog=BACKLOG
            )
            await asyncio.wrap_future(self._stopping)
            self._listener.cut_all()

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Runs hypercorn on one connection, as a task that `ClientConnection` can cancel.

        `hypercorn.asyncio.serve` gives no access to its tasks, and hypercorn keeps a connection
        that was reset until its keep-alive ends, and one that requested HTTP/2 for ever.
        """
        client = self._listener.clients.get(writer.get_extra_info("peername")[:2])
        if client is None:  # cut during its TLS handshake
            writer.transport.abort()
            return
        client.task = asyncio.current_task()
        loop, context = asyncio.get_running_loop(), WorkerContext(None)
        # `cut` cancels this task, which asyncio would log as an error.
        with contextlib.suppress(asyncio.CancelledError):
            await TCPServer(self._app, loop, _Config(), context, LifespanState(), reader, writer)
