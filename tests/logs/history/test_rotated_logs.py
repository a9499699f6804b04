"""The files of a rotated log are read as the one log that they are: each record once, in order."""

import gzip
import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from logging.handlers import RotatingFileHandler
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.host.supervise.streams import RunLog
from ldlm_monitor.logs.history.merge import place
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.service.config import Settings

NOW = 1_769_681_700.0


def by_run(log: Path, records: Sequence[str], limit: int) -> None:
    """Full files get rising numbers, as `ldlm-monitor run` renames them."""
    kept = RunLog(log, rotate_bytes=limit)
    kept.note('attempt 1 starts: ["python", "train.py"]')
    for record in records:
        kept.write(1, f"{record}\n".encode())
    kept.note("the command ended with exit code 0")


def by_python(log: Path, records: Sequence[str], limit: int) -> None:
    """The last full file has number 1, as `logging.handlers` and logrotate rename them."""
    handler = RotatingFileHandler(log, maxBytes=limit, backupCount=10_000)
    for index, record in enumerate(records):
        handler.emit(logging.LogRecord("", 20, "", 0, record, (), None))
        os.utime(log, (NOW + index,) * 2)
    handler.close()


def by_date(log: Path, records: Sequence[str], limit: int) -> None:
    """Full files have a date, as logrotate's `dateext` renames them."""
    size = day = 0
    for record in records:
        with log.open("a") as file:
            size += file.write(f"{record}\n")
        if size >= limit:
            log.rename(f"{log}-202601{day // 24 + 1:02}{day % 24:02}")
            size, day = 0, day + 1
    log.touch()


def squeeze(folder: Path) -> None:
    """Compress every other full file, which keeps its time."""
    for path in sorted(folder.glob("*.log?*"))[::2]:
        written = path.stat().st_mtime_ns
        smaller = path.with_name(f"{path.name}.gz")
        smaller.write_bytes(gzip.compress(path.read_bytes()))
        os.utime(smaller, ns=(written, written))
        path.unlink()


def played(folder: Path) -> tuple[bytes, list[float]]:
    """The bytes of all files as they are judged, and the times of the pieces."""
    pieces = list(place(sorted(folder.iterdir()), RunNames()).play())
    return b"".join(chunk.data for _, chunk, _ in pieces), [when for when, _, _ in pieces]


def judged(*files: Path) -> RunView:
    """The only run of some files, read to their ends."""
    (run,) = Replay(Settings(files=tuple(map(str, files)), companions=False)).end().runs
    return run


WRITERS = [by_run, by_python, by_date]
STEPS = st.lists(st.integers(0, 300), min_size=1, max_size=60)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("compressed", [False, True])
@given(sizes=STEPS, limit=st.integers(60, 2_000), bars=st.booleans())
def test_every_record_is_judged_once_and_in_order(
    write: object, compressed: bool, sizes: list[int], limit: int, bars: bool
) -> None:
    shown = "train: 1%|1| {0}/99 [00:{0:02}<09:00, 1.00it/s, loss=2.5] {1}" if bars else "{0} {1}"
    records = [shown.format(index, "x" * size) for index, size in enumerate(sizes)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        assert callable(write)
        write(folder / "a.log", records, limit)
        if compressed:
            squeeze(folder)
        found, times = played(folder)
    lines = found.decode().splitlines()
    assert [line for line in lines if "ldlm-monitor run" not in line] == records
    assert all(before <= after for before, after in pairwise(times))


@pytest.mark.parametrize("write", WRITERS)
def test_a_rotated_log_is_judged_as_the_whole_log_is(tmp_path: Path, write: object) -> None:
    """Also where a later attempt begins with a file, and where a table's header is in the first."""
    records = [f"step {step}/400 loss {9 - step / 100:.4f}" for step in range(1, 301)]
    records += ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>']
    records += ["RuntimeError: CUDA error: an illegal memory access was encountered"]
    records += [f"step {step}/400 loss {9 - step / 100:.4f}" for step in range(251, 399)]
    whole, parts = tmp_path / "whole" / "b.log", tmp_path / "parts" / "b.log"
    whole.parent.mkdir()
    parts.parent.mkdir()
    assert callable(write)
    write(whole, records, 1_000_000)
    write(parts, records, len("\n".join(records[:25])))
    files = sorted(parts.parent.iterdir())
    assert len(files) > 15
    one, many = judged(whole), judged(*files)
    assert many.step == one.step == 398
    same = ("name", "state", "attempt", "events", "resumed_at", "total_steps", "settings")
    assert many.model_dump(include={*same}) == one.model_dump(include={*same})
    assert one.attempt == 2


def test_rows_of_a_table_are_read_where_its_header_is_in_an_older_file(tmp_path: Path) -> None:
    rows = [f"{step:6} {9 - step / 100:8.4f} {1e-4:10.2e}" for step in range(1, 200)]
    by_run(tmp_path / "c.log", ["  step     loss         lr", *rows], 500)
    assert judged(*tmp_path.iterdir()).step == 199


def test_lines_without_times_are_spread_between_the_last_writes_of_full_files(
    tmp_path: Path,
) -> None:
    """Copies have no such times: then all lines have that of the last write."""
    text = "".join(f"step {step} loss 2.5 {'x' * 200}\n" for step in range(400))
    for number, hour in (("3", 0), ("2", 1), ("1", 2), ("", 3)):
        path = tmp_path / f"a.log.{number}".rstrip(".")
        path.write_text(text)
        os.utime(path, (NOW + hour * 3600,) * 2)
    _, times = played(tmp_path)
    assert times[-1] == NOW + 3 * 3600
    hours = [(when - NOW) // 3600 for when in times]
    assert {hours.count(hour) > 10 for hour in range(3)} == {True}
    for path in tmp_path.iterdir():
        os.utime(path, (NOW + (path.suffix != ".log"),) * 2)
    assert set(played(tmp_path)[1]) == {NOW}


def test_lines_between_two_times_are_placed_by_the_last_write_of_a_file(tmp_path: Path) -> None:
    """Times in the first and last lines alone would spread them evenly over the hour between."""
    text = "".join(f"step {step} loss 2.5 {'x' * 200}\n" for step in range(400))
    at, least, hour = datetime.fromtimestamp(NOW, UTC), 600, 3600
    older, newer = tmp_path / "a.log.1", tmp_path / "a.log"
    older.write_text(f"{at:%Y-%m-%dT%H:%M:%S}+00:00 started\n{text}")
    newer.write_text(f"{text}{at + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}+00:00 ended\n")
    os.utime(older, (NOW + least,) * 2)
    os.utime(newer, (NOW + hour,) * 2)
    pieces = list(place([newer, older], RunNames()).play())
    first = [when for when, _, file in pieces if file.path == str(older)]
    second = [when for when, _, file in pieces if file.path == str(newer)]
    assert len(first) > 10
    assert len(second) > 10
    assert NOW <= first[0] <= first[-1] <= NOW + least <= second[0]
    assert second[-1] == NOW + hour


@pytest.mark.parametrize("first", [0, 1])
def test_files_of_ranks_are_not_one_log(tmp_path: Path, first: int) -> None:
    """They are numbered from 0, or none has no number, and their lines come side by side."""
    for rank in range(first, first + 3):
        rows = "".join(f"2026-01-29 10:00:{at:02} step {at} loss 2.5\n" for at in range(30))
        (tmp_path / f"a.log.{rank}").write_text(rows)
    found, _ = played(tmp_path)
    steps = [int(line.split()[3]) for line in found.decode().splitlines()]
    assert steps == sorted(steps)
