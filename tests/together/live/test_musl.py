"""Where packages have no wheel (musl): google-crc32c is pure Python."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EVENTS = Path(__file__).parents[2] / "logs/event_files/torch.tfevents.1"
ABSENT = "import sys\nsys.modules |= dict.fromkeys(['google_crc32c._crc32c'])\n"
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
