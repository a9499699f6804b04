"""A local server that behaves as Slack's Web API does, as far as a bot that posts can see.

It checks the token, keeps messages, threads and files, refuses blocks that are beyond the limits
of https://docs.slack.dev/reference/block-kit/blocks, and answers otherwise where a test says so.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TOKEN = "xoxb-0000-s3cr3t-token"
CHANNEL = "C0123456789"
HANG, DROP, GARBAGE = "hang", "drop", "garbage"
LOST = "lost"
"""It does what is asked, and the answer is lost."""


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def faults(blocks: list[dict[str, Any]]) -> list[str]:
    """Why Slack would refuse these blocks."""
    whole = json.dumps(blocks, ensure_ascii=False)
    if utf16(whole) > 13_000:
        return [f"msg_blocks_too_long: {utf16(whole)}"]
    found = ["more than 50 blocks"] if len(blocks) > 50 else []
    for block in blocks:
        texts = [block["text"]] if "text" in block else []
        limit = {"header": 150, "section": 3000}.get(block["type"], 3000)
        found += [f"{block['type']} text" for t in texts if not 0 < utf16(t["text"]) <= limit]
        fields = block.get("fields", [])
        found += ["fields"] if len(fields) > 10 else []
        found += ["field text" for t in fields if not 0 < utf16(t["text"]) <= 2000]
        elements = block.get("elements", [])
        found += ["elements"] if len(elements) > 10 else []
        found += ["element text" for t in elements if not 0 < utf16(t["text"]) <= 3000]
    return found


NAMED = re.compile(r"NcclTimeout firing(?: \(critical\))?(?: ×\d+)?: (r\w*) ranks? ([\d,-]+)")

ALONE = re.compile(r"\*Run\*\\n`(r\w*)`.*?\*Rank\*\\n`(\d+)`")  # facts of a message about one alert


def named(message: dict[str, Any]) -> set[tuple[str, int]]:
    """The (run, rank) that a Slack message names."""
    found: set[tuple[str, int]] = set()
    text = json.dumps(message, ensure_ascii=False)
    for run, ranks in (*NAMED.findall(text), *ALONE.findall(text)):
        for span in ranks.split(","):
            low, _, high = span.partition("-")
            found |= {(run, rank) for rank in range(int(low), int(high or low) + 1)}
    return found


@dataclass
class SlackApi:
    """`messages` by ts, replies with `thread_ts`; `calls` are (method, arguments) in order.

    `answers` are taken first: HANG, DROP, GARBAGE, LOST, an error's name, or (status, headers,
    body); `choose` gives one for every call instead.
    """

    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    shared: list[tuple[str, str, str]] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    choose: Callable[[str], Any] | None = None
    can_search: bool = True
    scopes: str = "chat:write,files:write,channels:history"
    url: str = ""
    changed: threading.Condition = field(default_factory=threading.Condition)
    released: threading.Event = field(default_factory=threading.Event)
    _count: int = 0

    @property
    def posted(self) -> list[dict[str, Any]]:
        """Messages in the channel itself, as they stand."""
        return [each for each in self.messages.values() if "thread_ts" not in each]

    @property
    def replies(self) -> list[dict[str, Any]]:
        return [each for each in self.messages.values() if "thread_ts" in each]

    def wait_for(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, timeout=30), [call[0] for call in self.calls]

    def answer(self, method: str, arguments: dict[str, Any]) -> Any:
        """The JSON of the answer, or how it fails."""
        with self.changed:
            self.calls.append((method, arguments))
            answer = self.answers.pop(0) if self.answers else None
            if answer is None and self.choose is not None:
                answer = self.choose(method)
            if answer is None or answer == LOST:
                done = self._do(method, arguments)
                answer = done if answer is None else DROP
            elif isinstance(answer, str) and answer not in (HANG, DROP, GARBAGE):
                answer = {"ok": False, "error": answer}
            self.changed.notify_all()
            return answer

    def _do(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        act = getattr(self, f"_{method.replace('.', '_')}", None)
        if act is None:
            return {"ok": False, "error": "unknown_method"}
        return act(given)

    def _chat_postMessage(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if given["channel"] not in (CHANNEL, "#alerts", "COTHER"):
            return {"ok": False, "error": "channel_not_found"}
        if faults(given.get("blocks", [])):
            return {"ok": False, "error": "invalid_blocks"}
        if given.get("thread_ts", "") and given["thread_ts"] not in self.messages:
            return {"ok": False, "error": "thread_not_found"}
        self._count += 1
        ts = f"{1_700_000_000 + self._count}.000100"
        channel = CHANNEL if given["channel"] == "#alerts" else given["channel"]
        self.messages[ts] = {
            **given, "channel": channel, "ts": ts, "edits": 0, "first": given.get("blocks", []),
        }  # fmt: skip
        return {"ok": True, "channel": channel, "ts": ts, "message": self.messages[ts]}

    def _chat_update(self, given: dict[str, Any]) -> dict[str, Any]:
        known = self.messages.get(given["ts"])
        if known is None or known["channel"] != given["channel"]:
            return {"ok": False, "error": "message_not_found"}
        if faults(given.get("blocks", [])):
            return {"ok": False, "error": "invalid_blocks"}
        known.update(text=given["text"], blocks=given["blocks"], edits=known["edits"] + 1)
        return {"ok": True, "channel": given["channel"], "ts": given["ts"]}

    def _conversations_history(self, given: dict[str, Any]) -> dict[str, Any]:
        if not self.can_search:
            return {"ok": False, "error": "missing_scope", "needed": "channels:history"}
        found = [each for each in self.posted if each["channel"] == given["channel"]]
        return {"ok": True, "messages": found[::-1][: int(given["limit"])]}

    def _conversations_replies(self, given: dict[str, Any]) -> dict[str, Any]:
        if not self.can_search:
            return {"ok": False, "error": "missing_scope", "needed": "channels:history"}
        ts = given["ts"]
        found = [
            each for each in self.messages.values() if ts in (each["ts"], each.get("thread_ts"))
        ]
        return {"ok": True, "messages": found[-int(given["limit"]) :]}

    def _files_getUploadURLExternal(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        self._count += 1
        number = f"F{self._count}"
        host = self.url.removesuffix("/api/")
        return {"ok": True, "upload_url": f"{host}/upload/{number}", "file_id": number}

    def _files_completeUploadExternal(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        for each in given["files"]:
            if each["id"] not in self.files:
                return {"ok": False, "error": "file_not_found"}
            self.shared.append((each["id"], given["channel_id"], given["thread_ts"]))
        return {"ok": True, "files": []}


@contextmanager
def slack_api() -> Iterator[SlackApi]:
    state = SlackApi()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            address = urlsplit(self.path)
            if address.path.startswith("/upload/"):
                state.files[address.path.removeprefix("/upload/")] = body
                self._say(200, {}, b"OK")
                return
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._say(200, {}, b'{"ok": false, "error": "invalid_auth"}')
                return
            self._answer(state.answer(address.path.removeprefix("/api/"), self._given(body)))

        do_GET = do_POST  # noqa: N815

        def _given(self, body: bytes) -> dict[str, Any]:
            given: dict[str, Any] = dict(parse_qsl(urlsplit(self.path).query))
            for name, value in parse_qsl(body.decode(), strict_parsing=True):
                is_json = name in ("blocks", "metadata", "files") or value in ("true", "false")
                given[name] = json.loads(value) if is_json else value
            return given

        def _answer(self, answer: Any) -> None:
            if answer == HANG:
                state.released.wait()
            elif answer == GARBAGE:
                self._say(200, {}, b"<html>a proxy's page \xff\x00")
            elif isinstance(answer, tuple):
                self._say(*answer)
            elif answer != DROP:
                self._say(200, {"X-OAuth-Scopes": state.scopes}, json.dumps(answer).encode())

        def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # a client that was killed has gone

        def log_request(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/api/"
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
