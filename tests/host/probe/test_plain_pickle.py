"""Pickles of plain data are read; a pickle that would do anything is refused undone."""

import contextlib
import os
import pickle
import pickletools
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.host.probe.plain_pickle import MAX_BYTES, PlainPickleError, load

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=5)
    ),
    max_leaves=40,
)


@given(PLAIN, st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_plain_data_come_back_as_they_were(value: object, protocol: int) -> None:
    assert load(pickle.dumps(value, protocol)) == value


def test_a_dump_that_torch_wrote_reads_as_pickle_reads_it() -> None:
    dumps = sorted(Path(__file__).parent.glob("data/*/comm_lib_trace_rank_*"))
    assert dumps
    for path in dumps:
        assert load(path.read_bytes()) == pickle.loads(path.read_bytes())  # ours: no stranger's


class Trap:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_calls_something_is_refused_before_it_does(
    tmp_path: Path, protocol: int
) -> None:
    trap = tmp_path / "sprung"
    body = pickle.dumps({"version": "2.10", "entries": [Trap(trap)]}, protocol)
    with pytest.raises(PlainPickleError):
        load(body)
    assert not trap.exists()
    pickle.loads(body)
    assert trap.exists()  # it would have


def test_no_opcode_that_imports_calls_or_builds_is_known() -> None:
    harmful = {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD"}
    harmful |= {"EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "NEXT_BUFFER"}
    for opcode in pickletools.opcodes:
        if opcode.name in harmful:
            with pytest.raises(PlainPickleError, match="plain data"):
                load(b"\x80\x02" + opcode.code.encode("latin-1") + b"os\nmkdir\n.")


@given(st.binary(max_size=200))
def test_whatever_the_bytes_they_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(PlainPickleError):
        load(b"\x80\x02" + body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80\x02]",
        b"\x80\x02X" + struct.pack("<I", 2**31) + b"cut short.",
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b".",
        b"\x80\x02\x8b" + struct.pack("<I", 2**31) + b"1.",
        b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b"0j" + struct.pack("<I", 1) + b".",
        b"\x80\x02}" + b")" + b"\x85" * 1_000_000 + b"K\x01s.",
        b"\x80\x02K\x01K\x02a.",
        b"\x80\x02}(K\x01u.",
    ],
)
def test_what_lies_about_its_size_or_its_form_is_refused(body: bytes) -> None:
    with pytest.raises(PlainPickleError):
        load(body)


def test_a_list_that_holds_itself_and_a_very_deep_one_do_no_harm() -> None:
    own = load(b"\x80\x02]q\x00h\x00a.")
    assert isinstance(own, list)
    assert own[0] is own
    assert isinstance(load(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."), list)


def test_a_file_of_no_reasonable_size_is_refused_unread() -> None:
    with pytest.raises(PlainPickleError, match="larger"):
        load(bytes(MAX_BYTES + 1))


def test_keys_that_all_have_one_hash_are_refused() -> None:
    """An int's hash is its remainder modulo 2^61 - 1: each of a million such keys meets all."""
    with pytest.raises(PlainPickleError, match="key"):
        load(pickle.dumps({number * sys.hash_info.modulus: None for number in range(1, 4)}))
    assert load(pickle.dumps({2**31 - 1: 1, -1: 2})) == {2**31 - 1: 1, -1: 2}
