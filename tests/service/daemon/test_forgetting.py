"""The daemon keeps so many ended runs as `ended_runs_kept` says, once their logs were read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.service.config import Settings
from tests.service.daemon.watching import NOW, Watching, append


def training(at: float, steps: int = 60) -> str:
    """Steps, a second each, of a log that ends well; `at`: Unix seconds of the first."""
    rows = (
        f'{{"step": {step}, "loss": {2 - step / 10_000}, "time": {at + step}}}\n'
        for step in range(steps)
    )
    return "".join(rows) + "Training complete.\n"


@pytest.fixture
def watching() -> Iterator[Watching]:
    found = Watching()
    yield found
    found.close()


def start(watching: Watching, folder: Path, kept: int) -> None:
    given = {"ended_runs_kept": kept, "end_series_after_seconds": 60, "companions": False}
    settings = Settings.model_validate({"files": (str(folder / "*.log"),), **given})
    watching.start(settings, folder / ".state")


def names(watching: Watching) -> list[str]:
    return sorted(run.name for run in watching.pump.snapshot.runs)


def test_of_the_runs_that_ended_the_last_are_shown(watching: Watching, tmp_path: Path) -> None:
    for number, name in enumerate(("first", "second", "third")):
        append(tmp_path / f"{name}.log", training(NOW + 100 * number), NOW + 100 * number + 60)
    start(watching, tmp_path, 2)
    for second in range(0, 2000, 100):
        watching.pump.turn(None, NOW + 400 + second)
    assert names(watching) == ["second", "third"]
