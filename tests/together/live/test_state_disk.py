"""The disk of the state is full, and then is not, or is read-only: each alert comes once."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live

AT_ONCE = "from ldlm_monitor.service.state import database; database.RETRY_SECONDS = 0.2"
NAN = "WARNING: Invalid text_loss detected: nan\n"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=700", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def steps(first: int, last: int) -> str:
    return "".join(f"step {step}/950 loss 2.5{step}\n" for step in range(first, last))


def fill(disk: Path) -> Callable[[], None]:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler.unlink


def reported(slack: Any, run: str) -> None:
    message = slack.next()
    assert "NonFiniteLoss" in message
    assert run in message


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(False, id="while it runs"),
        pytest.param(True, id="before it starts", marks=pytest.mark.long),
    ],
)
def test_no_alert_is_lost_or_comes_twice(
    start: Callable[..., Any],
    append: Callable[[str, str], Path],
    slack: Any,
    disk: Path,
    before: bool,
) -> None:
    for run in ("first", "second"):
        append(f"{run}.log", steps(1, 50))
    mend = fill(disk) if before else None
    arguments = ("first.log", "second.log", "--state-dir", str(disk))
    daemon = start(*arguments, slack=slack, shorter=AT_ONCE).ready()
    mend = mend or fill(disk)
    append("first.log", NAN + steps(50, 60))
    reported(slack, "first")
    mend()
    daemon.wait_for_message("outbox.sqlite: can be used again")
    daemon.wait_for_message("ledger.sqlite: can be used again")
    daemon.process.kill()
    daemon.wait()
    append("second.log", NAN + steps(50, 60))
    start(*arguments, slack=slack).ready()
    reported(slack, "second")
    assert slack.messages.empty()


def test_a_state_folder_that_cannot_be_written_is_said_and_alerts_go_on(
    start: Callable[..., Any],
    append: Callable[[str, str], Path],
    slack: Any,
    disk: Path,
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    append("first.log", steps(1, 50))
    daemon = start("first.log", "--state-dir", str(disk), slack=slack).ready()
    daemon.wait_for_message("state: cannot be written")
    append("first.log", NAN + steps(50, 60))
    reported(slack, "first")
