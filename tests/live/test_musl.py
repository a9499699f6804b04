"""Where packages have no wheel (musl): watchdog may be absent, google-crc32c is pure Python."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EVENTS = Path(__file__).parents[1] / "event_files/torch.tfevents.1"
ABSENT = "import sys\nsys.modules |= dict.fromkeys(['watchdog', 'google_crc32c._crc32c'])\n"
"""Run at each start of Python: what is None in `sys.modules` cannot be imported."""


def parsed() -> tuple[str, str]:
    command = [sys.executable, "-m", "ldlm_monitor", "parse", str(EVENTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.fixture
def absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def block() -> None:
        (tmp_path / "start").mkdir()
        (tmp_path / "start/sitecustomize.py").write_text(ABSENT)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"))

    return block


def test_checksums_of_pure_python_read_the_same_and_print_no_warning(
    absent: Callable[[], None],
) -> None:
    before = parsed()
    absent()
    assert parsed() == before
    assert before[0].count('"loss":')


def test_without_watchdog_a_growing_event_file_is_polled(
    absent: Callable[[], None], start: Callable[..., Any], tmp_path: Path
) -> None:
    absent()
    data = EVENTS.read_bytes()
    grown = tmp_path / EVENTS.name
    grown.write_bytes(data[:300])
    daemon = start(grown.name).ready()
    daemon.wait_for_message("watchdog is not installed", "polling every 0.25s")
    with grown.open("ab") as file:
        file.write(data[300:])
    daemon.wait_for_metric("ldlm_train_step{", " 8")
    assert daemon.stop() == 0
