"""Slack by a bot's token: one message per incident, edited as the incident develops.

News and reminders are replies in its thread. Reminders, and news worse than all before, also appear
in the channel: an edit notifies nobody. Methods (https://docs.slack.dev/reference/methods):
chat.postMessage, chat.update, files.getUploadURLExternal, files.completeUploadExternal. Scopes:
`chat:write`; `files:write` for pictures; `channels:history` (of a private channel `groups:history`)
to find, after a crash, messages that had arrived. The error codes are those of
https://docs.slack.dev/reference/methods/chat.postMessage#errors and of the other methods.
"""

import json
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import Request

from ldlm_monitor.base.errors import ConfigError, DeliveryError
from ldlm_monitor.base.names import severity_rank
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.service.notify.content import Content, news_of, whole_of
from ldlm_monitor.service.notify.http_client import SHOWN, HttpAnswer, checked_url, deliver, post
from ldlm_monitor.service.notify.message import Message, Receipt
from ldlm_monitor.service.notify.receiver import MessageReceiver, TrialAlert
from ldlm_monitor.service.notify.slack_message import REFUSED_FORMS, as_code, drawn

API_URL = "https://slack.com/api/"  # as in Slack's documentation
EVENT = "ldlm_monitor_alert"
"""The type of the metadata by which the bot recognises its own messages."""
SEARCHED, SEARCHED_REPLIES = 200, 999
"""Messages of a channel (the newest) and of a thread (the oldest) among which to look for one that
may have arrived: one page each. Slack recommends 200 and allows 999, which holds most threads."""
_BEFORE_SECONDS = 600.0
"""Seconds before a group's begin to search from: a choice; Slack's clock may be minutes behind."""

_LOSSES = {
    ("files:write",): "it adds no pictures",
    ("channels:history", "groups:history"): "a crash may double a message",
}
"""Scopes, of which any one is enough, and the loss without them."""

_ANSWER_LIMIT = 4 << 20
"""Bytes of an answer that are read: a choice; 4 KiB for each of the 999 messages of a search."""

