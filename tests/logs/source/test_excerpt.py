"""Of a log that is too big to be read before the first alert: its start and its end first."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.logs.source.log_parts import ByteSpan, excerpt, skipped_note

GB = 10**9
MIB = 1024 * 1024


@pytest.fixture
def opened(tmp_path):
    """`opened(data, ...)`: a descriptor of a file that holds `data` at these offsets."""
    made = []

    def make(pieces: dict[int, bytes], size: int | None = None) -> tuple[int, int]:
        path = tmp_path / f"{len(made)}.log"
        with path.open("wb") as file:
            for offset, data in pieces.items():
                file.seek(offset)
                file.write(data)
        if size is not None:
            os.truncate(path, size)
        made.append(os.open(path, os.O_RDONLY))
        return made[-1], path.stat().st_size

    yield make
    for descriptor in made:
        os.close(descriptor)


def test_a_small_file_is_read_in_order(opened):
    descriptor, size = opened({0: b"one\ntwo\n"})
    found = excerpt(descriptor, size, budget=64 * MIB)
    assert found == [ByteSpan(0, 8, 1)]
    assert skipped_note(found) == ""


def test_of_ten_gigabytes_the_start_and_the_end_are_read(opened):
    head = b"".join(b"head %06d\n" % i for i in range(200_000))
    tail = b"tail 000000\n" * 6_000_000
    descriptor, size = opened({0: head, 10 * GB: tail})
    found = excerpt(descriptor, size, budget=64 * MIB)
    first, last = found
    assert (first.start, first.line, last.end) == (0, 1, size)
    assert first.size + last.size <= 64 * MIB + 12
    for edge in (first.end, last.start):
        assert os.pread(descriptor, 1, edge - 1) == b"\n"
    assert os.pread(descriptor, 5, last.start) == b"tail "
    assert skipped_note(found) == (
        f"its first 1.0 MiB and last 63.0 MiB are read; 9.3 GiB between them "
        f"(bytes {first.end} to {last.start}) are skipped"
    )


def test_the_line_after_the_gap_is_estimated_by_the_lines_before_it(opened):
    text = b"".join(b"line %06d\n" % number for number in range(500_000))
    descriptor, size = opened({0: text})
    _, last = excerpt(descriptor, size, budget=2 * MIB)
    assert os.pread(descriptor, 12, last.start) == b"line %06d\n" % (last.line - 1)


def test_a_hole_before_the_end_is_no_record(opened):
    descriptor, size = opened({0: b"start\n" * MIB, 2**40: b"rest of a record\nwhole\n"})
    _, last = excerpt(descriptor, size, budget=10 * MIB)
    assert os.pread(descriptor, 20, last.start) == b"whole\n"


def test_a_file_without_an_end_of_a_record_is_not_cut(opened):
    descriptor, size = opened({0: b"x" * (3 * MIB)})
    assert excerpt(descriptor, size, budget=2 * MIB) == [ByteSpan(0, size, 1)]


def test_progress_bars_are_cut_between_bars(opened):
    bars = b"".join(b"\rstep %05d" % i for i in range(1000))
    descriptor, size = opened({0: bars})
    _, last = excerpt(descriptor, size, budget=1000)
    assert os.pread(descriptor, 4, last.start) == b"step"
    assert last.line == 1


@given(
    st.lists(st.sampled_from([b"abc", b"\n", b"\r\n", b"\r", b"x" * 30]), max_size=60),
    st.integers(2, 120),
)
def test_the_parts_are_whole_records(pieces, budget):
    text = b"".join(pieces)
    descriptor = os.memfd_create("log")
    try:
        os.write(descriptor, text)
        spans = excerpt(descriptor, len(text), budget=budget)
    finally:
        os.close(descriptor)
    assert spans[0].start == 0
    assert spans[-1].end == len(text)
    for at in (edge for span in spans for edge in (span.start, span.end)):
        if 0 < at < len(text):
            before, after = text[at - 1 : at], text[at : at + 1]
            assert before in (b"\n", b"\r")
            assert before + after != b"\r\n"
