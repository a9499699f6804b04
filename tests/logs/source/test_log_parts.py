"""Any part of a log, forwards and backwards, is what the whole file split into records holds."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ldlm_monitor.logs.source import log_parts
from ldlm_monitor.logs.source.log_parts import LogReader, first_matching


def records(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([b"a", b"loss 2.5", b"", b"x" * 40, b"\r", b"\n", b"\r\n"])),
    st.integers(1, 50),
    st.data(),
)
def test_slices_of_any_block_size_are_the_records(
    tmp_path: Path, parts: list[bytes], block: int, data: st.DataObject
) -> None:
    content = b"".join(parts)
    path = tmp_path / "a.log"
    path.write_bytes(content)
    whole = records(content)
    cut = data.draw(st.integers(0, len(whole)))
    at = sum(map(len, whole[:cut]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_parts, "BLOCK_BYTES", block)
        log = LogReader(str(path))
        after = [(line.offset, line.end) for line in log.after(at)]
        before = [(line.offset, line.end) for line in log.before(at)]
        log.close()
    assert [content[start:end] for start, end in after] == whole[cut:]
    assert [content[start:end] for start, end in reversed(before)] == whole[:cut]


def test_the_end_of_ten_gigabytes_is_there_without_reading_them(tmp_path: Path) -> None:
    path = tmp_path / "huge.log"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nstep 1\nstep 2\n")
    log = LogReader(str(path))
    lines, _ = first_matching(log.before(log.size), 2, lambda line: True)
    assert [line.text for line in lines] == [b"step 2", b"step 1"]
    assert log.line_number(lines[0].offset) is None
    log.close()


def test_a_line_is_found_by_its_number_and_a_number_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\rtwo again\nthree\n")
    log = LogReader(str(path))
    assert log.offset_of(2) == 4
    assert log.line_number(8) == 2
    assert log.offset_of(3) == 18
    assert log.offset_of(99) == log.size
    log.close()


def test_a_search_goes_both_ways_and_says_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"Error one\nfine\nERROR two\n")
    log = LogReader(str(path))
    assert log.find("error", 1, backwards=False) == (15, 25)
    assert log.find("error", 15, backwards=True) == (0, 0)
    assert log.find("nothing", 0, backwards=False) == (None, 25)
    log.close()


def test_what_a_terminal_overwrites_is_told(tmp_path: Path) -> None:
    path = tmp_path / "bars.log"
    path.write_bytes(b"10%\r20%\r\nlast")
    log = LogReader(str(path))
    assert [(line.overwritten, line.is_open) for line in log.after(0)] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    log.close()
