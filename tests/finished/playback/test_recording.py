"""A recording gives back what was fed, whatever it is and wherever the file ends."""

import gzip
import json
import os
import stat
from hashlib import sha512
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.errors import InputError, UsageError
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.finished.playback.recording import (
    Begun,
    Entry,
    Fed,
    Finished,
    Observed,
    Passed,
    Recorder,
    entries,
    is_recording,
)

BEGAN = 1_795_293_000.0
EVENT = Event(
    kind="log_silence",
    severity="info",
    run="r",
    message="rank 2 sleeps",
    fields={"cores": 0.25},
    position=Position("a.log", 1, 0),
)


def chunk(data: bytes, *, path: str = "a.log", offset: int = 0, **more: bool) -> Chunk:
    return Chunk(path=path, file=(1, 2, 3), offset=offset, line=1, data=data, **more)


def recorded(path: Path, chunks: list[Chunk]) -> list[Entry]:
    recorder = Recorder(path, "*.log", BEGAN)
    for number, each in enumerate(chunks, start=1):
        recorder.fed(each, "r", BEGAN + number)
        recorder.turn(BEGAN + number)
    recorder.close()
    return list(entries(path))


@given(
    st.lists(
        st.builds(chunk, st.binary(max_size=300), final=st.booleans(), peek=st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_every_chunk_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[Chunk]
) -> None:
    begun, *fed = recorded(tmp_path_factory.mktemp("r") / "a.ldlm", chunks)
    assert begun == Begun(BEGAN, "*.log")
    assert [each.chunk() for each in fed if isinstance(each, Fed)] == chunks


def test_what_the_host_told_comes_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.ldlm", "-", BEGAN)
    recorder.observed([EVENT], BEGAN + 1)
    recorder.finished(["-"], BEGAN + 2)
    recorder.close()
    _, observed, finished = entries(tmp_path / "a.ldlm")
    assert isinstance(observed, Observed)
    assert observed.observed() == (EVENT,)
    assert finished == Finished(BEGAN + 2, ["-"])


def test_a_file_that_ends_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    """As after a kill, with the disk at any byte: a prefix of the entries, never an error."""
    whole = tmp_path / "whole.ldlm"
    known = recorded(whole, [chunk(f"step {n}\n".encode(), offset=9 * n) for n in range(30)])
    data = whole.read_bytes()
    counts = []
    for end in range(200, len(data), 7):
        cut = tmp_path / "cut.ldlm"
        cut.write_bytes(data[:end])
        found = list(entries(cut))
        assert found == known[: len(found)]
        counts.append(len(found))
    assert counts == sorted(counts)
    assert counts[-1] >= len(known) - 2


def test_what_came_a_second_ago_is_on_the_disk(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.ldlm", "*", BEGAN)
    recorder.fed(chunk(b"loss 2.5\n"), "r", BEGAN + 0.2)
    recorder.turn(BEGAN + 1.2)
    assert [type(entry) for entry in entries(tmp_path / "a.ldlm")] == [Begun, Fed]
    recorder.turn(BEGAN + 7.0)
    assert Passed(BEGAN + 7.0) in list(entries(tmp_path / "a.ldlm"))
    recorder.close()


def test_a_clock_that_went_back_delays_neither_entries_nor_time(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.ldlm", "*", BEGAN)
    recorder.fed(chunk(b"loss 2.5\n"), "r", BEGAN - 3600.0)
    recorder.turn(BEGAN - 3600.0)
    assert [type(entry) for entry in entries(tmp_path / "a.ldlm")] == [Begun, Fed]
    recorder.turn(BEGAN - 3595.0)
    recorder.turn(BEGAN - 3594.0)
    assert Passed(BEGAN - 3595.0) in list(entries(tmp_path / "a.ldlm"))
    recorder.close()


def test_damage_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "a.ldlm"
    known = recorded(path, [chunk(sha512(bytes([n])).digest() * 40) for n in range(200)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    found = list(entries(path))
    assert found == known[: len(found)]
    assert 20 < len(found) < len(known)


def test_text_that_is_not_utf8_ends_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.ldlm", "*", BEGAN)
    recorder.fed(chunk(b"step 1\n"), "r", BEGAN)
    recorder.close()
    path = tmp_path / "b.ldlm"
    known = gzip.decompress((tmp_path / "a.ldlm").read_bytes())
    path.write_bytes(
        gzip.compress(known + known.splitlines()[-1].replace(b"a.log", b"\xc3(") + b"\n")
    )
    assert len(list(entries(path))) == len(list(entries(tmp_path / "a.ldlm")))


def test_it_is_gzip_around_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.ldlm"
    recorded(path, [chunk(b"loss 2.5\n")])
    first, second = gzip.decompress(path.read_bytes()).splitlines()
    assert json.loads(first)["format"] == "ldlm-recording/1"
    assert json.loads(second)["text"] == "loss 2.5\n"


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "a.ldlm"
    recorded(path, [chunk(b"x\n")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "night.ldlm").write_text("precious")
    with pytest.raises(UsageError, match="there already"):
        Recorder(tmp_path / "night.ldlm", "*", BEGAN)
    with pytest.raises(UsageError, match="cannot be written"):
        Recorder(tmp_path / "no" / "folder", "*", BEGAN)


def test_nothing_is_left_where_nothing_was_recorded(tmp_path: Path) -> None:
    Recorder(tmp_path / "a.ldlm", "*", BEGAN).close()
    assert list(tmp_path.iterdir()) == []


def test_it_stops_at_its_limit_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path / "a.ldlm", "*", BEGAN, limit=2000)
    for number in range(200):
        recorder.fed(chunk(f"{number**9} {number**7}\n".encode() * 9), "r", BEGAN + number)
        recorder.turn(BEGAN + number)
    recorder.close()
    (notice,) = caplog.messages
    assert "the recording ends here" in notice
    assert (tmp_path / "a.ldlm").stat().st_size < 3000
    assert len(list(entries(tmp_path / "a.ldlm"))) > 10


def test_a_pipe_is_not_read_to_see_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_recording(tmp_path / "pipe")


def test_a_long_first_reading_is_not_held_in_memory(tmp_path: Path) -> None:
    """What was read of many logs at the start is written as it comes."""
    recorder = Recorder(tmp_path / "a.ldlm", "*", BEGAN)
    for number in range(40):
        recorder.fed(chunk(os.urandom(20_000)), "r", BEGAN + number)
    assert (tmp_path / "a.ldlm").stat().st_size > 300_000
    recorder.close()


@pytest.mark.parametrize(
    "data",
    [b"", b"step 1\n", gzip.compress(b"step 1\n"), b"\x1f\x8b\x08"],
    ids=["empty", "text", "compressed", "cut"],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "other").write_bytes(data)
    with pytest.raises(InputError, match="is no readable recording"):
        list(entries(tmp_path / "other"))
