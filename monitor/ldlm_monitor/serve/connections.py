"""Connections: how many there may be, how long one may take, and what it may send as its head."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import LineTooLong
from socketserver import TCPServer, ThreadingMixIn
from typing import IO, Any, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
HEAD_SECONDS = 10.0
"""So long may the TLS handshake and the head of a request take together,"""
WHOLE_SECONDS = 60.0
"""and so long a connection may last, however slowly its client reads."""
MAX_REQUEST_LINE = 16 * 1024
MAX_HEAD = 32 * 1024
"""Bytes of all header lines; the library takes a hundred of them at most."""

_FULL = b"HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@dataclass(slots=True, eq=False)
class Connection:
    """A client. `socket` is what is read and written; the head has come once it was `heard`."""

    socket: socket.socket
    began: float
    heard: bool = False

    def cut(self) -> None:
        """Wake whatever waits for the client, in whichever thread: it fails, and ends."""
        with contextlib.suppress(OSError):
            # The plain shutdown: that of TLS would change what another thread is using.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Connections:
    """Those that are open. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[socket.socket, Connection] = {}

    def admit(self, accepted: socket.socket) -> bool:
        """Take it in; False where all places are taken by requests that are being answered.

        Where all are taken, the client that has kept us waiting longest for its request goes.
        """
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                waiting = [each for each in self._open.items() if not each[1].heard]
                if not waiting:
                    return False
                key, slowest = min(waiting, key=lambda each: each[1].began)
                del self._open[key]
                slowest.cut()
            self._open[accepted] = Connection(accepted, self._clock())
            return True

    def of(self, accepted: socket.socket) -> Connection:
        """The connection that was admitted; one that had to go meanwhile is cut anyway."""
        with self._lock:
            return self._open.get(accepted) or Connection(accepted, self._clock())

    def leave(self, accepted: socket.socket) -> None:
        """It is over."""
        with self._lock:
            self._open.pop(accepted, None)

    def cut_overdue(self) -> None:
        """End those that take too long."""
        now = self._clock()
        with self._lock:
            for each in self._open.values():
                if now - each.began > (WHOLE_SECONDS if each.heard else HEAD_SECONDS):
                    each.cut()


class ThreadingServer(ThreadingMixIn, WSGIServer):
    """Each request in a daemon thread. `tls` gives what to encrypt with, None for plain HTTP."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, family: int, address: tuple[str, int], tls: Callable[[], ssl.SSLContext | None]
    ) -> None:
        self.address_family = family
        self.connections = Connections()
        self._tls = tls
        super().__init__(address, WSGIRequestHandler)  # see `finish_request`

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is a place for it; one that is turned away is told so where that is quick.

        A client of TLS is not: it would not understand.
        """
        if self.connections.admit(request):
            return True
        with contextlib.suppress(OSError):
            if self._tls() is None:
                request.setblocking(False)
                request.send(_FULL)
        return False

    def service_actions(self) -> None:
        """Called by the library several times a second."""
        self.connections.cut_overdue()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer it, in its own thread; so the TLS handshake holds up nobody else."""
        connection = self.connections.of(request)
        context = self._tls()
        if context is None:
            _RequestHandler(request, client_address, self, connection)
            return
        request.settimeout(HEAD_SECONDS)
        with context.wrap_socket(
            request, server_side=True, do_handshake_on_connect=False
        ) as encrypted:
            connection.socket = encrypted  # first, so that it can be cut amid the handshake
            encrypted.do_handshake()
            _RequestHandler(encrypted, client_address, self, connection)
            encrypted.settimeout(0)
            with contextlib.suppress(OSError):
                encrypted.unwrap()  # says that this is the end, and waits for no answer

    def shutdown_request(self, request: Any) -> None:
        """Close it, and give its place to another."""
        self.connections.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up, sends nothing or speaks no TLS is no fault of ours."""
        if not isinstance(sys.exception(), OSError):
            log.error("a fault of ours while serving %s", client_address, exc_info=True)


class _Head:
    """The lines of a request's head, of MAX_HEAD bytes together."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = MAX_HEAD

    def readline(self, limit: int = -1) -> bytes:
        line = self._stream.readline(min(limit, self._left + 1) if limit >= 0 else self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head")
        return line


class _RequestHandler(WSGIRequestHandler):
    timeout = WHOLE_SECONDS

    def __init__(
        self, request: Any, client_address: Any, server: ThreadingServer, connection: Connection
    ) -> None:
        self._connection = connection
        super().__init__(request, client_address, server)

    def handle(self) -> None:
        """One request, as the library does it, of a bounded head."""
        self.raw_requestline = self.rfile.readline(MAX_REQUEST_LINE + 1)
        if len(self.raw_requestline) > MAX_REQUEST_LINE:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
            return
        stream = cast(IO[bytes], self.rfile)
        self.rfile = _Head(stream)  # type: ignore[assignment]
        try:
            if not self.parse_request():
                return
        finally:
            self.rfile = stream  # type: ignore[assignment]
        self._connection.heard = True
        written = cast(IO[bytes], self.wfile)
        handler = ServerHandler(stream, written, self.get_stderr(), self.get_environ())
        handler.request_handler = self  # type: ignore[attr-defined]
        handler.run(self.server.get_app())  # type: ignore[attr-defined]

    def version_string(self) -> str:
        """What answers of the library's own tell of us."""
        return "ldlm-monitor"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # so named above
        """Requests are not logged."""
