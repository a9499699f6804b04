"""Slack's Web API: the client, and what its answers mean for a message.

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
from ldlm_monitor.notify.http_client import post, retry_after, unreachable
from ldlm_monitor.text.sanitize import plain

_ANSWER_LIMIT = 4 << 20
"""Bytes of an answer: 200 messages of a channel with their blocks are some hundred KiB."""

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
    """The message, or its thread, does not exist any more."""


class RefusedError(Exception):
    """Slack refuses the form of a message."""


class MendableError(DeliveryError):
    """A wrong token, scope or channel: it waits until a person corrects that."""


class SlackClient(WebClient):
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
        raise unreachable(error, "slack ", unsure=True) from None


def _meaning(error: SlackApiError) -> Exception:
    """The error that an answer means for the message."""
    response = error.response
    if isinstance(response, SlackResponse):
        status, headers = response.status_code, response.headers
        code = str(response.get("error") or "")
    else:
        status, headers, code = response.get("status", 0), response.get("headers", {}), ""
    header = next((value for key, value in headers.items() if key.lower() == "retry-after"), None)
    if status == 429 or code in _LIMITED:
        return DeliveryError("slack limits the rate", retry_after=retry_after(str(header or "")))
    if not code.replace("_", "").isalnum():
        code = ""  # the SDK's text about an answer that is not the API's
    if code in _GONE:
        return GoneError(code)
    if code in _OF_THE_MESSAGE:
        return RefusedError(f"slack refused it: {plain(code, 200)}")
    if not code or code in _OF_THE_SERVER or status >= 500:
        what = f": {plain(code, 200)}" if code else ""
        return DeliveryError(
            f"slack answered {status}{what}",
            retry_after=retry_after(str(header or "")),
            unsure=True,
        )
    return MendableError(f"slack refused it: {plain(code, 200)}; check the bot's token and channel")
