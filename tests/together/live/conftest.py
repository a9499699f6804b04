"""The real daemon in a process of its own, a local Slack, and logs that grow as they once did."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 120.0
NOBODY = 65534
SHORTER = """
import sys
from ldlm_monitor.service.daemon import judging_clock
{}
from ldlm_monitor.__main__ import main
sys.exit(main())
"""
"""The daemon with a wait of its own made shorter, one that no setting has."""


class Slack:
    """A webhook on loopback; `messages` holds what it was sent, and answered after a while."""

    answer_seconds = 0.0

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[str] = queue.SimpleQueue()
        slack = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(slack.answer_seconds)
                slack.messages.put(json.dumps(json.loads(body), ensure_ascii=False))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/services/T/B/x"

    def next(self) -> str:
        return self.messages.get(timeout=PATIENCE)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Daemon:
    """`ldlm-monitor` as a user starts it; its output is read line by line."""

    def __init__(
        self,
        folder: Path,
        arguments: list[str],
        slack: Slack | None,
        limits: list[str],
        shorter: str,
    ) -> None:
        self.log = folder / f"daemon{len(list(folder.glob('daemon*.err')))}.err"
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        environment.pop("LDLM_SLACK_WEBHOOK_URL", None)
        environment["LDLM_SLACK_FOLLOW_UP_SECONDS"] = "1"
        if not (folder / "ldlm-monitor.toml").exists():
            # A log that a busy test machine appends to late has not stalled.
            environment["LDLM_STALL_FLOOR_SECONDS"] = "600"
        if slack is not None:
            environment["LDLM_SLACK_WEBHOOK_URL"] = slack.url
        program = ("-c", SHORTER.format(shorter)) if shorter else ("-m", "ldlm_monitor")
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*limits, sys.executable, *program, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def until(self, *words: str) -> str:
        """The next line of output that holds all words."""
        deadline = time.monotonic() + PATIENCE
        while True:
            line = self._lines.get(timeout=max(deadline - time.monotonic(), 0.0))
            if all(word in line for word in words):
                return line

    def printed(self) -> list[str]:
        """The lines that nobody has waited for."""
        lines = []
        while not self._lines.empty():
            lines.append(self._lines.get())
        return lines

    def url(self) -> str:
        """Where it serves, once it says so."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for line in self.log.read_text().splitlines():
                if "metrics on " in line:
                    return line.split("metrics on ")[1].split("/metrics")[0]
            threading.Event().wait(0.02)
        raise AssertionError(self.log.read_text())

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url() + path, timeout=PATIENCE) as response:
            return str(response.read().decode())

    def post(self, path: str, **headers: str) -> str:
        request = urllib.request.Request(self.url() + path, method="POST", headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return str(response.read().decode())

    def ready(self) -> "Daemon":
        """Return once it has read what was there."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                self.get("/-/ready")
            except OSError:
                threading.Event().wait(0.02)
            else:
                return self
        raise AssertionError("never ready")

    def wait_for_metric(self, *words: str) -> None:
        """Return once a line of `/metrics` holds all words."""
        deadline = time.monotonic() + PATIENCE
        while shown := self.get("/metrics").splitlines():
            if any(all(word in line for word in words) for line in shown):
                return
            assert time.monotonic() < deadline, shown
            threading.Event().wait(0.02)

    def wait_for_message(self, *words: str) -> None:
        """Return once one of its messages holds all words."""
        deadline = time.monotonic() + PATIENCE
        while not any(all(word in line for word in words) for line in self.messages()):
            assert time.monotonic() < deadline, self.messages()
            threading.Event().wait(0.02)

    def messages(self) -> list[str]:
        """What it wrote to stderr, line by line."""
        return self.log.read_text().splitlines()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        code = self.process.wait(PATIENCE)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def slack() -> Iterator[Slack]:
    receiver = Slack()
    yield receiver
    receiver.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts daemons in an empty folder; kills those that still run at the end."""
    started: list[Daemon] = []

    def begin(
        *arguments: str, slack: Slack | None = None, open_files: int = 0, shorter: str = ""
    ) -> Daemon:
        port = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        limits = ["prlimit", f"--nofile={open_files}:{open_files}"] if open_files else []
        daemon = Daemon(tmp_path, [*arguments, "--headless", *port], slack, limits, shorter)
        started.append(daemon)
        return daemon

    yield begin
    for daemon in started:
        daemon.process.kill()
        daemon.wait()


@pytest.fixture
def append(tmp_path: Path) -> Callable[[str, str], Path]:
    """Appends text to a file below the daemon's folder."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(text)
        return path

    return write


@pytest.fixture
def bars() -> Callable[..., str]:
    """Progress bars of MM-LDLM's trainer, one a step."""

    def draw(first: int, last: int, **fields: Any) -> str:
        loss = fields.get("loss", "2.3456")
        return "".join(
            f"\rTraining:  {step // 10}%|▏| {step}/950 [{step // 60:02d}:{step % 60:02d}<09:00,"
            f"  1.00it/s, Epoch=0/1, Progress=1.0%, Loss={loss}, Text={loss}, "
            for step in range(first, last)
        )

    return draw


@pytest.fixture
def job_user() -> tuple[int, int]:
    """Whom the job belongs to: nobody, where this is root and nobody may read the monitor."""
    if os.getuid() == 0:
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        # In a shell of its own: what is executed first still has root's capabilities.
        load = f"{sys.executable} -c 'import ldlm_monitor.service.daemon.daemon'; exit $?"
        done = subprocess.run([*drop, "sh", "-c", load], capture_output=True, check=False)
        if done.returncode == 0:
            return NOBODY, NOBODY
    return os.getuid(), os.getgid()
