"""What must survive a restart, and how a changed file is told from the one that was judged."""

import errno
import os
from pathlib import Path

from ldlm_monitor.model import records
from ldlm_monitor.model.records import Event
from ldlm_monitor.source import Disk, Follower, Position
from ldlm_monitor.state.read_log import ReadLog
from ldlm_monitor.state.state_store import StateStore, still_holds


def judged(path: Path) -> Position:
    follower = Follower()
    follower.add(path)
    list(follower.read(None, 0.0))
    (position,) = follower.positions()
    follower.close()
    return position


def test_positions_and_start_times_are_there_after_a_restart(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\nhalf")
    ledger = StateStore(tmp_path / "state" / "ledger.sqlite")
    ledger.commit([judged(log)], {"NonFiniteLoss{run=a}": 12.5}, {"a": (40, 99.5)})
    ledger.close()
    again = StateStore(tmp_path / "state" / "ledger.sqlite")
    (position,) = again.positions().values()
    assert (position.path, position.offset) == (str(log), 8)
    assert again.starts() == {"NonFiniteLoss{run=a}": 12.5}
    assert again.progress() == {"a": (40, 99.5)}
    again.close()


def test_a_first_start_knows_nothing(tmp_path: Path) -> None:
    ledger = StateStore(tmp_path / "ledger.sqlite")
    assert (ledger.positions(), ledger.starts(), ledger.take_notices()) == ({}, {}, [])
    ledger.close()


def test_a_file_that_grew_is_still_the_one_that_was_judged(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\n")
    position = judged(log)
    with log.open("a") as file:
        file.write("three\n")
    assert still_holds(position)


def test_a_file_that_was_written_anew_is_not(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\n")
    position = judged(log)
    log.write_text("uno\ndos\ntres\n")
    assert not still_holds(position)
    log.unlink()
    assert not still_holds(position)


def test_a_file_that_cannot_be_read_is_not_known_to_be_the_one_that_was_judged(
    tmp_path: Path,
) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\n")

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    assert not still_holds(judged(log), Disk(pread=pread))


def test_a_damaged_ledger_is_set_aside_and_said(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database, but long enough to be looked at" * 20)
    ledger = StateStore(path)
    assert ledger.positions() == {}
    assert len(ledger.take_notices()) == 1
    ledger.close()


def test_what_was_observed_is_kept_whole_in_order_until_it_is_forgotten(tmp_path: Path) -> None:
    position = records.Position("train.log", 1, 0)
    events = [
        Event(kind="log_silence", severity="info", run="r", message=text, position=position)
        for text in ("first", "second", "third")
    ]
    arrivals = ReadLog(tmp_path / "arrivals.sqlite")
    first = arrivals.note_observed(events[:2], 10.0)
    second = arrivals.note_observed(events[2:], 20.0)
    arrivals.close()
    again = ReadLog(tmp_path / "arrivals.sqlite")
    seen = again.observed_since(0)
    assert [(each.order, each.at) for each in seen] == [((first, 0), 10.0), ((second, 0), 20.0)]
    assert [event for each in seen for event in each.records] == events
    assert again.since(0) == []
    again.forget(first)
    assert [each.at for each in again.observed_since(0)] == [20.0]
    again.close()
