"""A TFRecord file, followed: its frames come whole, across restarts and truncation too."""

from pathlib import Path

import pytest

from ldlm_monitor.logs.parse.event_file import EventFileReader
from ldlm_monitor.logs.source.tail import RETURN_SECONDS
from tests.logs.event_files.tfevents import frame

FILES = Path(__file__).resolve().parents[2] / "logs/event_files"
DATA = (FILES / "torch.tfevents.1").read_bytes()
ENDS = [each.end for each in EventFileReader.framing.frames(DATA)]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events.out.tfevents.1.host.1.0"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def given(reader) -> bytes:
    return b"".join(chunk.data for chunk in reader.chunks)


def test_byte_by_byte_a_frame_comes_when_it_is_whole(reading, events):
    reader = reading(events)
    for at in range(300):
        append(events, DATA[at : at + 1])
        reader.look(after=0.1)
        assert given(reader) == DATA[: max((end for end in ENDS if end <= at + 1), default=0)]
    assert all(chunk.framed for chunk in reader.chunks)
    assert [chunk.line for chunk in reader.chunks] == list(range(1, len(reader.chunks) + 1))


def test_a_frame_that_waits_is_not_shown_unfinished(reading, events):
    append(events, DATA[: ENDS[1] + 30])
    reader = reading(events)
    reader.look()
    reader.look(after=5)
    assert given(reader) == DATA[: ENDS[1]]


def test_a_frame_may_begin_and_end_with_nul(reading, events):
    """A length of 256 begins with NUL; where a checksum ends in NULs, the frame is whole."""
    number = next(n for n in range(10_000) if frame(b"%d" % n).endswith(b"\0"))
    parts = [DATA[: ENDS[0]], frame(b"x" * 256), frame(b"%d" % number)]
    reader = reading(events)
    append(events, parts[0])
    reader.look()
    for part in parts[1:]:
        append(events, part)
        reader.look(after=1)
    assert given(reader) == b"".join(parts)


def test_reading_goes_on_where_it_stood(reading, events):
    append(events, DATA[: ENDS[4] + 7])
    reader = reading(events)
    reader.look()
    positions = reader.follower.positions()
    append(events, DATA[ENDS[4] + 7 :])
    later = reading()
    later.follower.add(events, resume=positions)
    later.look()
    assert given(later) == DATA[ENDS[4] :]
    assert later.chunks[0].line == 6
    assert later.chunks[0].framed


def test_followed_from_its_end_it_begins_with_a_whole_frame(reading, events):
    append(events, DATA[: ENDS[4] + 7])
    reader = reading()
    reader.follower.add(events, offset=ENDS[4] + 7)
    append(events, DATA[ENDS[4] + 7 :])
    reader.look()
    assert given(reader) == DATA[ENDS[4] :]
    assert reader.chunks[0].line == 6


def test_emptied_and_written_anew_it_begins_anew(reading, events):
    append(events, DATA)
    reader = reading(events)
    reader.look()
    events.write_bytes(DATA[: ENDS[2]])
    reader.look(after=1)
    reader.look(after=RETURN_SECONDS)
    fresh = [chunk for chunk in reader.chunks if chunk.file[2] == 1]
    assert b"".join(chunk.data for chunk in fresh) == DATA[: ENDS[2]]
    assert fresh[0].line == 1


def test_text_begins_in_no_such_way(reading, log):
    reader = reading(log)
    append(log, b"a\n")
    reader.look()
    append(log, DATA)
    reader.look(after=1)
    assert not any(chunk.framed for chunk in reader.chunks)


def test_bytes_that_a_server_shows_before_they_are_written_are_not_there_yet(reading, events):
    """A network file system shows NULs first."""
    append(events, bytes(len(DATA)))
    reader = reading(events)
    reader.look()
    with events.open("r+b") as file:
        file.write(DATA[: ENDS[2] + 20])
    reader.look(after=1)
    with events.open("r+b") as file:
        file.write(DATA)
    reader.look(after=1)
    assert given(reader) == DATA
