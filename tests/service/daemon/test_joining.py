"""A log that joins a running monitor: its reading makes no silence, and delays no other run."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.recording import Recorder
from ldlm_monitor.finished.playback.timed_inputs import of_recording
from ldlm_monitor.service.config import Settings
from tests.service.daemon.watching import NOW, Watching, append

LIVE, JOINED = "train_20260129_101500_node0.log", "train_20260120_101500_node0.log"


def step(number: int) -> str:
    return f"step {number} loss {2.5 + number % 7 / 100} lr 1e-4\n"


def stamped(first: float, count: int) -> str:
    """Steps with their own times, one a second from `first` (seconds from the day's begin)."""
    lines = []
    for number in range(count):
        at = int(first) + number
        clock = f"{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}"
        lines.append(f"2026-01-29 {clock} {step(number)}")
    return "".join(lines)


class Folder:
    """A monitor of a folder with a live run, which takes a step a second."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.watching = Watching()
        self.watching.start(
            Settings(files=(str(folder / "*.log"),), companions=False), folder / ".state"
        )
        self.now, self.number = NOW, 0
        self.watching.pump.turn(None, self.now)

    def live(self, seconds: int) -> None:
        for _ in range(seconds):
            append(self.path / LIVE, step(self.number), self.now)
            self.wait(1.0)
            self.number += 1

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.watching.pump.turn(None, self.now)

    def sent(self) -> list[str]:
        return [each for each in self.watching.reported() if "Watchdog" not in each]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    monkeypatch.setenv("TZ", "UTC")
    # Each turn reads a piece of the history, as of a large file.
    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 0.0)
    found = Folder(tmp_path)
    yield found
    found.watching.close()


def test_a_healthy_run_with_a_long_history_is_not_stalled_while_it_is_read(folder: Folder) -> None:
    folder.live(5)
    recorder = Recorder(folder.path / "joining.rec", "*.log", folder.now)
    folder.watching.pump.recorder = recorder
    day = 10 * 3600 + 15 * 60 + 5  # now, in the log's own clock
    append(folder.path / JOINED, stamped(day - 3000, 3000), folder.now)
    folder.live(100)
    shown = folder.watching.pump.snapshot
    joined = next(run for run in shown.runs if run.name in JOINED)
    assert (joined.health, joined.state) == ("READING", "running")
    assert shown.reading is not None
    assert joined.judged_to == shown.judged_to == joined.last_progress_at
    assert folder.sent() == []
    recorder.close()
    reel = of_recording(folder.path / "joining.rec", Settings(files=("x.log",)), folder.path)
    played = [each.alert for piece in reel.pieces for each in piece.play()]
    assert "TrainingStalled" not in played
    assert [run.state for run in reel.monitor.snapshot().runs] == ["running", "running"]


def test_it_is_stalled_if_it_stays_silent_once_it_is_followed(folder: Folder) -> None:
    folder.live(5)
    append(folder.path / JOINED, stamped(10 * 3600 + 15 * 60 - 95, 94), folder.now)
    folder.live(200)
    assert "TrainingStalled firing" in folder.sent()


def test_the_stall_of_a_live_run_is_sent_though_an_old_log_joins_in_that_turn(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 10.0)
    folder.live(100)
    (run,) = folder.watching.pump.snapshot.runs
    while folder.now + 0.5 < (run.last_progress_at or 0) + (run.stall_limit_seconds or 0):
        folder.wait(0.5)
    assert folder.sent() == []
    append(folder.path / JOINED, stamped(3600, 60).replace("01-29", "01-20"), NOW - 9 * 86400)
    for _ in range(6):
        folder.wait(1.0)
    assert "TrainingStalled firing" in folder.sent()


def test_a_run_that_joined_waits_for_its_new_bytes_while_the_next_is_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 10.0)
    second, runs = JOINED.replace("0120", "0121"), folder.watching.pump.monitor.runs
    append(folder.path / JOINED, stamped(36_000, 20), folder.now)
    folder.wait(0.5)
    joined_at = folder.now
    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 0.0)
    append(folder.path / second, stamped(36_000, 3000), folder.now)
    folder.wait(1.0)
    folder.wait(0.5)
    held = {JOINED: joined_at, second: -math.inf}
    assert runs.ends == {name.removesuffix("_node0.log"): at for name, at in held.items()}
    folder.live(3)
    assert [*runs.ends.values()] == [-math.inf]


def test_of_files_that_join_those_that_were_written_last_are_judged_first(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.JOIN_FILES", 1)
    for day, age in (("20", 300), ("21", 100), ("22", 200)):
        path = folder.path / JOINED.replace("0120", f"01{day}")
        append(path, stamped(36_000, 50), folder.now - age)
    order: list[str] = []
    while len(order) < 3:
        folder.wait(0.1)
        order += [run.name for run in folder.watching.pump.monitor.runs if run.name not in order]
    assert [name[10:14] for name in order] == ["0121", "0122", "0120"]


@pytest.mark.parametrize("together", [True, False])
def test_files_that_were_empty_when_they_were_found_join_once_they_are_written(
    folder: Folder, together: bool
) -> None:
    paths = [folder.path / f"exp_{rank}.log" for rank in range(2)]
    for path in paths:
        append(path, "", folder.now)
    folder.wait(1.0)
    for rank, path in enumerate(paths):
        head = f"2026-01-29 10:15:00 [rank{rank}]: world_size: 2\n"
        append(path, head + stamped(36_901, 20), folder.now)
        folder.wait(0.0 if together else 1.0)
    for _ in range(4):
        folder.wait(1.0)
    (run,) = folder.watching.pump.snapshot.runs
    assert sorted(run.files) == sorted(map(str, paths))
