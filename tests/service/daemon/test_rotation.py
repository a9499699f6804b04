"""A rotated log under a name that is followed too goes on as itself, and nothing comes twice."""

import gzip
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ldlm_monitor.logs.source.file_identity import originals
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.dispatcher import Dispatcher
from tests.service.daemon.watching import NOW, Watching, append
from tests.service.daemon.watching import bars as drawn_bars

bars = partial(drawn_bars, end="\n")
NAN = "WARNING: Invalid text_loss detected: nan\n"


class Rotated(Watching):
    """A pump on `*.log*`, and what it sends of one log while that is rotated."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.second = folder, folder / "app.log", 0.0
        self.open()

    def open(self, pattern: str = "*.log*") -> None:
        wanted = Settings(files=(str(self.folder / pattern),), companions=False)
        self.start(wanted, self.folder / "state")

    def write(self, text: str, path: Path | None = None) -> None:
        append(path or self.log, text, NOW + self.second)

    def look(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.second += 1.0
            self.pump.turn((self.folder / f"x{self.second}",), NOW + self.second)

    def join(self) -> None:
        """Until nothing waits to be judged, and what was judged is followed."""
        self.look()
        while self.pump.behind() or self.pump.reading is not None:
            self.look()
        self.look()

    def runs(self) -> list[str]:
        return [run.name for run in self.pump.monitor.snapshot().runs]

    def samples(self) -> int:
        return self.pump.monitor.own.view().records.get("sample", 0)


@pytest.fixture
def rotated(tmp_path: Path) -> Iterator[Rotated]:
    rotated = Rotated(tmp_path)
    rotated.write(bars(0, 40) + NAN)
    rotated.look(2)
    assert rotated.reported() == ["NonFiniteLoss firing"]
    yield rotated
    rotated.close()


@pytest.mark.parametrize("name", ["app.log.1", "app-20261122.log", "app.log-20261122"])
@pytest.mark.parametrize("restart", [False, True], ids=["on", "restart"])
def test_a_renamed_log_goes_on_under_any_name(rotated: Rotated, name: str, restart: bool) -> None:
    away = rotated.log.rename(rotated.folder / name)
    rotated.write(bars(40, 45), away)
    rotated.write(bars(45, 50))
    if restart:
        rotated.close()
        rotated.open()
    for step in range(50, 120, 10):  # longer than a file is read that lost its name
        rotated.look(10)
        rotated.write(bars(step, step + 10))
    rotated.write(bars(120, 125), away)
    rotated.look(3)
    assert rotated.runs() == ["app"]
    assert rotated.samples() == 125
    assert rotated.reported() == []
    rotated.close()
    rotated.open()
    rotated.look(10)
    assert (rotated.runs(), rotated.samples(), rotated.reported()) == (["app"], 125, [])


@pytest.mark.parametrize("when", ["on", "before", "down"])
def test_a_copy_before_a_truncation_is_not_read_again(rotated: Rotated, when: str) -> None:
    rotated.write(bars(40, 45))
    if when == "down":
        rotated.close()
    shutil.copy(rotated.log, rotated.folder / "app.log.1")
    if when == "before":
        rotated.look(2)
    os.truncate(rotated.log, 0)
    rotated.write(bars(45, 50))
    if when == "down":
        rotated.open()
    rotated.look(10)
    assert rotated.runs() == ["app"]
    assert rotated.samples() == 50
    assert rotated.reported() == []
    rotated.close()
    rotated.open()
    rotated.look(10)
    assert (rotated.runs(), rotated.samples(), rotated.reported()) == (["app"], 50, [])


@pytest.mark.parametrize("followed", [True, False])
def test_what_two_truncations_in_one_look_leave_is_read_once_or_reported(
    rotated: Rotated, followed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """copytruncate twice, as where the log outgrows its limit at once: the copies move on."""
    if not followed:
        rotated.close()
        rotated.open("app.log")
        rotated.look(2)
    first, second = rotated.folder / "app.log.1", rotated.folder / "app.log.2"
    for step in (40, 45):
        rotated.write(bars(step, step + 5))
        if first.exists():
            first.rename(second)
        shutil.copy(rotated.log, first)
        os.truncate(rotated.log, 0)
    rotated.write(bars(50, 60))
    rotated.look(10)
    assert rotated.samples() == (60 if followed else 50)
    assert (rotated.runs(), rotated.reported()) == (["app"], [])
    assert "was truncated after byte" in caplog.text


def test_another_log_with_such_a_name_is_another_run(rotated: Rotated) -> None:
    rotated.write("another launch\n" + bars(0, 30) + NAN, rotated.folder / "app.2.log")
    rotated.join()
    assert rotated.runs() == ["app", "app.2"]
    assert rotated.reported() == ["NonFiniteLoss firing"]


def test_a_short_log_with_such_a_name_is_another_run_soon(rotated: Rotated) -> None:
    rotated.write(NAN, rotated.folder / "app.2.log")
    rotated.look(5)
    assert rotated.reported() == ["NonFiniteLoss firing"]


def test_a_live_log_is_read_between_the_files_that_join(rotated: Rotated) -> None:
    rotated.write(bars(40, 50))
    noise = "nothing of interest\n" * 250_000
    for number in range(5):
        rotated.write(f"launch {number}\n{noise}{bars(0, 40)}", rotated.folder / f"b{number}.log")
    rotated.look(1)
    rotated.write(bars(50, 60))
    rotated.look(1)
    assert rotated.pump.pause(NOW + rotated.second) == 0.0
    assert rotated.pump.behind() > 0
    assert len(rotated.runs()) < 6
    (app,) = (run for run in rotated.pump.monitor.snapshot().runs if run.name == "app")
    assert app.step == 59
    rotated.join()
    rotated.look(1)
    assert len(rotated.runs()) == 6


def test_one_long_file_that_joins_does_not_delay_a_live_alert(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 0.0)
    long = rotated.folder / "long.log"
    rotated.write(f"launch\n{NAN}" + "nothing of interest\n" * 150_000 + bars(0, 40), long)
    size = long.stat().st_size
    rotated.look(1)
    assert rotated.pump.behind() == size
    rotated.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    rotated.look(2)
    assert rotated.reported() == ["OutOfMemory firing"]
    assert "long" in rotated.runs()
    behind = rotated.pump.behind()
    rotated.look(1)
    assert 0 < rotated.pump.behind() < behind
    rotated.join()
    rotated.look(1)
    assert rotated.reported().count("NonFiniteLoss firing") == 1, "what holds of the whole file"


@pytest.mark.parametrize(
    "name",
    [
        "rank1.log.1",
        "rank1.1.log",
        "rank1-20261122.log",
        "rank1.log-20261122T101500",
        "rank1.log.old",
        "rank1.log~",
        "rank1.2026-11-22_10-15-00_123456.log",
    ],
)
def test_names_that_a_rotation_gives(name: str) -> None:
    assert "rank1.log" in originals(name)


@pytest.mark.parametrize("name", ["rank10.log", "rank1_node1.log", "rank1.log", "1rank1.log"])
def test_names_that_no_rotation_gives(name: str) -> None:
    assert "rank1.log" not in originals(name)


@pytest.mark.parametrize("restart", [False, True], ids=["on", "restart"])
def test_a_rotated_log_is_not_read_again_once_it_is_compressed(
    rotated: Rotated, restart: bool
) -> None:
    away = rotated.log.rename(rotated.folder / "app.log.1")
    rotated.write(bars(40, 45))
    rotated.look(2)
    if restart:
        rotated.close()
    compressed = away.with_name("app.log.1.gz")
    compressed.write_bytes(gzip.compress(away.read_bytes()))
    away.unlink()
    if restart:
        rotated.open()
    rotated.look(10)
    assert (rotated.runs(), rotated.samples(), rotated.reported()) == (["app"], 45, [])


def test_a_log_that_is_compressed_within_its_rotation_is_read_once(rotated: Rotated) -> None:
    """logrotate's `compress` without `delaycompress`: no look falls between the two."""
    for number, step in enumerate((40, 45), start=1):
        rotated.write(bars(step, step + 5))
        away = rotated.log.rename(rotated.folder / f"app.log.{number}")
        away.with_name(f"{away.name}.gz").write_bytes(gzip.compress(away.read_bytes()))
        away.unlink()
        rotated.write(bars(step + 5, step + 6))
        rotated.look(5)
    rotated.look(10)
    assert (rotated.runs(), rotated.samples(), rotated.reported()) == (["app"], 52, [])


