"""Slack's Web API: the client that asks it, and what its answers mean for a message.

Codes of errors: https://docs.slack.dev/reference/methods/chat.postMessage#errors and those of
the other methods that a bot calls.
"""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.request import Request

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web import SlackResponse

from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.notify.post import post, retry_after
from ldlm_monitor.notify.slack import short

_ANSWER_LIMIT = 4 << 20
"""Bytes."""

_LIMITED = frozenset({"ratelimited", "rate_limited"})
_GONE = frozenset({"message_not_found", "thread_not_found", "cant_update_message"})
_OF_THE_MESSAGE = frozenset(
    {
        "invalid_blocks",
        "invalid_blocks_format",
        "invalid_arguments",
        "invalid_metadata_format",
        "metadata_too_large",
        "msg_blocks_too_long",
        "msg_too_long",
        "no_text",
    }
)
_OF_THE_SERVER = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
)


class GoneError(Exception):
    """The message, or its thread, is not there any more."""


class RefusedError(Exception):
    """Slack does not take a message of this form."""


class MendableError(DeliveryError):
    """A token, a scope or a channel: people mend it, and lose nothing meanwhile."""


class Client(WebClient):
    """Follows no redirect, and bounds what it reads."""

    def _perform_urllib_http_request_internal(self, url: str, req: Request) -> dict[str, Any]:
        answer = post(req, self.timeout, limit=_ANSWER_LIMIT)
        return {
            "status": answer.status,
            "headers": dict(answer.headers.items()),
            "body": answer.body,
        }


def call(method: Callable[..., SlackResponse], **arguments: Any) -> SlackResponse:
    """Raises DeliveryError, `GoneError` and `RefusedError`."""
    try:
        return method(**arguments)
    except SlackApiError as error:
        raise _meaning(error) from None
    except (OSError, HTTPException, SlackClientError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DeliveryError(
            f"slack could not be reached: {short(str(reason))}", unsure=True
        ) from None


def _meaning(error: SlackApiError) -> Exception:
    """What an answer means for the message."""
    response = error.response
    if isinstance(response, SlackResponse):
        status, headers = response.status_code, response.headers
        code = str(response.get("error") or "")
    else:
        status, headers, code = response.get("status", 0), response.get("headers", {}), ""
    wish = next((value for key, value in headers.items() if key.lower() == "retry-after"), None)
    if status == 429 or code in _LIMITED:
        return DeliveryError("slack asks for patience", retry_after=retry_after(str(wish or "")))
    if not code.replace("_", "").isalnum():
        code = ""  # the SDK's words about an answer that is none of the API's
    if code in _GONE:
        return GoneError(code)
    if code in _OF_THE_MESSAGE:
        return RefusedError(f"slack refused it: {short(code)}")
    if not code or code in _OF_THE_SERVER or status >= 500:
        what = f": {short(code)}" if code else ""
        return DeliveryError(
            f"slack answered {status}{what}", retry_after=retry_after(str(wish or "")), unsure=True
        )
    return MendableError(f"slack refused it: {short(code)}; check the bot's token and channel")
