"""Command lines run in this process, in an empty folder, without settings of ours."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ldlm_monitor.cli import main


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("LDLM_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs `ldlm-monitor` with the words given."""

    def run(*words: str) -> Answer:
        capfd.readouterr()
        code = main(words)
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return run


@pytest.fixture(scope="session")
def examples() -> Path:
    """Logs of small trainings that the project ran itself."""
    return Path(__file__).resolve().parents[2] / "examples/train_logs"
