"""The screen on real logs: the project's own example trainings, read by the real core."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences
from tests.screen.screens import LAST_WRITE, NOW, Shown, read

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example logs, last written when the originals were."""
    folder = tmp_path_factory.mktemp("trainings")
    for name in ("train_logs", "saved"):
        shutil.copytree(EXAMPLES / name, folder / name)
    for path in folder.rglob("*.*"):
        os.utime(path, (LAST_WRITE, LAST_WRITE))
    return folder


@pytest.fixture(scope="session")
def read_all(trainings: Path) -> Snapshot:
    return read(f"{trainings}/train_logs/*.log")


@pytest.fixture
def shown(read_all: Snapshot, tmp_path: Path) -> Iterator[Shown]:
    """What a screen is opened on; `snapshot` may be replaced."""
    silences = Silences(tmp_path / "silences.sqlite")
    shown = Shown(read_all, silences)
    shown.source = LocalSource(
        lambda: shown.snapshot, silences, "train_logs/*.log", clock=lambda: NOW
    )
    yield shown
    silences.close()
