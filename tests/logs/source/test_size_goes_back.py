"""A file that loses bytes which were read: they return, or another content takes their place."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ldlm_monitor.logs.source.tail import RETURN_SECONDS

ROWS = [b'{"step": %d, "loss": %d.5}' % (step, step * 7 % 11) for step in range(200)]


def text(rows: list[bytes]) -> bytes:
    return b"".join(row + b"\n" for row in rows)


def put(log: Path, data: bytes) -> None:
    """The file's bytes from its start on; those behind them stay."""
    log.touch()
    with log.open("r+b") as file:
        file.write(data)


@pytest.fixture
def read_to(reading, log: Path) -> Callable[[int], object]:
    """A reader that has read so many rows."""

    def read(rows: int):
        put(log, text(ROWS[:rows]))
        reader = reading(log)
        assert reader.look() == ROWS[:rows]
        return reader

    return read


@pytest.mark.parametrize("share", [0.02, 0.5, 0.999])
@pytest.mark.parametrize("rows", [5, 100])
def test_bytes_that_return_are_known_and_what_comes_behind_them_is_read(
    read_to, log: Path, rows: int, share: float
) -> None:
    reader = read_to(rows)
    os.truncate(log, max(int(log.stat().st_size * share), 1))
    assert reader.look(after=1.5) == []
    assert reader.notices() == []
    put(log, text(ROWS[: rows + 10]))
    assert reader.look(after=1.5) == ROWS[rows : rows + 10]
    assert reader.notices() == ["returned"]
    assert {chunk.file[2] for chunk in reader.chunks} == {0}


def test_bytes_that_return_little_by_little_are_known(read_to, log: Path) -> None:
    reader = read_to(100)
    whole = text(ROWS[:105])
    for size in (100, 500, 1500, 2000):
        os.truncate(log, size)
        put(log, whole[:size])
        assert reader.look(after=1) == []
    put(log, whole)
    assert reader.look(after=0.5) == ROWS[100:105]
    assert reader.notices() == ["returned"]


def test_an_unfinished_record_goes_on_where_its_bytes_return(read_to, log: Path) -> None:
    reader = read_to(50)
    cut = text(ROWS[:51])[:-9]
    put(log, cut)
    assert reader.look() == []
    os.truncate(log, len(cut) // 2)
    assert reader.look(after=1) == []
    put(log, text(ROWS[:52]))
    assert reader.look(after=1) == ROWS[50:52]


def test_a_second_time_is_said_again(read_to, log: Path) -> None:
    reader = read_to(50)
    for _ in range(2):
        os.truncate(log, 700)
        reader.look(after=3)
        put(log, text(ROWS[:50]))
        reader.look(after=3)
        reader.look(after=RETURN_SECONDS)
        assert reader.notices() == ["returned"]


def test_a_log_that_stays_cut_is_read_from_its_start_after_a_while(read_to, log: Path) -> None:
    reader = read_to(100)
    os.truncate(log, len(text(ROWS[:50])))
    assert reader.look(after=1) == []
    assert reader.look(after=RETURN_SECONDS) == ROWS[:50]
    assert reader.notices() == ["truncated"]
    assert reader.look(after=RETURN_SECONDS) == []


def test_a_run_that_cuts_its_rows_to_a_checkpoint_and_goes_on_has_its_new_rows_read(
    read_to, log: Path
) -> None:
    reader = read_to(100)
    again = [row.replace(b".5", b".25") for row in ROWS]
    os.truncate(log, len(text(ROWS[:50])))
    reader.look(after=1)
    put(log, text(ROWS[:50] + again[50:60]))
    reader.look(after=1)
    assert reader.look(after=RETURN_SECONDS) == ROWS[:50] + again[50:60]
    put(log, text(ROWS[:50] + again[50:70]))
    assert reader.look(after=1) == again[60:70]
    assert reader.notices() == ["truncated"]


@pytest.mark.parametrize("rows", [60, 99, 100, 101, 190])
def test_other_rows_in_the_first_kib_are_read_at_once(read_to, log: Path, rows: int) -> None:
    reader = read_to(100)
    other = [ROWS[0], *(row.replace(b".5", b".25") for row in ROWS[1:rows])]
    os.truncate(log, len(text(ROWS[:50])))
    reader.look(after=1)
    os.truncate(log, 0)
    put(log, text(other))
    assert reader.look(after=1) == other


@pytest.mark.parametrize("rows", [1, 2, 30, 150])
def test_new_content_that_begins_with_the_same_line_is_read(read_to, log: Path, rows: int) -> None:
    reader = read_to(100)
    other = [ROWS[0], *(row.replace(b".5", b".25") for row in ROWS[1:rows])]
    os.truncate(log, 0)
    put(log, text(other))
    found = reader.look(after=1) or reader.look(after=RETURN_SECONDS)
    assert found == other
    assert reader.look(after=RETURN_SECONDS) == []


def test_what_lost_its_name_is_not_waited_for(read_to, log: Path) -> None:
    reader = read_to(100)
    os.truncate(log, len(text(ROWS[:50])))
    assert reader.look(after=1) == []
    log.rename(log.with_name("elsewhere"))
    assert reader.look(after=1) == ROWS[:50]
