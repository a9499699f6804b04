"""A real daemon in trouble: the receiver that works hears of it within two minutes."""

import queue
import subprocess
import time
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


def test_a_flood_that_is_not_read_in_time_is_told_to_slack(
    start, slack, append, bars, tmp_path: Path
) -> None:
    log = append(LOG, bars(0, 40))
    start("train_logs/*.log", slack=slack).ready()
    line = b"NCCL INFO some words that say nothing of any training at all, again and again\n" * 4096
    told = time.monotonic() + PATIENCE
    with log.open("ab") as flood:
        while time.monotonic() < told and slack.messages.empty():
            # Quicker than one core reads, and a hole reads as quickly as it can be made.
            flood.truncate(flood.seek(0, 2) + 512 * 1024 * 1024)
            flood.seek(0, 2)
            flood.write(line)
            flood.flush()
            time.sleep(1)
    assert "behind the logs" in until(slack, "MonitorBehind firing")
