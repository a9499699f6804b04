"""HTTP clients whose answers end within a time, however slowly a server sends them."""

import ssl
import time
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from socket import socket
from typing import Any
from urllib.request import (
    BaseHandler,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)


def opener_within(
    seconds: float, *handlers: BaseHandler, tls: ssl.SSLContext | None = None
) -> OpenerDirector:
    """An opener that raises `TimeoutError` where an answer is not complete after `seconds`.

    The timeout that `open` is given bounds each wait alone: a byte now and then would hold a thread
    for ever. `tls`: the authorities to trust, by default the system's.
    """
    return build_opener(_Http(seconds), _Https(seconds, tls), *handlers)


class _Until(RawIOBase):
    """Reads a connection up to a time."""

    def __init__(self, raw: RawIOBase, connection: socket, seconds: float) -> None:
        super().__init__()
        self._raw = raw
        self._connection = connection
        self._wait = connection.gettimeout() or seconds
        self._until = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(min(left, self._wait))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(HTTPResponse):
    def __init__(self, sock: socket, *args: Any, seconds: float, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp = BufferedReader(_Until(self.fp.detach(), sock, seconds))


def _connected(kind: type[HTTPConnection], seconds: float, host: str, **more: Any) -> Any:
    connection = kind(host, **more)
    connection.response_class = partial(_Answer, seconds=seconds)  # type: ignore[assignment]
    return connection


class _Http(HTTPHandler):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_connected, HTTPConnection, self._seconds), req)


class _Https(HTTPSHandler):
    def __init__(self, seconds: float, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._seconds = seconds
        self._tls = tls

    def https_open(self, req: Request) -> HTTPResponse:
        connection = partial(_connected, HTTPSConnection, self._seconds, context=self._tls)
        return self.do_open(connection, req)
