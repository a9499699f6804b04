"""Slack's Web API, which a bot calls.

The error codes below are those of
https://docs.slack.dev/reference/methods/chat.postMessage#errors and of the other methods that a
bot calls.
"""

import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request

from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.http_client import SHOWN, HttpAnswer, post
from ldlm_monitor.text.sanitize import plain

_ANSWER_LIMIT = 4 << 20
"""Bytes of an answer that are read: a choice; 4 KiB for each of the 999 messages of a search."""

_LIMITED = frozenset({"ratelimited", "rate_limited"})  # error codes of too many requests
_GONE = frozenset(  # the message was deleted, or may not be edited any more
    {"message_not_found", "thread_not_found", "cant_update_message", "edit_window_closed"}
)
REFUSED_FORMS = frozenset(  # Slack refuses the blocks, but may accept the text alone
    {
        *("invalid_blocks", "invalid_blocks_format", "invalid_arguments", "msg_blocks_too_long"),
        *("invalid_metadata_format", "metadata_too_large", "msg_too_long", "no_text"),
    }
)
_OF_THE_SERVER = frozenset(  # failures of Slack itself
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
)


class GoneError(Exception):
    """The message, or its thread, does not exist any more or cannot be edited."""


class RefusedError(Exception):
    """Slack refuses the form of a message."""


class MendableError(DeliveryError):
    """A wrong token, scope or channel: messages wait until a person corrects it."""


class SlackApi:
    """Calls methods of the Web API with a bot's token, which is never logged or shown.

    `url`: the API's. `scopes`: the token's by the last successful answer, empty if it named none.
    """

    def __init__(self, url: str, token: str) -> None:
        self.scopes: frozenset[str] = frozenset()
        self._url = url.rstrip("/") + "/"
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "ldlm-monitor"}

    def call(self, method: str, **fields: object) -> dict[str, Any]:
        """The fields of a method's answer. Raises DeliveryError, `GoneError` or `RefusedError`."""
        form = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in fields.items()
        }
        request = Request(self._url + method, urlencode(form).encode(), self._headers)
        answer = post(request, "slack ", limit=_ANSWER_LIMIT, unsure=True)
        given: Any = None
        with suppress(ValueError):
            given = json.loads(answer.body)
        if not isinstance(given, dict) or not given.get("ok"):
            code = str(given.get("error") or "") if isinstance(given, dict) else ""
            raise _meaning(answer, plain(code, SHOWN))
        scopes = answer.headers.get("x-oauth-scopes", "").split(",")
        self.scopes = frozenset(scope.strip() for scope in scopes if scope.strip())
        return given


def _meaning(answer: HttpAnswer, code: str) -> Exception:
    """The exception to raise for an error `code`: DeliveryError, GoneError or RefusedError."""
    wait = answer.retry_after
    if answer.status == 429 or code in _LIMITED:
        return DeliveryError("slack limits the rate", retry_after=wait)
    if code in _GONE:
        return GoneError(code)
    if code in REFUSED_FORMS:
        return RefusedError(f"slack refused it: {code}")
    if not code or code in _OF_THE_SERVER or answer.status >= 500:
        what = f": {code}" if code else ""
        return DeliveryError(f"slack answered {answer.status}{what}", retry_after=wait, unsure=True)
    return MendableError(f"slack refused it: {code}; check the bot's token, scopes and channel")
