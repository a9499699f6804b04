"""Bounds on the number of connections and on their time.

hypercorn accepts any number, and its `read_timeout` starts again with each byte: a client that
sends slowly, or does not read its answer, would hold a connection for ever. Therefore the
listening socket counts its connections, and each has one deadline at a time.
"""

import asyncio
import contextlib
import socket
from typing import Any, TypeAlias

MAX_CONNECTIONS = 64
"""At once: a choice; a Prometheus and some screens need fewer, each may hold a whole answer."""
REQUEST_SECONDS = 10.0
"""Seconds for a TLS handshake and a request, or to be idle: a choice; fewer cut slow clients."""
ANSWER_SECONDS = 60.0
"""Seconds from a request's end until its answer is sent: a choice; slow links send megabytes."""
BACKLOG = 64
"""Connections that the kernel queues: a burst of MAX_CONNECTIONS waits and is not refused."""

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Address: TypeAlias = tuple[str, int]  # host and port


class ClientConnection(socket.socket):
    """An accepted connection with one `deadline` (loop time), for the event loop's thread only."""

    def __init__(self, accepted: socket.socket, listener: "Listener", address: Address) -> None:
        super().__init__(fileno=accepted.detach())
        self.task: asyncio.Task[None] | None = None
        self.deadline = 0.0
        self.is_answering = False
        self._clients = listener.clients
        self._address = address
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, *, answering: bool) -> None:
        """Start the deadline for the next request or, if `answering`, for the answer to one."""
        self.is_answering = answering
        if self._clients.get(self._address) is not self:
            self.cut()
            return
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self.deadline = loop.time() + (ANSWER_SECONDS if answering else REQUEST_SECONDS)
        self._timer = loop.call_at(self.deadline, self.cut)

    def cut(self) -> None:
        """End the connection at any stage: every pending read and write fails at once."""
        self._forget()
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; asyncio calls it when the connection has ended."""
        self._forget()
        super().close()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._clients.get(self._address) is self:
            del self._clients[self._address]
        # A handler's thread cannot be cancelled: its task goes on, so that MAX_BLOCKING counts it.
        if self.task is not None and not self.is_answering:
            self.task.cancel()


class Listener(socket.socket):
    """A listening socket with at most MAX_CONNECTIONS. Raises OSError if it cannot bind or listen.

    asyncio calls its `accept`, so a connection is counted before its TLS handshake (`encrypts`).
    """

    def __init__(self, family: int, address: Address, *, encrypts: bool) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self.clients: dict[Address, ClientConnection] = {}
        self._encrypts = encrypts
        self._is_stopping = False
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
            # Two sockets with SO_REUSEADDR may bind one port; only one may listen on it.
            self.listen(BACKLOG)
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; a full server first cuts the client that has been idle longest.

        Only clients whose request has not arrived yet are cut. If there is none, the new
        connection is closed, without TLS after a 503: a handshake for that would cost too much.
        """
        while True:
            accepted, address = super().accept()
            if not self._is_stopping and self._has_place():
                client = self.clients[address[:2]] = ClientConnection(accepted, self, address[:2])
                client.begin(answering=False)
                return client, address
            with contextlib.suppress(OSError), accepted:
                if not self._encrypts:
                    accepted.setblocking(False)
                    accepted.send(_FULL)

    def _has_place(self) -> bool:
        if len(self.clients) < MAX_CONNECTIONS:
            return True
        waiting = [client for client in self.clients.values() if not client.is_answering]
        if waiting:
            # All of them have REQUEST_SECONDS, so the earliest deadline is the longest wait.
            min(waiting, key=lambda client: client.deadline).cut()
        return bool(waiting)

    def cut_all(self) -> None:
        """Cut every connection and accept none from now on."""
        self._is_stopping = True
        for client in list(self.clients.values()):
            client.cut()
