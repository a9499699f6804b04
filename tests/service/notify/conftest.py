import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ldlm_monitor.service.notify import http_client
from ldlm_monitor.service.notify.message import Notification
from ldlm_monitor.service.notify.outbox import Outbox

NAN_LINE = "WARNING: Invalid text_loss detected: nan"


@pytest.fixture
def make_notification() -> Callable[..., Notification]:
    def make(alert: str = "NonFiniteLoss", run: str = "r1", **changes: object) -> Notification:
        fields = {
            "key": f"{alert}{{run={run}}}",
            "alert": alert,
            "state": "firing",
            "severity": "critical",
            "reason": "condition holds",
            "run": run,
            "rank": "3",
            "step": 120,
            "line": NAN_LINE,
            "path": "train_logs/a.log",
            "line_number": 17,
            "summary": "The loss of r1 is not finite.",
            "description": "text_loss was nan at step 120.",
            "action": "Lower LEARNING_RATE, then resume from the last checkpoint.",
            "labels": {"run": run, "severity": "critical", "rank": "3"},
            "value": float("nan"),
            "started_at": 1_700_000_000.0,
            "at": 1_700_000_000.0,
        }
        return Notification(**{**fields, **changes})

    return make


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that gives no answer is given up after a second."""
    monkeypatch.setattr(http_client, "TIMEOUT_SECONDS", 1)


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    box = Outbox(tmp_path / "outbox.db")
    yield box
    box.close()


@dataclass
class LocalSlack:
    """A real HTTP server that answers as scripted, then with 200, and keeps what it was sent.

    An answer is (status, headers, body), or "hang" (no answer until the test
    ends), or "drop" (the connection is closed without an answer).
    """

    answers: list[tuple[int, dict[str, str], bytes] | str] = field(default_factory=list)
    received: list[dict] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    posted: list[tuple[Message, bytes]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def wait_for(self, count: int) -> list[dict]:
        """What was sent, once that is `count` requests."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.received) >= count, timeout=20)
            return list(self.received)

    def take(
        self, method: str, headers: Message, body: bytes
    ) -> tuple[int, dict[str, str], bytes] | str:
        with self.changed:
            self.methods.append(method)
            self.posted.append((headers, body))
            self.received.append(json.loads(body) if body else {})
            self.changed.notify_all()
            return self.answers.pop(0) if self.answers else (200, {}, b"ok")


@pytest.fixture
def slack() -> Iterator[LocalSlack]:
    state = LocalSlack()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = state.take(self.command, self.headers, body)
            if isinstance(answer, str):
                if answer == "hang":
                    state.released.wait()
                return
            status, headers, text = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            self.do_POST()

        def log_request(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/services/T00/B00/s3cr3tpath"
    yield state
    state.released.set()
    server.shutdown()
    server.server_close()
    thread.join()
