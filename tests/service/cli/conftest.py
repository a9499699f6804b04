"""Commands run in an empty folder, without settings of ours."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("LDLM_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def examples() -> Path:
    """Logs of small trainings that the project ran itself."""
    return Path(__file__).resolve().parents[3] / "examples/train_logs"


@pytest.fixture
def logger_as_it_was() -> Iterator[None]:
    """What a command changes of our logger is undone."""
    logger = logging.getLogger("ldlm_monitor")
    before = logger.handlers, logger.level, logger.propagate
    yield
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])
