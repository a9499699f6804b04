"""Bytes of a file: lines or frames, their rest, and what a log's name says."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from zlib import crc32

import pytest

from ldlm_monitor.base.chunk import Chunk, rotated_from, uncompressed
from ldlm_monitor.base.framing import Fragment, Frame, Framing


class Measured(Framing):
    """Frames of a length in one byte, a checksum and so many bytes of content."""

    name = "measured"

    def frames(self, data: bytes, offset: int = 0, *, ended: bool = True) -> Iterator[Frame]:
        del offset, ended
        start = 0
        while start < len(data):
            stop = start + 5 + data[start]
            if stop > len(data):
                yield Frame(start, len(data))
                return
            yield Frame(start, stop, crc32, (Fragment(start + 5, stop, start + 5, start + 1),))
            start = stop


def framed(content: bytes) -> bytes:
    return bytes([len(content)]) + struct.pack("<I", crc32(content)) + content


def lines(data: bytes, line: int = 7, offset: int = 100) -> Chunk:
    return Chunk("train.log", (1, 2, 0), offset, line, data)


@pytest.mark.parametrize(
    ("path", "without"),
    [
        ("a.log.gz", "a.log"), ("a.log.xz", "a.log"), ("a.log.zst", "a.log"), ("a.bz2", "a"),
        ("a.log", "a.log"), ("a.gz.log", "a.gz.log"),
    ],
)  # fmt: skip
def test_the_suffix_of_a_compressor_is_taken_off(path: str, without: str) -> None:
    assert uncompressed(path) == without


@pytest.mark.parametrize(
    ("path", "log", "added"),
    [
        ("a.log.3.gz", "a.log", "3"), ("a.log-20260129", "a.log", "20260129"),
        ("d/a.out.2026-01-29", "d/a.out", "2026-01-29"),
        ("a.err-2026-01-29_10-15", "a.err", "2026-01-29_10-15"),
        ("a.txt.123456", "a.txt", "123456"), ("a.txt.1234567", "a.txt.1234567", ""),
        ("a.log.xz", "a.log", ""), ("a.csv.1", "a.csv.1", ""), ("a.log.b", "a.log.b", ""),
    ],
)  # fmt: skip
def test_a_rotated_file_names_its_log_and_its_number(path: str, log: str, added: str) -> None:
    assert rotated_from(path) == (log, added)


def test_lines_are_counted_by_their_ends() -> None:
    assert lines(b"").newlines == 0
    chunk = lines(b"one\ntwo\r\nthree\rfour")
    assert [chunk.newlines, chunk.newlines] == [2, 2]


def test_frames_are_counted_where_a_file_has_them() -> None:
    data = framed(b"one\n\n") + framed(b"two") + b"\x09torn\n"
    assert replace(lines(data), framed=Measured()).newlines == 2


def test_the_rest_of_a_chunk_begins_at_its_line() -> None:
    chunk = lines(b"one\ntwo\nthree\n")
    rest = chunk.after(104)
    assert rest == replace(chunk, offset=104, line=8, data=b"two\nthree\n")
    assert rest.newlines == 2
    assert chunk.after(108) == replace(chunk, offset=108, line=9, data=b"three\n")


@pytest.mark.parametrize("offset", [0, 99, 100])
def test_the_rest_from_its_beginning_or_before_is_the_whole_chunk(offset: int) -> None:
    chunk = lines(b"one\ntwo\n")
    assert chunk.after(offset) is chunk


@pytest.mark.parametrize("offset", [108, 109, 1000])
def test_nothing_is_left_after_the_end(offset: int) -> None:
    assert lines(b"one\ntwo\n").after(offset) is None


def test_the_rest_of_frames_counts_the_frames_before() -> None:
    first, second = framed(b"one\n\n"), framed(b"two")
    chunk = replace(lines(first + second), framed=Measured())
    rest = chunk.after(100 + len(first))
    assert rest is not None
    assert (rest.line, rest.data) == (8, second)


def test_a_chunk_is_of_lines_with_times_unless_it_says_otherwise() -> None:
    chunk = lines(b"")
    assert (chunk.final, chunk.peek, chunk.age, chunk.timed) == (False, False, 0.0, True)
    assert (chunk.framed, chunk.continues) == (None, "")


def test_a_count_of_lines_does_not_make_chunks_differ() -> None:
    counted, other = lines(b"one\n"), lines(b"one\n")
    assert counted.newlines == 1
    assert counted == other
    assert "newlines" not in repr(counted)


def test_a_frame_gives_its_content_if_its_checksum_is_right() -> None:
    data = b"??" + framed(b"content")
    frame = Frame(2, len(data), crc32, (Fragment(7, len(data), 7, 3),))
    assert frame.found
    assert frame.payload(data) == b"content"
    torn = data[:-1] + b"T"
    assert frame.payload(torn) is None


def test_the_parts_of_a_frame_are_put_together() -> None:
    one, two = framed(b"one"), framed(b"two")
    parts = (Fragment(5, 8, 5, 1), Fragment(13, 16, 13, 9))
    data = one + two
    assert Frame(0, 16, crc32, parts).payload(data) == b"onetwo"
    assert Frame(0, 16, crc32, parts).payload(one + two[:-1] + b"!") is None


def test_bytes_between_frames_have_no_content() -> None:
    frame = Frame(0, 3)
    assert not frame.found
    assert frame.payload(b"abc") is None


def test_a_format_of_frames_need_not_say_their_size() -> None:
    assert Measured().size_at(b"\x03", 0) is None


def test_a_format_of_frames_has_to_say_how_they_are_found() -> None:
    with pytest.raises(NotImplementedError):
        Framing().begins(b"")
    with pytest.raises(NotImplementedError):
        Framing().frames(b"")
