"""Commands over HTTP: to silence, to acknowledge, to take either back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.model.view import AlertView

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

MAX_BODY = 64 * 1024
"""Bytes."""

SILENCES = "/api/v1/silences"
ACKS = "/api/v1/acks"


class Silencing(Protocol):
    """Keeps what people ask not to be told. Times are Unix seconds."""

    def take_silence(self, body: bytes, now: float) -> str:
        """Keep a silence, given as JSON; its id. Raises `UsageError`."""
        ...

    def take_ack(self, body: bytes, alerts: Iterable[AlertView], now: float) -> str:
        """Keep an acknowledgement of one of the alerts; its id.

        Raises `UsageError`, and `LookupError` where the alert is not among them.
        """
        ...

    def expire(self, number: str, now: float) -> bool:
        """End a silence or an acknowledgement; False if there is none of this id."""
        ...

    def listing(self, now: float) -> Mapping[str, Any]:
        """What is kept, as plain values."""
        ...


class RefusedError(Exception):
    """A command is not done: `status` is a status line of HTTP, `text` says why."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def methods(path: str) -> tuple[str, ...]:
    """What may be asked of a path beyond GET and HEAD; empty if it takes no command."""
    if path in (SILENCES, ACKS):
        return ("POST",)
    return ("DELETE",) if path.startswith(f"{SILENCES}/") else ()


def obey(
    environ: WSGIEnvironment, silencing: Silencing, alerts: Iterable[AlertView], now: float
) -> tuple[str, dict[str, str]]:
    """Do what is asked: status line and JSON document of the answer. Raises `RefusedError`."""
    path = environ["PATH_INFO"]
    if "HTTP_ORIGIN" in environ:
        # Browsers send it with every command: a page must not speak for who looks at it.
        raise RefusedError("403 Forbidden", "commands are not taken from web pages")
    try:
        if environ["REQUEST_METHOD"] == "DELETE":
            number = path.removeprefix(f"{SILENCES}/")
            if not silencing.expire(number, now):
                raise RefusedError("404 Not Found", f"no silence of this id; {SILENCES} lists them")
            return "200 OK", {"silenceID": number}
        body = _body(environ)
        if path == ACKS:
            return "201 Created", {"silenceID": silencing.take_ack(body, alerts, now)}
        return "201 Created", {"silenceID": silencing.take_silence(body, now)}
    except UsageError as problem:
        raise RefusedError("400 Bad Request", str(problem)) from None
    except LookupError as problem:
        raise RefusedError("404 Not Found", f"{problem}; /api/v1/alerts lists them") from None


def _body(environ: WSGIEnvironment) -> bytes:
    told = environ.get("CONTENT_LENGTH", "")
    if not (told.isascii() and told.isdigit()):
        raise RefusedError("411 Length Required", "a body with its Content-Length is needed")
    if len(told) > len(str(MAX_BODY)) or int(told) > MAX_BODY:
        raise RefusedError("413 Content Too Large", f"at most {MAX_BODY} bytes")
    try:
        body: bytes = environ["wsgi.input"].read(int(told))
    except OSError:
        raise RefusedError("408 Request Timeout", "the body did not arrive") from None
    return body
