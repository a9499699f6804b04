"""A real daemon in trouble: somebody gets a message within minutes."""

import os
import queue
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.long]
LOG = "train_logs/train_20260129_101500_node0.log"
NAN = "WARNING: Invalid text_loss detected: nan\n"
PATIENCE = 240.0


def until(slack, word: str) -> str:
    """The next message with that word."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            message = slack.messages.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            raise AssertionError(f"{word} was never sent") from None
        if word in message:
            return message


def test_a_webhook_that_is_down_is_told_to_slack(
    start, slack, append, bars, tmp_path: Path
) -> None:
    secret = tmp_path / "webhook.url"
    secret.write_text("http://127.0.0.1:1/nobody")
    secret.chmod(0o600)
    (tmp_path / "ldlm-monitor.toml").write_text('[webhook]\nurl_file = "webhook.url"\n')
    append(LOG, bars(0, 40))
    start("train_logs/*.log", slack=slack).ready()
    append(LOG, NAN)
    assert "cannot deliver to webhook" in until(slack, "MonitorCannotDeliver firing")


def test_a_log_that_cannot_be_read_is_told_to_slack(
    start, slack, append, bars, tmp_path: Path
) -> None:
    append(LOG, bars(0, 40))
    start("train_logs/*.log", slack=slack).ready()
    (tmp_path / "train_logs/locked.log").symlink_to("/proc/self/mem")
    assert "cannot read some" in until(slack, "MonitorCannotRead firing")


FLOOD = """
import sys
line = "step {step} loss {loss:.4f} grad_norm 0.9 lr 1e-4 tokens/s 65536\\n"
text = "".join(line.format(step=step, loss=2 + step % 97 / 100) for step in range(500_000))
with open(sys.argv[1], "a") as log:
    for more in sys.stdin:
        log.write(text)
"""


def test_a_flood_that_outruns_the_monitor_is_told_to_slack(
    start, slack, append, bars, tmp_path: Path
) -> None:
    """Its writer is the faster one, but keeps a few hundred MiB ahead at most, for the disk."""
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log", slack=slack).ready()
    path = tmp_path / "train_logs/flood.log"
    reported = threading.Event()

    def pour() -> None:
        with subprocess.Popen(
            [sys.executable, "-c", FLOOD, str(path)], stdin=subprocess.PIPE, text=True
        ) as flood:
            assert flood.stdin is not None
            while not reported.wait(0.5):
                behind = re.search(
                    r"^ldlm_monitor_behind_bytes (\S+)", daemon.get("/metrics"), re.M
                )
                if behind is not None and float(behind[1]) < 256 << 20:
                    flood.stdin.write("more\n")
                    flood.stdin.flush()

    writer = threading.Thread(target=pour)
    writer.start()
    try:
        assert "behind the logs" in until(slack, "MonitorBehind firing")
    finally:
        reported.set()
        writer.join()
        path.unlink()


def test_a_disk_that_is_nearly_full_is_told_to_slack(
    start, slack, append, bars, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a disk takes root")
    try:
        append(LOG, bars(0, 40))
        daemon = start("train_logs/*.log", "--state-dir", str(small), slack=slack).ready()
        assert "left on the disk of its state" in until(slack, "MonitorDiskFilling firing")
        daemon.stop()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_monitor_that_is_stuck_no_longer_tells_the_dead_mans_switch(
    append, bars, tmp_path: Path
) -> None:
    """Nobody reads its standard output, so it hangs in writing there; the process lives on."""
    beats: list[float] = []

    class Switch(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            beats.append(time.monotonic())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    append(LOG, bars(0, 40))
    with HTTPServer(("127.0.0.1", 0), Switch) as switch:
        thread = threading.Thread(target=switch.serve_forever, args=(0.05,))
        thread.start()
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "LDLM_HEARTBEAT_URL": f"http://127.0.0.1:{switch.server_port}/",
            "LDLM_HEARTBEAT_INTERVAL_SECONDS": "1",
        }
        command = [sys.executable, "-m", "ldlm_monitor", LOG, "--listen", "127.0.0.1:0"]
        daemon = subprocess.Popen(
            [*command, "--headless", "--interval", "0.001"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            pipesize=4096,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 2 * PATIENCE
            while not beats or time.monotonic() - beats[-1] < 10:
                assert time.monotonic() < deadline, "it beats on"
                threading.Event().wait(0.5)
            assert len(beats) > 10, "it did beat while it worked"
            assert daemon.poll() is None, "the process lives"
        finally:
            daemon.kill()
            daemon.communicate()
            switch.shutdown()
            thread.join()