def test_of_two_readings_of_a_compressed_log_the_further_one_counts(rotated: Rotated) -> None:
    """The file was replaced by its copy before a restart, and read further after it."""
    copy = rotated.folder / "swap"
    copy.write_bytes(rotated.log.read_bytes())
    copy.replace(rotated.log)
    rotated.look(2)
    rotated.close()
    rotated.open()
    rotated.write(bars(40, 45))
    rotated.look(2)
    away = rotated.log.rename(rotated.folder / "app.log.1")
    rotated.write(bars(45, 50))
    rotated.look(2)
    away.with_name("app.log.1.gz").write_bytes(gzip.compress(away.read_bytes()))
    away.unlink()
    rotated.look(10)
    assert (rotated.runs(), rotated.samples(), rotated.reported()) == (["app"], 50, [])


@pytest.mark.parametrize("restart", [False, True], ids=["on", "restart"])
def test_a_compressed_log_grows_by_members_and_is_rotated(tmp_path: Path, restart: bool) -> None:
    rotated = Rotated(tmp_path)

    def write(text: str, path: Path) -> None:
        with path.open("ab") as file:
            file.write(gzip.compress(text.encode()))
        os.utime(path, (NOW + rotated.second,) * 2)
        rotated.look(3)
        if restart:
            rotated.close()
            rotated.open()

    log = tmp_path / "app.log.gz"
    write(bars(0, 20) + NAN + "half of a", log)
    assert rotated.reported() == ["NonFiniteLoss firing"]
    write(" line\n", log)
    write(bars(20, 50), log)
    old = log.rename(tmp_path / "app.log.1.gz")
    write(bars(50, 60), old)
    write(bars(60, 70), log)
    write(bars(70, 80), log)
    write(bars(80, 81), old)
    rotated.look(3)
    assert (rotated.runs(), rotated.samples(), rotated.reported()) == (["app"], 81, [])
    rotated.close()


