"""Logs that take long to read: a line on a terminal shows how far it is, Ctrl-C keeps the rest."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ldlm_monitor.service.cli import reading
from ldlm_monitor.service.cli.flags import replay_of, settings_for_inputs
from ldlm_monitor.service.cli.reading import read_to_end

LINE = "2026-01-01 {:02d}:{:02d}:{:02d} - INFO - step {}: loss: 3.1234 grad_norm: 0.5 lr: 1e-4\n"


@pytest.fixture
def long_log(tmp_path: Path) -> Path:
    """A log whose reading takes many seconds."""
    path = tmp_path / "long.log"
    seconds = range(86_400)
    path.write_text("".join(LINE.format(at // 3600, at // 60 % 60, at % 60, at) for at in seconds))
    return path


def interrupted(*arguments: str) -> tuple[str, str, int]:
    """What a terminal shows until the reading's second state, Ctrl-C, and what was printed then."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ldlm_monitor", *arguments], stderr=theirs, stdout=subprocess.PIPE
    ) as command:
        os.close(theirs)
        shown = b""
        while shown.count(b"reading ") < 2 and (more := os.read(ours, 4096)):
            shown += more
        command.send_signal(signal.SIGINT)
        printed, _ = command.communicate(timeout=60)
        while b"say" not in shown:
            shown += os.read(ours, 4096)
    os.close(ours)
    return shown.decode(), printed.decode(), command.returncode


@pytest.mark.live
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["--once"], "running"),
        (["report"], "running"),
        (["goodput"], "goodput"),
        (["replay", "--format", "json"], '"alert": "Watchdog"'),
    ],
)
@pytest.mark.slice(2)
def test_ctrl_c_prints_what_is_known_so_far_and_says_of_which_part(
    long_log: Path, command: list[str], says: str
) -> None:
    shown, printed, code = interrupted(*command, str(long_log))
    assert re.search(r"\rreading [\d.]+ MiB: \d+ %, \d+m? ?\d*s? left", shown.replace("\x1b[K", ""))
    assert re.search(r"interrupted: this is what the first [\d.]+ [KM]iB \(\d+ %\) say", shown)
    assert says in printed
    assert code == 130


@pytest.mark.live
def test_a_comparison_of_parts_is_none(long_log: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ["compare", str(long_log), str(long_log)]
    with subprocess.Popen(
        [sys.executable, "-m", "ldlm_monitor", *arguments], stderr=theirs, stdout=subprocess.PIPE
    ) as command:
        os.close(theirs)
        shown = b""
        while b"reading " not in shown:
            shown += os.read(ours, 4096)
        command.send_signal(signal.SIGINT)
        printed, _ = command.communicate(timeout=60)
        while b"show nothing" not in shown:
            shown += os.read(ours, 4096)
    os.close(ours)
    assert (printed, command.returncode) == (b"", 130)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_line_is_drawn_on_a_terminal_alone_and_erased(
    examples: Path,
    is_terminal: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(reading, "SHOWN_AFTER", 0.0)
    log = next(examples.glob("*.log"))
    replay = replay_of(settings_for_inputs(None, (str(log),), once=True))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    read_to_end(replay)
    drawn = capsys.readouterr().err
    assert ("reading " in drawn) is is_terminal
    assert drawn.endswith("\r\x1b[K") is is_terminal
