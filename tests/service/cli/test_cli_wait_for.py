"""`wait-for` as a command: its one JSON object, and its exit codes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.service.cli import main
from ldlm_monitor.service.cli.opening import Opening
from ldlm_monitor.service.config import Settings

pytestmark = pytest.mark.live
PATIENCE = ("--timeout", "60")
Capture = pytest.CaptureFixture[str]


def rows(first: int, last: int, loss: str = "") -> str:
    steps = range(first, last + 1)
    return "".join(f"step {step}/100 loss {loss or f'{2 / step:.4f}'}\n" for step in steps)


def asked(capsys: Capture, *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["wait-for", *words])
    (line,) = capsys.readouterr().out.splitlines()
    return code, json.loads(line)


def test_a_nan_is_a_decision_and_ends_with_three(folder: Path, capsys: Capture) -> None:
    Path("bad.log").write_text(rows(1, 40) + rows(41, 60, "nan"), encoding="utf-8")
    code, found = asked(capsys, "bad.log", *PATIENCE)
    assert (code, found["what"], found["where"]) == (3, "decision", "bad.log:41")
    assert found["decision"]["decision"] == "ROLLBACK"


def test_a_run_that_ends_well_ends_with_nought(folder: Path, capsys: Capture) -> None:
    Path("good.log").write_text(rows(1, 100) + "Training complete.\n", encoding="utf-8")
    os.utime("good.log", (written := time.time() - 3600, written))
    code, found = asked(capsys, "good.log", "--until", "finished", *PATIENCE)
    assert (code, found["what"], found["run"]) == (0, "finished", "good")


def test_a_step_that_is_written_meanwhile_ends_the_wait(folder: Path, capsys: Capture) -> None:
    log = folder / "live.log"
    log.write_text(rows(1, 10), encoding="utf-8")

    def write() -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(rows(11, 30))

    writer = threading.Timer(2.0, write)
    writer.start()
    code, found = asked(capsys, "live", "*.log", "--until", "step=30", *PATIENCE)
    writer.join()
    assert (code, found["what"]) == (0, "step")
    assert found["step"] >= 30


def test_nothing_in_time_ends_with_124_and_says_how_it_is(folder: Path, capsys: Capture) -> None:
    Path("live.log").write_text(rows(1, 10), encoding="utf-8")
    code, found = asked(capsys, "live.log", "--timeout", "0")
    assert (code, found["what"]) == (124, "timeout")


def test_a_log_that_does_not_exist_yet_is_waited_for(folder: Path, capsys: Capture) -> None:
    text = rows(1, 40) + rows(41, 60, "nan")
    writer = threading.Timer(2.0, Path("later.log").write_text, (text,))
    writer.start()
    code, found = asked(capsys, "later.log", *PATIENCE)
    writer.join()
    assert (code, found["where"]) == (3, "later.log:41")


def test_a_wait_that_is_terminated_has_not_ended_well(folder: Path) -> None:
    Path("live.log").write_text(rows(1, 10), encoding="utf-8")
    command = [sys.executable, "-m", "ldlm_monitor", "wait-for", "live.log", *PATIENCE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        status = Path(f"/proc/{process.pid}/status")
        while not caught(status.read_text(encoding="utf-8"), signal.SIGTERM):
            time.sleep(0.05)
        process.terminate()
        out, _ = process.communicate()
    assert (process.returncode, out) == (143, b"")


def caught(status: str, number: int) -> bool:
    """Whether a process has a handler of the signal, by its `status` in /proc (proc(5))."""
    return bool(int(re.findall(r"SigCgt:\s+(\w+)", status)[0], 16) >> (number - 1) & 1)


def test_that_a_monitor_is_gone_is_said_once(folder: Path, capsys: Capture) -> None:
    Path("live.log").write_text(rows(1, 10), encoding="utf-8")
    seen = Settings(files=("live.log",), listen="127.0.0.1:0", state_dir=folder / "state")
    opening = Opening(seen, lambda: seen, has_screen=True, outlasts=True)
    opening.start()
    url = opening.url()
    ending = threading.Timer(1.0, opening.close, (0,))
    ending.start()
    assert main(["wait-for", "live", "--url", url, "--timeout", "6"]) == 124
    ending.join()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("waiting for its answer")


def test_it_leaves_no_state_and_tells_nobody(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ldlm-monitor.toml").write_text('state_dir = "state"\n', encoding="utf-8")
    Path("bad.log").write_text(rows(1, 40) + rows(41, 60, "nan"), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        monkeypatch.setenv("LDLM_WEBHOOK_URL", f"http://127.0.0.1:{receiver.getsockname()[1]}")
        code, _ = asked(capsys, "bad.log", *PATIENCE)
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.accept()
    assert code == 3
    assert not Path("state").exists()


def test_without_files_it_asks_the_monitor_on_the_usual_address(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("bad.log").write_text(rows(1, 40) + rows(41, 60, "nan"), encoding="utf-8")
    seen = Settings(files=("bad.log",), listen="127.0.0.1:0", state_dir=folder / "state")
    opening = Opening(seen, lambda: seen, has_screen=True, outlasts=True)
    opening.start()
    monkeypatch.setenv("LDLM_LISTEN", opening.url().removeprefix("http://"))
    try:
        code, found = asked(capsys, "bad", *PATIENCE)
    finally:
        opening.close(0)
    assert (code, found["what"], found["where"]) == (3, "decision", "bad.log:41")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nosuch", "--url", "http://127.0.0.1:9"), "does not answer"),
        (("a.log", "--until", "later"), "nothing to wait for"),
        (("a.log", "--timeout", "-1"), "is no time to wait"),
        (("run", "*.log", "--url", "http://127.0.0.1:9"), "goes not with files"),
    ],
)
def test_what_cannot_be_waited_for_is_one_line(
    folder: Path, capsys: Capture, words: tuple[str, ...], said: str
) -> None:
    assert main(["wait-for", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
