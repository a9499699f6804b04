"""A request whose answer is taken as it is: no redirect is followed, its text is bounded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from urllib.request import HTTPErrorProcessor, Request, build_opener

PERMANENT = frozenset({400, 401, 403, 404, 405, 410, 413})
"""Answers that another attempt would not change."""
_ANSWER_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said; `headers` whatever the case of their names."""

    status: int
    body: str
    headers: Message

    @property
    def retry_after(self) -> float | None:
        """Seconds of its `Retry-After`."""
        return retry_after(self.headers.get("Retry-After"))


class _EveryAnswer(HTTPErrorProcessor):
    """Hands every answer back as it is.

    A redirect is not followed: it would turn the POST into a GET of another
    server, whose 200 is no delivery.
    """

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        return response

    https_response = http_response


def post(request: Request, timeout: float, *, limit: int = _ANSWER_LIMIT) -> Answer:
    """Send it; `timeout` (seconds) bounds each wait, `limit` the bytes of the answer.

    Raises OSError and HTTPException.
    """
    with build_opener(_EveryAnswer()).open(request, timeout=timeout) as answer:
        try:
            body = answer.read(limit).decode("utf-8", "replace")
        except (OSError, HTTPException):
            body = ""  # the status has come: it alone decides
        return Answer(answer.status, body, answer.headers)


def retry_after(value: str | None) -> float | None:
    """Seconds of a `Retry-After` header, which gives seconds or a date (RFC 9110, 10.2.3)."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
