"""Binary frames of TFRecords: whole ones, unfinished ones, and unreadable bytes between them."""

import struct

from ldlm_monitor.base.chunk import Frame, count_frames, frames, masked_crc, rotated_from


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    sums = [struct.pack("<I", masked_crc(each)) for each in (length, content)]
    return length + sums[0] + content + sums[1]


def cut(data: bytes, *, ended: bool = True) -> list[tuple[int, int, bytes | None]]:
    def shown(frame: Frame) -> tuple[int, int, bytes | None]:
        return frame.start, frame.end, frame.payload(data)

    return [*map(shown, frames("tfrecord", data, ended=ended))]


ONE, TWO, NONE = record(b"first"), record(b"second one"), record(b"")


def test_frames_are_returned_in_order_and_an_unfinished_one_is_not() -> None:
    end = len(ONE) + len(TWO)
    whole = [(0, len(ONE), b"first"), (len(ONE), end, b"second one")]
    assert cut(ONE + TWO) == whole
    assert cut(ONE + TWO + NONE) == [*whole, (end, end + len(NONE), b"")]
    for missing in range(1, len(TWO)):
        assert cut(ONE + TWO[:-missing]) == whole[:1]


def test_unreadable_bytes_end_where_the_next_frame_begins() -> None:
    for length in range(1, 40):
        noise = b"\xff" * length
        since = len(TWO) + len(ONE)
        begin = since + length
        assert cut(TWO + ONE + noise + TWO)[2:] == [
            (since, begin, None), (begin, begin + len(TWO), b"second one"),
        ]  # fmt: skip


def test_the_last_unreadable_bytes_are_kept_back_while_a_file_grows() -> None:
    """A frame may begin in the eleven bytes that are shorter than its head."""
    noise = b"\xff" * 50
    assert cut(ONE + noise)[1:] == [(len(ONE), len(ONE) + 50, None)]
    assert cut(ONE + noise, ended=False)[1:] == [(len(ONE), len(ONE) + 50 - 11, None)]


def test_content_with_another_checksum_is_no_record() -> None:
    damaged = ONE[:13] + b"X" + ONE[14:]
    assert cut(damaged + TWO)[0] == (0, len(ONE), None)
    assert count_frames("tfrecord", ONE + TWO, 0) == 2


def test_what_a_rotation_added_is_told_from_the_name_of_a_log() -> None:
    assert rotated_from("a.log.3.gz") == ("a.log", "3")
    assert rotated_from("a.log-20260129") == ("a.log", "20260129")
    assert rotated_from("a.log.1234567") == ("a.log.1234567", "")
    assert rotated_from("step.3") == ("step.3", "")
