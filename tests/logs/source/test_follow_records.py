"""What a chunk holds: whole records, where they stand, and what becomes of unfinished ones."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.logs.source.split import CHUNK_BYTES, PEEK_SECONDS, RECORD_BYTES, Splitter

MIB = 1024 * 1024


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_what_was_there_and_what_is_added_comes_once(reading, log):
    append(log, b"one\ntwo\n")
    reader = reading(log)
    assert reader.look() == [b"one", b"two"]
    assert reader.look() == []
    append(log, b"three\n")
    assert reader.look({log}) == [b"three"]
    assert reader.look() == []


def test_only_the_woken_files_are_looked_at(reading, tmp_path):
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    reader = reading(a, b)
    append(a, b"old\n")
    append(b, b"old\n")
    assert reader.look(set()) == [b"old", b"old"], "a name that is new is looked at once"
    append(a, b"a\n")
    append(b, b"b\n")
    assert reader.look({a, tmp_path / "unknown"}) == [b"a"]
    assert reader.look() == [b"b"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_record_is_held_until_its_end_is_written(reading, log, end):
    reader = reading(log)
    append(log, b"Loss=2.34")
    assert reader.look() == []
    append(log, b"56" + end)
    assert reader.look() == [b"Loss=2.3456"]


def test_a_character_cut_in_the_middle_waits_for_its_second_half(reading, log):
    reader = reading(log)
    text = "épée ✓\n".encode()
    append(log, b"before\n" + text[:-3])
    assert reader.look() == [b"before"]
    append(log, text[-3:])
    assert reader.look() == [text[:-1]]


def test_a_hundred_progress_bars_are_a_hundred_records(reading, log):
    reader = reading(log)
    for step in range(100):
        append(log, b"\rTraining: %d/100 [00:01, Loss=2.5" % step)
        reader.look()
    reader.end()
    bars = [r for c in reader.chunks for r in c.data.split(b"\r") if r]
    assert bars == [b"Training: %d/100 [00:01, Loss=2.5" % step for step in range(100)]


def test_bad_bytes_nul_and_windows_lines_pass_unchanged(reading, log):
    append(log, b"good\r\n\xff\xfe bad\nnul \0 inside\nlast\n")
    reader = reading(log)
    assert reader.look() == [b"good", b"\xff\xfe bad", b"nul \0 inside", b"last"]


def test_an_unfinished_record_is_shown_once_after_a_short_silence_and_comes_whole_later(
    reading, log
):
    reader = reading(log)
    append(log, b"done\n 42%|####")
    reader.look()
    assert reader.follower.next_peek() == reader.now + PEEK_SECONDS
    assert reader.look(set(), after=PEEK_SECONDS - 0.1) == []
    reader.look(set(), after=0.2)
    peek = reader.chunks[-1]
    assert (peek.data, peek.peek, peek.final, peek.offset, peek.line) == (
        b" 42%|####", True, False, 5, 2,
    )  # fmt: skip
    assert reader.follower.next_peek() is None
    reader.look(after=5)
    assert reader.chunks[-1] is peek
    append(log, b"##|\r")
    assert reader.look() == [b" 42%|######|"]


def test_growth_starts_the_silence_again(reading, log):
    reader = reading(log)
    append(log, b"abcde")
    reader.look()
    append(log, b"cd")
    reader.look(after=PEEK_SECONDS - 0.1)
    assert not reader.chunks
    assert reader.follower.next_peek() == reader.now + PEEK_SECONDS
    append(log, b"ef")
    reader.look(after=2.5)
    assert not reader.chunks, "what is shown is what was silent, not what has just grown"


def test_three_hundred_megabytes_without_an_end_are_cut_and_the_next_lines_are_read(reading, log):
    with log.open("wb") as file:
        file.write(b"first\n")
        for _ in range(300):
            file.write(b"x" * MIB)
    reader = reading(log)
    while reader.follower.behind() or not reader.chunks:
        reader.look()
        assert all(tail.splitter.unfinished <= RECORD_BYTES for tail in reader.tails())
    append(log, b"end\nnext\n")
    reader.look()
    _, cut, after = reader.chunks
    assert cut.data == b"x" * RECORD_BYTES + b"\n"
    assert (cut.offset, cut.line) == (6, 2)
    assert (after.data, after.offset, after.line) == (b"next\n", 6 + 300 * MIB + 4, 3)
    assert reader.notices() == ["record_cut"]


@pytest.mark.parametrize(
    ("after", "ending", "rest"),
    [
        (b"end\rbar 1\rbar 2\n", b"end\r", b"bar 1\rbar 2\n"),
        (b"end\nline 1\nbar\r", b"end\n", b"line 1\nbar\r"),
        (b"end\r\nline 1\n", b"end\r", b"\nline 1\n"),
        (b"end\r", b"end\r", None),
    ],
)
def test_a_long_record_ends_at_the_first_end_of_either_kind(
    after: bytes, ending: bytes, rest: bytes | None
) -> None:
    splitter = Splitter("x", (1, 2, 0))
    long = b"x" * CHUNK_BYTES
    assert splitter.feed(long, 0.0) == []
    first, *others = splitter.feed(after, 0.0)
    assert first.data == long + ending
    assert [(chunk.data, chunk.offset, chunk.line) for chunk in others] == (
        [] if rest is None else [(rest, len(first.data), 1 + first.newlines)]
    )


def test_of_a_record_that_is_too_long_the_end_is_kept_and_what_follows_stands_at_its_place() -> (
    None
):
    splitter = Splitter("x", (1, 2, 0))
    for _ in range(5):
        assert splitter.feed(b"x" * CHUNK_BYTES, 0.0) == []
    cut, after = splitter.feed(b"end\rbar\r", 0.0)
    assert cut.data == b"x" * RECORD_BYTES + b"\r"
    assert (after.data, after.offset) == (b"bar\r", 5 * CHUNK_BYTES + len(b"end\r"))
    assert splitter.cut_records == 1


def test_a_chunk_is_at_most_256_kib_and_its_position_is_that_of_its_first_byte(reading, log):
    text = b"".join(b"line %d\n" % i for i in range(100_000))
    append(log, text)
    reader = reading(log)
    reader.look()
    assert len(reader.chunks) > 3
    for chunk in reader.chunks:
        assert len(chunk.data) <= CHUNK_BYTES
        assert text.startswith(chunk.data, chunk.offset)
        assert chunk.line == 1 + text[: chunk.offset].count(b"\n")


def test_a_big_file_does_not_hold_up_a_small_one(reading, tmp_path):
    big, small = tmp_path / "a_big.log", tmp_path / "z_small.log"
    append(big, b"much\n" * MIB)
    append(small, b"NaN\n")
    reader = reading(big, small)
    assert b"NaN" in reader.look(budget=2 * CHUNK_BYTES)
    left = reader.follower.behind()
    assert 0 < left < 5 * MIB
    reader.look(set(), budget=CHUNK_BYTES)
    assert reader.follower.behind() < left, "a file that is behind needs no event"


def test_every_file_has_its_turn_however_small_the_budget(reading, tmp_path):
    paths = [tmp_path / f"{rank}.log" for rank in range(8)]
    for path in paths:
        append(path, b"text\n" * MIB)
    reader = reading(*paths)
    for _ in paths:
        reader.look(budget=1)
    assert {chunk.path for chunk in reader.chunks} == {str(path) for path in paths}


def test_the_end_gives_the_unfinished_record_as_final(reading, log):
    append(log, b"a\nb")
    reader = reading(log)
    reader.look()
    assert reader.end() == [b"b"]
    assert [chunk.final for chunk in reader.chunks] == [False, True]


def test_an_offset_counts_what_is_before_it_as_read(reading, log):
    append(log, b"old 1\nold 2\n")
    reader = reading()
    reader.follower.add(log, offset=12)
    assert reader.look() == []
    append(log, b"new\n")
    assert reader.look() == [b"new"]
    assert (reader.chunks[0].offset, reader.chunks[0].line) == (12, 3)


def test_an_offset_beyond_the_end_is_another_files(reading, log):
    append(log, b"new\n")
    reader = reading()
    reader.follower.add(log, offset=100)
    assert reader.look() == [b"new"]


PIECES = st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"bc\n", b"\0", b"\xc3"]))


@given(PIECES, st.lists(st.integers(0, 60)))
def test_any_split_gives_the_same_bytes_at_the_same_places(pieces, cuts):
    text = b"".join(pieces)
    splitter = Splitter("x", (1, 2, 0))
    edges = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    chunks = []
    for start, end in pairwise(edges):
        chunks += splitter.feed(text[start:end], 0.0)
    chunks.append(splitter.finish())
    assert b"".join(chunk.data for chunk in chunks) == text
    for chunk in chunks:
        assert text.startswith(chunk.data, chunk.offset)
        assert chunk.line == 1 + text[: chunk.offset].count(b"\n")
        assert chunk.final or chunk.data.endswith((b"\n", b"\r"))
    assert b"\n" not in chunks[-1].data
    assert b"\r" not in chunks[-1].data


def test_what_a_turn_left_is_known(reading, log):
    log.write_bytes(b"a line\n" * CHUNK_BYTES)
    reader = reading(log)
    reader.look(budget=CHUNK_BYTES)
    assert reader.follower.has_backlog
    while reader.follower.has_backlog:
        reader.look()
    assert b"".join(chunk.data for chunk in reader.chunks) == log.read_bytes()
