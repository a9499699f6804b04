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


def test_no_run_is_forgotten_of_which_more_is_to_be_read(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs that are found later, and read in pieces: one has ended while the other goes on."""
    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 0.0)
    start(watching, tmp_path, 0)
    watching.pump.turn(None, NOW)
    again = training(NOW - 3000, 3000).removesuffix("Training complete.\n")  # goes on
    append(tmp_path / "twice.log", training(NOW - 20_000, 3000) + again, NOW)
    append(tmp_path / "once.log", training(NOW - 20_000, 20_000), NOW)
    for turn in range(50_000):
        watching.pump.turn(None, NOW + 1 + turn / 1000)
        runs = {run.name: run for run in watching.pump.snapshot.runs}
        if "twice" in runs and all(run.health != "READING" for run in runs.values()):
            assert runs["twice"].attempt == 2
            return
    raise AssertionError("it was never read")
