"""Receivers in every mood, and a monitor that is killed again and again: nothing is lost.

What a receiver can recognise (a bot's messages by their metadata, a webhook's by their id) comes
once; what it cannot, an incoming webhook of Slack, may come again, and that is counted.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.service.notify.outbox import Outbox
from tests.service.notify import slack_api as local

pytestmark = pytest.mark.live
OF_A_RUN = 50
RECEIVERS = ("slack", "slack:COTHER", "webhook")

# What the daemon does with transitions: the real outbox, couriers and receivers.
DELIVERS = """
import sys, threading, time
from pathlib import Path
from ldlm_monitor.base.alert import Transition
from ldlm_monitor.service.notify.policy import Policy
from ldlm_monitor.service.notify import http_client
from ldlm_monitor.service.notify.courier import Courier
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.slack_message import SlackWebhook
from ldlm_monitor.service.notify.slack_bot import SlackBot
from ldlm_monitor.service.notify.webhook import WebhookSender
from ldlm_monitor.service.daemon.dispatcher import Dispatcher

folder, webhook, bot, generic, total, token, channel = sys.argv[1:]
folder = Path(folder)
http_client.TIMEOUT_SECONDS = 1
receivers = [
    SlackWebhook(webhook),
    SlackBot(token, channel, api_url=bot, name="slack:COTHER"),
    WebhookSender(generic),
]
names = [receiver.name for receiver in receivers]
soon = Policy(follow_up_seconds=0.3)  # with half a minute the test would take hours
outbox = Outbox(folder / "outbox.sqlite", {"slack": soon, "slack:COTHER": soon})
couriers = []
for receiver in receivers:
    courier = Courier(receiver, outbox)
    courier.daemon = True
    courier.start()
    couriers.append(courier)
dispatcher = Dispatcher(outbox, names, None, couriers, prints=False)
progress = folder / "progress"
done = int(progress.read_text()) if progress.exists() else 0
for number in range(done, int(total)):
    labels = {"severity": "critical", "run": f"run{number // 50}", "rank": str(number % 50)}
    dispatcher.dispatch([Transition(
        time=1000.0 + number, alert="NcclTimeout", state="firing", previous="inactive",
        reason="condition holds", labels=labels, value=1.0, active_at=1000.0 + number,
    )], time.time())
    if number % 20 == 19:
        fresh = progress.with_suffix(".new")
        fresh.write_text(str(number + 1))
        fresh.replace(progress)
progress.write_text(total)
threading.Event().wait()
"""


class Moods:
    """How a receiver answers a request: most are accepted, the rest fail in every way."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.calm = False
        self.lock = threading.Lock()

    def __call__(self, _: str = "") -> Any:
        limited = (429, {"Retry-After": "1"}, b'{"ok": false, "error": "ratelimited"}')
        broken = (500, {}, b"\xff<h1>no</h1>")
        moods = [None, limited, broken, local.GARBAGE, local.DROP, local.LOST, local.HANG]
        with self.lock:
            weights = [100, 0, 0, 0, 0, 0, 0] if self.calm else [88, 2, 3, 2, 2, 2, 1]
            return self.rng.choices(moods, weights)[0]


class Hooks(ThreadingHTTPServer):
    """An incoming webhook at /slack and a webhook of one's own at /own, in the same mood."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, moods: Moods) -> None:
        super().__init__(("127.0.0.1", 0), _Hook)
        self.moods = moods
        self.slack: list[dict[str, Any]] = []
        self.own: list[tuple[str, dict[str, Any]]] = []

    def handle_error(self, *_: object) -> None:
        """A client that was killed has gone."""


class _Hook(BaseHTTPRequestHandler):
    server: Hooks

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        mood = self.server.moods()
        if mood in (None, local.LOST):
            if self.path == "/slack":
                self.server.slack.append(body)
            else:
                self.server.own.append((self.headers["webhook-id"], body))
        if mood == local.HANG:
            self.rfile.read(1)  # until the client gives up
        elif mood == local.GARBAGE:
            self.wfile.write(b"\x16\x03\x01 no HTTP")
        elif mood is None:
            self._say(200, {}, b"ok")
        elif isinstance(mood, tuple):
            self._say(*mood)
        self.close_connection = True

    def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hooks(moods: Moods) -> Iterator[Hooks]:
    server = Hooks(moods)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def is_done(folder: Path, total: int) -> bool:
    """Whether everything was added, and nothing waits any more."""
    progress, outbox = folder / "progress", folder / "outbox.sqlite"
    if not progress.exists() or progress.read_text() != str(total):
        return False
    with closing(sqlite3.connect(f"file:{outbox}?mode=ro", uri=True)) as looking:
        (waiting,) = looking.execute(
            "SELECT count(*) FROM delivery WHERE outcome = 'pending'"
        ).fetchone()
    return waiting == 0


def let_it_finish(command: list[str], folder: Path, total: int, patience: float) -> None:
    deadline = time.monotonic() + patience
    with subprocess.Popen(command) as process:
        try:
            while not is_done(folder, total):
                assert time.monotonic() < deadline, "something waits for ever"
                time.sleep(0.1)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("total", "kills", "alive"),
    [
        (400, 4, (0.6, 1.6)),
        pytest.param(10_000, 40, (2.0, 6.0), marks=pytest.mark.long),
    ],
)
def test_through_failures_and_kills_every_alert_arrives(tmp_path, total, kills, alive):
    seed = 8
    rng = random.Random(seed)
    moods = Moods(seed)
    expected = {(f"run{n // OF_A_RUN}", n % OF_A_RUN) for n in range(total)}
    with local.slack_api() as api, hooks(moods) as server:
        api.choose = moods
        url = f"http://127.0.0.1:{server.server_port}"
        command = [
            sys.executable, "-c", DELIVERS, str(tmp_path), f"{url}/slack", api.url, f"{url}/own",
            str(total), local.TOKEN, "COTHER",
        ]  # fmt: skip
        for _ in range(kills):
            process = subprocess.Popen(command)
            time.sleep(rng.uniform(*alive))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        moods.calm = True
        let_it_finish(command, tmp_path, total, patience=60 + total / 20)
        posts = list(api.messages.values())
        own, hooked = list(server.own), list(server.slack)
    outbox = Outbox(tmp_path / "outbox.sqlite")
    counts = outbox.counts()
    outbox.close()

    by_bot = Counter(alert for post in posts for alert in local.named(post["first"]))
    assert set(by_bot) == expected
    assert all(times == 1 for times in by_bot.values()), "its metadata identifies it"

    ids = {identity: body["labels"] for identity, body in own}
    arrived = {(labels["run"], int(labels["rank"])) for labels in ids.values()}
    assert arrived == expected
    assert len(ids) == total, "a repeat has the id of the first"

    by_hook = Counter(alert for message in hooked for alert in local.named(message))
    assert set(by_hook) == expected
    repeats = sum(times - 1 for times in by_hook.values())
    assert repeats <= counts["slack", "repeated"]
    assert counts["slack", "failed"] == counts["webhook", "failed"] == 0