def rows(first: int, last: int) -> str:
    return "".join(f"{step},2.{5000 + step * 37 % 991}\n" for step in range(first, last))


def begin_a_table(rotated: Rotated) -> int:
    """Write a header and 300 rows to another log; returns the samples of before."""
    before, rotated.log = rotated.samples(), rotated.folder / "table.log"
    rotated.write("step,loss\n" + rows(0, 300))
    rotated.join()
    return before


@pytest.mark.parametrize("how", ["rename", "copy"])
def test_a_header_that_was_printed_once_counts_after_a_rotation(rotated: Rotated, how: str) -> None:
    before = begin_a_table(rotated)
    if how == "rename":
        rotated.log.rename(rotated.folder / "table.log.1")
    else:
        shutil.copy(rotated.log, rotated.folder / "table.log.1")
        os.truncate(rotated.log, 0)
    rotated.look()
    rotated.write(rows(300, 400))
    rotated.look(90)  # the old file ends meanwhile
    rotated.write(rows(400, 410))
    rotated.look(3)
    assert rotated.samples() - before == 410


def test_a_text_that_follows_a_table_under_its_name_is_read_as_text(rotated: Rotated) -> None:
    before = begin_a_table(rotated)
    rotated.log.rename(rotated.folder / "table.log.1")
    rotated.write(bars(300, 310))
    rotated.look(3)
    assert rotated.samples() - before == 310


@pytest.mark.parametrize(
    ("pattern", "again"), [("*.log*", False), ("app.log", False), ("app.log", True)]
)
def test_the_file_between_two_rotations_is_read(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch, pattern: str, again: bool
) -> None:
    """`again`: also if it is rotated while a restart reads what was read before."""
    rotated.close()
    earlier = rotated.folder / "app.log.7"
    rotated.write(bars(10, 100))
    rotated.second += 1.0
    rotated.log.rename(earlier)
    rotated.write(bars(10, 100))
    rotated.open(pattern)
    rotated.join()
    before = rotated.samples()

    def rotate() -> None:
        if not (rotated.folder / "app.log.2").exists():
            rotated.log.rename(rotated.folder / "app.log.2")
            rotated.write(bars(100, 150))
            rotated.log.rename(rotated.folder / "app.log.1")
            rotated.write(bars(150, 160))

    if again:
        rotated.close()
        rotated.open(pattern)
        monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 0.0)
        rotated.pump.meanwhile = rotate
    else:
        rotate()
    rotated.look(20)
    assert rotated.samples() - before == 60


def test_what_was_read_of_a_copy_before_a_kill_is_not_counted_again(rotated, monkeypatch) -> None:
    """The read log has its last lines, and the state, which is committed later, only the original.

    It counted twice if both names had moved on before the next start.
    """
    rotated.write(bars(40, 240))
    rotated.look(20)
    swap = rotated.folder / "swap"
    shutil.copy(rotated.log, swap)
    swap.replace(rotated.log)
    rotated.write(bars(240, 245))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Dispatcher, "end_acknowledgements", killed)
        with pytest.raises(KeyboardInterrupt):
            rotated.look()
    assert rotated.samples() == 245
    rotated.close()
    for number in (7, 6):
        rotated.log.rename(rotated.folder / f"app.log.{number}")
        rotated.write("#" * 1500 + f"{number}\n" + bars(245, 255))
    rotated.open()
    rotated.look(20)
    assert rotated.samples() == 265


def test_a_traceback_that_a_rotation_cuts_is_one_failure(rotated: Rotated) -> None:
    rotated.write(bars(40, 60))
    rotated.write('Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n')
    rotated.log.rename(rotated.folder / "app.log.1")
    rotated.write("    train()\nValueError: bad batch\n")
    rotated.look(10)
    found = [each.message for each in rotated.pump.snapshot.events[1:]]
    assert found == ["ValueError: bad batch"]
