"""A training that prints its secrets: the real daemon reports it, and none of them."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.service.notify.planted import KEY_FILES, LINES, PLANTED, found_in

pytestmark = pytest.mark.live
LOG = "train_logs/train_20260129_101500_node0.log"
OTHER = f"train_logs/train_{PLANTED['hugging face']}.log"
PATIENCE = 60.0
SENDERS = ("/slack", "/webhook", "/apprise", "/api/v2/alerts", "/beat")


class Outside:
    """Everybody out there: keeps what each path was sent."""

    def __init__(self) -> None:
        self.reported: dict[str, list[str]] = {path: [] for path in SENDERS}
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                head = f"{self.path} {self.headers}"
                where = next(path for path in SENDERS if self.path.startswith(path))
                outside.reported[where].append(
                    f"{head}\n{json.dumps(json.loads(body or '0'))}\n{body}"
                )
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"ok")

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.host = f"127.0.0.1:{self._server.server_port}"

    def until(self, path: str, word: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not any(word in message for message in self.reported[path]):
            assert time.monotonic() < deadline, (path, word)
            threading.Event().wait(0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def outside() -> Iterator[Outside]:
    everybody = Outside()
    yield everybody
    everybody.close()


@pytest.fixture
def begin(start, append, bars, outside: Outside, tmp_path: Path):
    """Starts a daemon on two logs, one of them named like a secret, with every receiver."""
    files = {
        "slack.url": f"http://{outside.host}/slack",
        "webhook.url": f"http://{outside.host}/webhook",
        "apprise.urls": f"json://{outside.host}/apprise",
        "heartbeat.url": f"http://{outside.host}/beat",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "ldlm-monitor.toml").write_text(
        '[slack]\nwebhook_url_file = "slack.url"\n[webhook]\nurl_file = "webhook.url"\n'
        '[apprise]\nurls_file = "apprise.urls"\n[heartbeat]\nurl_file = "heartbeat.url"\n'
        f'[alertmanager]\nurls = ["http://{outside.host}"]\n'
    )
    append(LOG, bars(0, 40))
    append(OTHER, bars(0, 40))
    return lambda: start("train_logs/*.log", "--log-level", "debug").ready()


def a_training_that_prints_its_secrets(bars: str) -> str:
    """Each secret as a line, in a traceback, as an error, in numbers, and where a NaN is."""
    key = PLANTED["hugging face"]
    lines = [*LINES, *(line for lines in KEY_FILES.values() for line in lines)]
    raised = "".join(
        f'Traceback (most recent call last):\n  File "train.py", line {number}, in main\n'
        f"    login({line!r})\nRuntimeError: could not log in: {line}\n"
        for number, line in enumerate(LINES)
    )
    return (
        "\n".join(lines)
        + f"\nWorking directory: /runs/{key}/saved/run\n"
        + "".join(f"ERROR: refused: {line}\n" for line in lines)
        + bars
        + "\n"
        + json.dumps({"step": 41, "loss": 2.5, key: 1.0, f"loss_{key}": 2.0})
        + f"\nWARNING: Invalid text_loss detected: nan {' '.join(LINES)}\n"
        + f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {key}\n"
        + raised
    )


PAGES = (
    "/",
    "/metrics",
    "/api/v1/runs",
    "/api/v1/alerts",
    "/api/v1/events",
    "/api/v1/incidents",
    "/api/v1/silences",
    f"/api/v1/logs?path={LOG}&at_line=1&after=500",
)


def test_none_of_a_planted_list_comes_out_of_anything(
    begin, outside: Outside, append, bars, tmp_path: Path
) -> None:
    daemon = begin()
    text = a_training_that_prints_its_secrets(bars(40, 42))
    assert len(found_in(text)) > 40
    append(LOG, text)
    append(OTHER, "\nWARNING: Invalid text_loss detected: nan\n")
    for path in SENDERS[:4]:
        outside.until(path, "NonFiniteLoss")
        outside.until(path, "TrainingCrashed" if path != "/apprise" else "OutOfMemory")
    outside.until("/beat", "/beat")
    for path, messages in outside.reported.items():
        assert found_in("\n".join(messages)) == [], path
    for page in PAGES:
        shown = daemon.get(page)
        assert found_in(shown) == [], page
        assert "redacted" in shown or page not in ("/metrics", "/api/v1/events", PAGES[-1]), page
    for database in tmp_path.glob("state/**/outbox.sqlite*"):
        assert found_in(database.read_bytes().decode("latin-1")) == [], database
    daemon.stop(2)
    assert found_in("\n".join(daemon.printed())) == [], "stdout, with the health report"
    assert found_in("\n".join(daemon.messages())) == [], "stderr"


@pytest.mark.parametrize(
    "command",
    [
        ("--once",),
        ("report", "-o", "report.json"),
        ("replay", "--format", "json"),
    ],
    ids=" ".join,
)
def test_nor_out_of_a_report_or_a_replay(command, append, bars, tmp_path: Path) -> None:
    append(LOG, bars(0, 40) + "\n" + a_training_that_prints_its_secrets(bars(40, 42)))
    done = subprocess.run(
        [sys.executable, "-m", "ldlm_monitor", *command, LOG],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode in (0, 3), done.stderr
    written = "".join(path.read_text() for path in tmp_path.glob("report.*"))
    assert "TrainingCrashed" in done.stdout + written
    assert found_in(done.stdout + done.stderr + written) == []
