"""Fields of a binary message, as protobuf has them; of a damaged one no field is made up."""

import pytest

from ldlm_monitor.logs.parse.frame_reader import fields_of, varint

MESSAGE = bytes([0x08, 0x96, 0x01, 0x12, 0x03]) + b"abc" + bytes([0x1D]) + b"1234"
"""Field 1 is the number 150, field 2 the bytes abc, field 3 four bytes."""


def test_each_field_has_its_number_and_its_value() -> None:
    assert [*fields_of(MESSAGE)] == [(1, 150), (2, b"abc"), (3, b"1234")]


@pytest.mark.parametrize("length", [1, 4, 6, 7, 10, 12])
def test_a_message_that_was_cut_within_a_field_is_damaged(length: int) -> None:
    with pytest.raises((ValueError, IndexError)):
        list(fields_of(MESSAGE[:length]))


def test_a_field_may_end_with_its_message_and_be_empty() -> None:
    assert [*fields_of(MESSAGE[:8])] == [(1, 150), (2, b"abc")]
    assert [*fields_of(bytes([0x12, 0x00]))] == [(2, b"")]
    assert [*fields_of(b"")] == []


def test_a_number_has_at_most_64_bits() -> None:
    assert varint(b"\xff" * 9 + b"\x01", 0) == ((1 << 64) - 1, 10)
    with pytest.raises(ValueError, match="longer than 64 bits"):
        varint(b"\xff" * 11, 0)


def test_an_unknown_kind_of_field_is_damage() -> None:
    with pytest.raises(ValueError, match="unknown wire type"):
        list(fields_of(bytes([0x0B, 0x00])))
