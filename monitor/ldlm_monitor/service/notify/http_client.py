"""HTTP requests to receivers: no redirect is followed, answers are bounded, one kind of error."""

import time
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from typing import Final
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, ProxyHandler, Request

from ldlm_monitor.base.errors import ConfigError, DeliveryError
from ldlm_monitor.base.text.addresses import is_loopback
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.base.timed_answers import opener_within

PERMANENT: Final = frozenset({400, 401, 403, 404, 405, 410, 413})
"""HTTP statuses that the same request would get again: it is wrong, refused or without a target."""
TIMEOUT_SECONDS: Final = 10
"""Seconds of each wait for a server: a choice; fewer would fail slow servers, more delay news."""
WHOLE_ANSWER_SECONDS: Final = 30
"""Seconds until the whole answer must have come: a choice; a byte now and then must not hold back
what waits."""
_ANSWER_LIMIT: Final = 4096
"""Bytes of an answer that are read: enough for an error's text; a hostile server may send more."""
SHOWN: Final = 200  # characters of an answer that an error shows: about two lines of a log


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A server's answer; `body` may be cut, and names of `headers` are matched in any case."""

    status: int
    body: str
    headers: Message

    @property
    def retry_after(self) -> float | None:
        """Seconds by `Retry-After` (RFC 9110, 10.2.3), a number or date; None if missing or bad."""
        value = self.headers.get("Retry-After") or ""
        if value.strip().isdecimal():
            return float(value)
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except (ValueError, OverflowError):  # no date, or one beyond what a date can be
            return None


class _EveryAnswer(HTTPErrorProcessor):
    """Returns every answer as it is, redirects included.

    To follow a redirect would turn a POST into a GET of another server, whose 200 is no delivery.
    """

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        return response

    https_response = http_response


def post(
    request: Request, begin: str = "", *, limit: int = _ANSWER_LIMIT, unsure: bool = False
) -> HttpAnswer:
    """Send a request; `limit` bounds the bytes of the answer.

    Raises DeliveryError if no answer comes. The error's text begins with `begin` and never shows
    the URL; `unsure` is passed on to the error: whether the message may have arrived all the same.
    Proxies are those of the environment (`https_proxy`, `no_proxy`), but none for this machine.
    """
    host = request.host
    direct = [ProxyHandler({})] if is_loopback(urlsplit(request.full_url).hostname) else []
    opener = opener_within(WHOLE_ANSWER_SECONDS, _EveryAnswer(), *direct)
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            body = b""
            with suppress(OSError, HTTPException):  # the status has arrived: it alone decides
                body = answer.read(limit)
            return HttpAnswer(answer.status, body.decode("utf-8", "replace"), answer.headers)
    except (OSError, HTTPException, ValueError) as error:
        reason = plain(str(getattr(error, "reason", None) or error), SHOWN)
        proxy = f" through the proxy {plain(request.host, SHOWN)}" if request.host != host else ""
        what = f"{begin}could not be reached{proxy}: {reason}"
        raise DeliveryError(what, unsure=unsure) from None


def deliver(request: Request, begin: str = "", *, show_body: bool = True) -> None:
    """Send a request. Raises DeliveryError, which never shows the URL, unless it was accepted.

    The error's text begins with `begin` and, with `show_body`, contains the answer's text.
    """
    check_accepted(post(request, begin), begin, show_body=show_body)


def check_accepted(answer: HttpAnswer, begin: str = "", *, show_body: bool = True) -> None:
    """Raises DeliveryError unless `answer` is a success; its text is as that of `deliver`."""
    if not 200 <= answer.status < 300:
        said = plain(answer.body, SHOWN) if show_body else ""
        if 300 <= answer.status < 400:
            said = said or "a redirect, which is not followed: give the URL that it leads to"
        raise DeliveryError(
            f"{begin}answered {answer.status}{': ' if said else ''}{said}",
            retry_after=answer.retry_after,
            permanent=answer.status in PERMANENT,
        )


def checked_url(url: str, where: str, remedy: str) -> str:
    """`url`, checked: it must be ASCII, and either https or plain http to this machine.

    Otherwise others could read what is sent. Raises ConfigError, which does not show the URL;
    `where` and `remedy` are parts of its text.
    """
    try:
        parts = urlsplit(url)
        is_local = parts.scheme == "http" and is_loopback(parts.hostname)
        is_private = parts.scheme == "https" or is_local
        is_named = bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:
        is_private = is_named = False
    is_plain = url.isascii() and not any(char <= " " or char == "\x7f" for char in url)
    if not (is_private and is_named and is_plain):
        raise ConfigError("is not an ASCII https URL with a host", where=where, remedy=remedy)
    return url