_LIMITED = frozenset({"ratelimited", "rate_limited"})  # error codes of too many requests
_GONE = frozenset(  # the message was deleted, or may not be edited any more
    {"message_not_found", "thread_not_found", "cant_update_message", "edit_window_closed"}
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


class SlackBot(MessageReceiver):
    """Sends to one channel. The token is a secret: it is never logged or shown.

    `channel` is an id (`C0123456789`) or `#name`. `api_url` differs for another Slack, such as
    GovSlack. `name`: that of its outbox queue. Raises ConfigError for a token or URL that cannot
    be used.
    """

    def __init__(
        self, token: str, channel: str, *, api_url: str = API_URL, name: str = "slack"
    ) -> None:
        self.name = name
        self._channel = channel
        self._address = urlsplit(checked_url(api_url, "slack.api_url", f"leave {API_URL}"))
        self._api = SlackApi(api_url, _checked_token(token))

    def send_test(self, trial: TrialAlert) -> str:
        """Post the message and edit it; returns a remark on scopes that the token lacks, or "".

        Raises DeliveryError unless Slack accepted both.
        """
        self._update(trial.message, str(self._begin(trial.message).place))
        granted = self._api.scopes
        return "; ".join(
            f"without the scope {'/'.join(scopes)} {loss}"
            for scopes, loss in _LOSSES.items()
            if granted and granted.isdisjoint(scopes)
        )

    def send(self, message: Message) -> Receipt:
        """Post, reply or edit, as the message's step requires. Raises DeliveryError."""
        if message.unsure and (found := self._find(message)):
            return Receipt(message.place or found, found=True)
        if message.place is None:
            return self._begin(message)
        try:
            if message.step == "update":
                self._update(message, message.place)
            else:
                self._reply(message, message.place)
            return Receipt()
        except GoneError:
            return self._begin(message)

    def _begin(self, message: Message) -> Receipt:
        answer = self._post(message, whole_of(message))
        place = f"{answer['channel']} {answer['ts']}"
        is_info = severity_rank(message.lead.severity) <= severity_rank("info")
        picture = None if is_info else partial(self._add_picture, message, place)
        return Receipt(place, then=picture)

    def _reply(self, message: Message, place: str) -> None:
        channel, ts = place.split(" ")
        is_shown = message.is_worse or message.step == "repeat"
        thread = {"channel": channel, "thread_ts": ts, "reply_broadcast": is_shown}
        self._post(message, news_of(message), **thread)

    def _update(self, message: Message, place: str) -> None:
        channel, ts = place.split(" ")
        text, blocks = drawn(whole_of(message))
        try:
            self._api.call("chat.update", channel=channel, ts=ts, text=text, blocks=blocks)
        except GoneError:
            pass  # somebody deleted it: the next news begin a new message
        except RefusedError:
            self._plainly("chat.update", text, channel=channel, ts=ts, blocks=[])

    def _post(self, message: Message, content: Content, **more: Any) -> dict[str, Any]:
        method, (text, blocks) = "chat.postMessage", drawn(content)
        metadata = {"event_type": EVENT, "event_payload": {"id": message.identity}}
        fields = {"channel": self._channel, "unfurl_links": False, "unfurl_media": False, **more}
        try:
            return self._api.call(method, text=text, blocks=blocks, metadata=metadata, **fields)
        except RefusedError:
            return self._plainly(method, text, **fields)

    def _plainly(self, method: str, text: str, **fields: Any) -> dict[str, Any]:
        """Send the text alone, after Slack refused the blocks. Raises DeliveryError, GoneError."""
        try:
            return self._api.call(method, text=as_code(text), **fields)
        except RefusedError as error:
            raise DeliveryError(str(error), permanent=True) from None

    def _find(self, message: Message) -> str | None:
        """The place of a message that may have arrived; None if not found or a scope is missing."""
        oldest = f"{message.opened_at - _BEFORE_SECONDS:.6f}"
        method, where = "conversations.history", {"channel": self._channel, "limit": SEARCHED}
        if message.place is not None:
            channel, ts = message.place.split(" ")
            method = "conversations.replies"
            where = {"channel": channel, "ts": ts, "limit": SEARCHED_REPLIES}
        try:
            answer = self._api.call(method, oldest=oldest, include_all_metadata=True, **where)
        except (GoneError, RefusedError, MendableError):
            return None
        for known in answer.get("messages") or ():
            if (known.get("metadata") or {}).get("event_payload", {}).get("id") == message.identity:
                return f"{self._channel} {known['ts']}"
        return None

    def _add_picture(self, message: Message, place: str) -> None:
        drawn = self.draw(message) if self.draw is not None else None
        if drawn is None:
            return
        channel, ts = place.split(" ")
        asked = self._api.call("files.getUploadURLExternal", filename="loss.png", length=len(drawn))
        self._upload(str(asked["upload_url"]), drawn)
        thread = {"channel_id": channel, "thread_ts": ts}
        files = [{"id": asked["file_id"], "title": "Loss around the incident"}]
        self._api.call("files.completeUploadExternal", files=files, **thread)

    def _upload(self, url: str, data: bytes) -> None:
        # The URL comes from an answer: only Slack's own servers are to get a run's curve.
        parts = urlsplit(url)
        same = (parts.scheme, parts.netloc) == (self._address.scheme, self._address.netloc)
        slack = parts.scheme == "https" and f".{parts.hostname}".endswith(
            (".slack.com", ".slack-gov.com")
        )
        if not (same or slack):
            raise DeliveryError("slack returned an upload URL that is not its own", permanent=True)
        request = Request(url, data, {"Content-Type": "application/octet-stream"}, method="POST")
        deliver(request, "slack ")


def _checked_token(token: str) -> str:
    too_short = len(token) < 8  # characters: a choice, far below Slack's 50, which may change
    if not token.isascii() or not token.isprintable() or " " in token or too_short:
        raise ConfigError(
            "is not a token of a Slack app",
            where="Slack bot token",
            remedy="copy the Bot User OAuth Token (xoxb-...) from your app's page",
        )
    return token
