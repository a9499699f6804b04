"""Of a log that is too big to be read before the first alert: its start and its end first."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.source.log_parts import ByteSpan, count_lines, excerpt

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
    found = excerpt(descriptor, size)
    assert found.spans() == (ByteSpan(0, 8, 1),)
    assert found.note(skipped=True) == ""


def test_of_ten_gigabytes_the_start_and_the_end_come_first(opened):
    head = b"".join(b"head %06d\n" % i for i in range(200_000))
    tail = b"tail 000000\n" * 6_000_000
    descriptor, size = opened({0: head, 10 * GB: tail})
    found = excerpt(descriptor, size)
    first, last = found.spans()
    assert (first.start, first.line, last.end) == (0, 1, size)
    assert first.size + last.size <= 64 * MIB + 12
    for edge in (first.end, last.start):
        assert os.pread(descriptor, 1, edge - 1) == b"\n"
    assert os.pread(descriptor, 5, last.start) == b"tail "
    assert found.middle == ByteSpan(first.end, last.start, 1 + head[: first.end].count(b"\n"))
    assert not last.exact
    assert found.note(skipped=True) == (
        f"its first 1.0 MiB and last 63.0 MiB are read first; 9.3 GiB between them "
        f"(bytes {first.end} to {last.start}) are skipped"
    )
    assert "read afterwards" in found.note(skipped=False)


def test_the_true_line_is_known_when_the_middle_is_counted(opened):
    text = b"".join(b"%d\n" % i for i in range(1, 200_001))
    descriptor, size = opened({0: text})
    found = excerpt(descriptor, size, budget=100_000, start=10_000)
    (*_, lines) = count_lines(descriptor, found.middle)
    last = found.counted(lines).last
    assert last.exact
    assert os.pread(descriptor, 20, last.start).split(b"\n")[0] == b"%d" % last.line
    assert abs(found.last.line - last.line) / last.line < 0.5, "the estimate is of that order"


def test_counting_gives_way_every_64_mib_and_jumps_over_holes(opened):
    descriptor, size = opened({0: b"\n" * (130 * MIB), 2**40: b"\n\n"})
    counts = list(count_lines(descriptor, ByteSpan(0, size, 1)))
    assert counts[:2] == [64 * MIB, 128 * MIB]
    assert counts[-1] == 130 * MIB + 2


def test_a_hole_before_the_end_is_no_record(opened):
    descriptor, size = opened({0: b"start\n" * MIB, 2**40: b"rest of a record\nwhole\n"})
    found = excerpt(descriptor, size, budget=10 * MIB)
    assert os.pread(descriptor, 20, found.last.start) == b"whole\n"


def test_a_file_without_an_end_of_a_record_is_not_cut(opened):
    descriptor, size = opened({0: b"x" * (3 * MIB)})
    assert excerpt(descriptor, size, budget=2 * MIB).spans() == (ByteSpan(0, size, 1),)


def test_progress_bars_are_cut_between_bars(opened):
    bars = b"".join(b"\rstep %05d" % i for i in range(1000))
    descriptor, size = opened({0: bars})
    found = excerpt(descriptor, size, budget=1000, start=500)
    assert os.pread(descriptor, 4, found.last.start) == b"step"
    assert found.last.line == 1


@given(
    st.lists(st.sampled_from([b"abc", b"\n", b"\r\n", b"\r", b"x" * 30]), max_size=60),
    st.integers(0, 120),
    st.integers(1, 60),
)
def test_the_parts_are_whole_records_and_together_the_file(pieces, budget, start):
    text = b"".join(pieces)
    descriptor = os.memfd_create("log")
    try:
        os.write(descriptor, text)
        found = excerpt(descriptor, len(text), budget=budget, start=start)
    finally:
        os.close(descriptor)
    spans = [found.first, *([found.middle] if found.middle else []), *found.spans()[1:]]
    assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == len(text)
    for span in spans[1:]:
        before, after = text[span.start - 1 : span.start], text[span.start : span.start + 1]
        assert before in (b"\n", b"\r")
        assert before + after != b"\r\n"
        if span.exact:
            assert span.line == 1 + text[: span.start].count(b"\n")
