"""A real daemon in trouble: somebody hears of it within minutes."""

import os
import queue
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
            raise AssertionError(f"{word} was never told") from None
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
        thread = threading.Thread(target=switch.serve_forever)
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
