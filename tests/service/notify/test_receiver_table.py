"""A receiver is a module and a line in the table: settings, trial, delivery and counts follow."""

import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.notify.receivers import RECEIVERS
from tests.extending_page import example
from tests.service.extended import Extended

PAGER = example("A receiver")
LOG = "step 1 loss 2.0\nstep 2 loss 1.9\nstep 3 loss 1.8\nstep 4 loss nan\nstep 5 loss nan\n"
PATIENCE = 60.0


@pytest.mark.parametrize("kind", RECEIVERS)
def test_each_line_is_a_table_of_the_settings(kind: type) -> None:
    assert isinstance(getattr(Settings(), kind.table), kind)
    # A variable is the table's name, an underscore and the key.
    assert kind.table.isalpha()
    assert kind.how
    assert list(kind().receivers()) == []


class Gateway:
    """What was sent, by path; a request is refused for a path in `refused`."""

    def __init__(self) -> None:
        self.paged: list[tuple[str, str]] = []
        self.refused = ""
        self.changed = threading.Condition()
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self.send_response(404 if self.path == gateway.refused else 200)
                self.end_headers()
                with gateway.changed:
                    gateway.paged.append((self.path, text))
                    gateway.changed.notify_all()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def wait_for(self, path: str, words: str) -> None:
        with self.changed:
            came = self.changed.wait_for(
                lambda: any(to == path and words in text for to, text in self.paged), PATIENCE
            )
            assert came, self.paged


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    made = Gateway()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def extended(tmp_path: Path) -> Extended:
    made = Extended(tmp_path / "package")
    made.add("service/notify/pager.py", PAGER)
    table = "service/notify/receivers.py"
    made.add_lines(table, "from ldlm_monitor.service.notify.policy", "from .pager import Pager")
    made.add_lines(table, "    DeadMansSwitch,", "    Pager,")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "training"
    made.mkdir()
    (made / "ldlm-monitor.toml").write_text("[pager]\nnumbers = [110, 112]\n", encoding="utf-8")
    return made


@pytest.mark.live
def test_its_settings_are_read_and_a_wrong_one_is_named(extended: Extended, folder: Path) -> None:
    file = folder / "ldlm-monitor.toml"
    for text, complaint in {
        "[pager]\nnumber = [1]\n": ":2: pager.number: unknown key; did you mean pager.numbers?",
        "[pager]\nurl = 'https://a'\n": (
            ": pager.url: a secret does not belong in this file;"
            " set LDLM_PAGER_URL, or name a file in pager.url_file"
        ),
        "[pagr]\n": ":1: pagr: unknown key; did you mean pager?",
    }.items():
        file.write_text(text, encoding="utf-8")
        refused = (2, "", f"ldlm-monitor: ldlm-monitor.toml{complaint}\n")
        assert extended.run("notify", "test", cwd=folder) == refused
    file.write_text("[pager]\nurl_file = 'pager.url'\n", encoding="utf-8")
    (folder / "pager.url").write_text("https://a", encoding="utf-8")
    (folder / "pager.url").chmod(0o644)
    assert "a secret that others may read" in extended.run("notify", "test", cwd=folder)[2]


@pytest.mark.live
def test_it_is_tried(extended: Extended, folder: Path, gateway: Gateway) -> None:
    code, _, err = extended.run("notify", "test", cwd=folder)
    assert code == 2
    assert "no receiver is configured; set LDLM_SLACK_WEBHOOK_URL to" in err
    assert "; or pager.url_file; or " in err
    gateway.refused = "/112"
    code, out, err = extended.run("notify", "test", cwd=folder, LDLM_PAGER_URL=gateway.url)
    assert (code, out) == (2, "pager 110: accepted the test message\n")
    assert err.startswith("ldlm-monitor: notify test: pager 112: pager answered 404; check URL")
    path, text = gateway.paged[0]
    assert path == "/110"
    assert text.startswith("🔵 notify-test: NotifyTest firing")
    assert "A test message: alerts of ldlm-monitor arrive here." in text
    code, _, err = extended.run("notify", "test", cwd=folder, LDLM_PAGER_URL="http://example.org")
    assert code == 2
    assert "pager.url: is not an ASCII https URL with a host; give that of the gateway" in err


@pytest.mark.live
def test_it_is_delivered_to_and_counted(extended: Extended, folder: Path, gateway: Gateway) -> None:
    (folder / "a.log").write_text(LOG, encoding="utf-8")
    words = ("a.log", "--headless", "--listen", "127.0.0.1:0", "--state-dir", "state")
    daemon = extended.start(*words, cwd=folder, LDLM_PAGER_URL=gateway.url)
    assert daemon.stderr is not None
    try:
        for path in ("/110", "/112"):
            gateway.wait_for(path, ": loss NaN at step ")
        began = next(line for line in daemon.stderr if "metrics on " in line)
        url = began.partition("metrics on ")[2].partition(",")[0]
        deadline = time.monotonic() + PATIENCE
        while 'outcome="sent",receiver="pager 112"} 1' not in text_of(url):
            assert time.monotonic() < deadline, text_of(url)
            threading.Event().wait(0.05)
    finally:
        daemon.terminate()
        out, err = daemon.communicate(timeout=PATIENCE)
    assert "NonFiniteLoss" in out
    assert "nobody will be notified" not in err


def text_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()
