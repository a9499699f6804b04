"""The main command as a process: what it prints, and how it ends."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live
PATIENCE_SECONDS = 30.0
Follow = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def follow(folder: Path) -> Iterator[Follow]:
    """Starts `ldlm-monitor` on the words given; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []
    guards: list[threading.Timer] = []

    def start(*words: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        fixed = ("--listen", "127.0.0.1:0", "--state-dir", str(folder / "state"))
        process = subprocess.Popen(
            [sys.executable, "-m", "ldlm_monitor", *fixed, *words],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        guard = threading.Timer(PATIENCE_SECONDS, process.kill)
        guard.start()
        started.append(process)
        guards.append(guard)
        return process

    yield start
    for guard in guards:
        guard.cancel()
        guard.join()
    for process in started:
        process.kill()
        process.communicate()


def line_with(text: str, process: subprocess.Popen[str], stream: str) -> str:
    """The next line that holds `text`."""
    lines = getattr(process, stream)
    for line in lines:
        if text in line:
            return str(line)
    raise AssertionError(f"the process ended and never said {text!r}")


def test_a_nan_that_is_appended_is_told_with_its_line(follow: Follow, folder: Path) -> None:
    log = folder / "training_log.jsonl"
    log.write_text('{"epoch": 0, "step": 1, "loss": 2.5, "lr": 5e-4}\n', encoding="utf-8")
    process = follow("--run", "gpt2", "training_log.jsonl")
    line_with("metrics on", process, "stderr")
    with log.open("a", encoding="utf-8") as file:
        file.write('{"epoch": 0, "step": 2, "loss": NaN, "lr": 5e-4}\n')
    assert "training_log.jsonl:2" in line_with("NonFiniteLoss", process, "stdout")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0


def test_ctrl_c_ends_it_with_130_and_without_a_traceback(follow: Follow, folder: Path) -> None:
    (folder / "a.log").touch()
    process = follow("a.log")
    line_with("metrics on", process, "stderr")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_file_that_is_missing_is_waited_for(follow: Follow, folder: Path) -> None:
    process = follow("late_*.log")
    assert "waiting" in line_with("late_*.log", process, "stderr")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0


def test_a_second_one_on_the_same_inputs_is_refused(follow: Follow, folder: Path) -> None:
    (folder / "a.log").touch()
    first = follow("a.log")
    line_with("metrics on", first, "stderr")
    second = follow("a.log")
    _, err = second.communicate()
    assert second.returncode == 2
    assert err.splitlines()[-1].startswith("ldlm-monitor: ")


def test_a_full_disk_under_its_status_lines_does_not_end_it(follow: Follow, folder: Path) -> None:
    (folder / "training_log.jsonl").write_text('{"step": 1, "loss": 2.5}\n', encoding="utf-8")
    with Path("/dev/full").open("w") as full:
        process = follow("--interval", "0.1", "training_log.jsonl", stdout=full)
        line_with("alerts go on without it", process, "stderr")
        (folder / "training_log.jsonl").unlink()
        line_with("training_log.jsonl", process, "stderr")
        process.send_signal(signal.SIGTERM)
        process.wait()
