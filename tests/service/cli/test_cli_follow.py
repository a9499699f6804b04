"""The main command: what it prints, and how it ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ldlm_monitor.service.cli import main
from ldlm_monitor.service.state.state_dir import announced

PATIENCE_SECONDS = 60.0
LOG = "training_log.jsonl"
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Following:
    """`ldlm-monitor` on some files; what is done meanwhile is another thread's."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capfd = folder, capfd
        self.out = self.err = ""

    def said(self) -> str:
        out, err = self.capfd.readouterr()
        self.out += out
        self.err += err
        return self.out + self.err

    def until(self, text: str) -> None:
        """Wait until it has printed a text."""
        end = time.monotonic() + PATIENCE_SECONDS
        while text not in self.said() and time.monotonic() < end:
            threading.Event().wait(0.02)

    def run(self, *words: str, meanwhile: Callable[[], None], number: int = signal.SIGTERM) -> int:
        """Its exit code; it gets the signal when `meanwhile`, which begins as it serves, is over"""
        state = self.folder / "state"
        is_over = threading.Event()

        def act() -> None:
            while announced(state) is None:
                if is_over.wait(0.02):
                    return
            meanwhile()
            os.kill(os.getpid(), number)

        actor = threading.Thread(target=act)
        actor.start()
        try:
            return main(["--listen", "127.0.0.1:0", "--state-dir", str(state), *words])
        finally:
            is_over.set()
            actor.join()
            self.said()


@pytest.fixture
def following(
    folder: Path, capfd: pytest.CaptureFixture[str], logger_as_it_was: None
) -> Iterator[Following]:
    before = {number: signal.getsignal(number) for number in ENDING}
    yield Following(folder, capfd)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_nan_that_is_appended_is_told_with_its_line(following: Following, folder: Path) -> None:
    log = folder / LOG
    log.write_text('{"epoch": 0, "step": 1, "loss": 2.5, "lr": 5e-4}\n', encoding="utf-8")

    def meanwhile() -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write('{"epoch": 0, "step": 2, "loss": NaN, "lr": 5e-4}\n')
        following.until("NonFiniteLoss")

    assert following.run("--run", "gpt2", LOG, meanwhile=meanwhile) == 0
    (line,) = [line for line in following.out.splitlines() if "NonFiniteLoss" in line]
    assert f"{LOG}:2" in line
    assert "metrics on http://127.0.0.1:" in following.err


def test_ctrl_c_ends_it_with_130_and_the_report(following: Following, folder: Path) -> None:
    (folder / LOG).write_text('{"step": 1, "loss": 2.5}\n', encoding="utf-8")
    words = ("--run", "gpt2", "--interval", "0.1", LOG)
    seen = partial(following.until, "gpt2  HEALTHY")
    assert following.run(*words, meanwhile=seen, number=signal.SIGINT) == 130
    assert "Traceback" not in following.err
    assert "gpt2" in following.out.partition("ldlm-monitor health report")[2]


def test_a_file_that_is_missing_is_waited_for(following: Following) -> None:
    assert following.run("late_*.log", meanwhile=lambda: following.until("waiting")) == 0
    assert "late_*.log: does not exist yet, waiting for it" in following.err


def test_a_second_one_on_the_same_inputs_is_refused(following: Following, folder: Path) -> None:
    (folder / LOG).touch()
    codes: list[int] = []

    def meanwhile() -> None:
        words = [sys.executable, "-m", "ldlm_monitor", "--state-dir", str(folder / "state"), LOG]
        second = subprocess.run(words, capture_output=True, text=True, check=False)
        codes.append(second.returncode)
        assert second.stderr.splitlines()[-1].startswith("ldlm-monitor: ")

    assert following.run(LOG, meanwhile=meanwhile) == 0
    assert codes == [2]


@pytest.mark.live
def test_a_full_disk_under_its_status_lines_does_not_end_it(folder: Path) -> None:
    (folder / LOG).write_text('{"step": 1, "loss": 2.5}\n', encoding="utf-8")
    words = ("--listen", "127.0.0.1:0", "--state-dir", str(folder / "state"), "--interval", "0.1")
    with (
        Path("/dev/full").open("w") as full,
        subprocess.Popen(
            [sys.executable, "-m", "ldlm_monitor", *words, LOG],
            stdout=full, stderr=subprocess.PIPE, text=True,
        ) as process,
    ):  # fmt: skip
        guard = threading.Timer(PATIENCE_SECONDS, process.kill)
        guard.start()
        assert process.stderr is not None
        next(line for line in process.stderr if "alerts go on without it" in line)
        (folder / LOG).unlink()
        next(line for line in process.stderr if LOG in line)
        process.send_signal(signal.SIGTERM)
        guard.cancel()
