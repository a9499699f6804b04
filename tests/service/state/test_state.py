"""What must survive a restart, and what becomes of a file that holds it no more."""

import math
import os
import resource
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ldlm_monitor.base import records
from ldlm_monitor.base.arrival import Arrival
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.records import Event, Heartbeat
from ldlm_monitor.base.snapshot import AlertView, MonitorView
from ldlm_monitor.logs.source.file_identity import FilePosition
from ldlm_monitor.logs.source.follower import Follower
from ldlm_monitor.service.state import read_log
from ldlm_monitor.service.state.state_dir import StateDir, default_state_dir
from ldlm_monitor.service.state.state_store import State, StateStore

FILE = (1, 2, 0)
BAR = "Training:   1%|#         | "
ALERT = AlertView(
    name="NonFiniteLoss",
    state="firing",
    labels={"run": "caf\udce9"},
    annotations={},
    value=math.nan,
    active_at=12.5,
    fired_at=13.0,
    position=None,
)


def judged(path: Path) -> FilePosition:
    follower = Follower()
    follower.add(path)
    list(follower.read(None, 0.0))
    (position,) = follower.positions()
    follower.close()
    return position


def chunk(data: str, offset: int, path: str = "a.log") -> Chunk:
    return Chunk(path, FILE, offset, offset + 1, data.encode())


def rows(arrivals: Sequence[Arrival]) -> list[tuple[float, str, int, int, int, str]]:
    return [(each.at, each.path, each.start, each.stop, each.line, each.kind) for each in arrivals]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def opened(folder: Path) -> StateStore:
    return StateStore(folder / "ledger.sqlite")


def test_the_state_is_there_after_a_restart(tmp_path: Path, folder: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\nhalf")
    position = judged(log)
    counts = MonitorView.fresh()
    store = opened(folder)
    store.commit(State([position], [ALERT], counts=counts, runs={str(log): "r"}, clock=7.5))
    store.close()
    again = opened(folder)
    found = again.load()
    assert found is not None
    assert (found.positions, found.counts, found.clock) == ([position], counts, 7.5)
    assert found.runs == {str(log): "r"}
    (alert,) = found.alerts
    assert (alert.key, alert.active_at, repr(alert.value)) == (ALERT.key, 12.5, "nan")
    again.close()


def test_a_first_start_has_no_state(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(folder)
    assert (store.load(), store.read_log.arrivals(), caplog.records) == (None, [], [])
    store.close()


def test_a_damaged_file_is_set_aside_and_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    (folder / "ledger.sqlite").write_bytes(b"not a database, but long enough to be looked at" * 20)
    store = opened(folder)
    assert store.load() is None
    assert len(caplog.records) == 1
    assert (folder / "ledger.sqlite.damaged-1").exists()
    store.close()


@pytest.mark.parametrize("name", ["alerts", "counts", "positions", "clock", "judged", "runs"])
@pytest.mark.parametrize("body", ["{", "[7]", '[{"a": 1}]', '"x"', "[" * 100_000])
def test_what_cannot_be_read_is_left_out_and_said(
    folder: Path, caplog: pytest.LogCaptureFixture, name: str, body: str
) -> None:
    store = opened(folder)
    store.commit(State([], [ALERT], clock=7.5))
    store.close()
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db, db:
        db.execute("UPDATE kept SET body = ? WHERE name = ?", (body, name))
    again = opened(folder)
    assert again.load() is not None
    assert len(caplog.records) == 1
    again.close()


def test_of_an_earlier_versions_state_what_fits_is_taken_over_with_a_line(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(folder)
    store.commit(State(runs={"a.log": "r"}, clock=7.5))
    store.close()
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db, db:
        db.execute("DELETE FROM kept WHERE name = 'clock'")
        db.execute("INSERT INTO kept VALUES ('progress', '{}')")
    again = opened(folder)
    assert again.load() == State(runs={"a.log": "r"})
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records] == [
        "written by an earlier version; the fields that can be read are taken over"
    ]
    again.close()


def test_bytes_of_one_second_are_one_row_unless_another_file_came_between(folder: Path) -> None:
    store = opened(folder)
    log = store.read_log
    log.note([chunk("ab\n", 0)], 10.0)
    log.note([chunk("cd\n", 3)], 10.5)
    log.note([chunk("ef\n", 6), chunk("x\n", 0, "b.log")], 11.0)
    log.note([chunk("gh\n", 9)], 11.2)
    assert rows(log.arrivals()) == [
        (10.5, "a.log", 0, 6, 1, "records"),
        (11.0, "a.log", 6, 9, 7, "records"),
        (11.0, "b.log", 0, 2, 1, "records"),
        (11.2, "a.log", 9, 12, 10, "records"),
    ]
    store.close()


def test_what_came_late_is_spread_over_its_files_chunks_and_no_block_is_cut(folder: Path) -> None:
    before, after = ("".join(f"{BAR}{step}/900 [00:01<09:00]\n" for step in range(40)),) * 2
    block = "Traceback (most recent call last):\n" + "  File x, line 1, in y\n    z()\n" * 40
    text = before + block + after
    cut, last = len(before) + len(block) // 2, len(text) - len(after) // 2
    store = opened(folder)
    for begin, end in ((0, last), (last, len(text))):  # urgent bytes are noted first
        ends = sorted({begin, max(begin, cut), end})
        both = [
            replace(chunk(text[one:two], one), line=text.count("\n", 0, one) + 1)
            for one, two in pairwise(ends)
        ]
        store.read_log.note(both, 100.0, since=40.0)
    found = store.read_log.arrivals()
    begun = [each.start for each in found]
    assert begun == [0, *(each.stop for each in found[:-1])]
    assert not [at for at in begun if len(before) < at < len(before) + len(block)]
    times = [each.at for each in found]
    assert times == sorted(times)
    assert 40.0 < times[0] < 50.0
    assert len(set(times)) > 6
    assert times[-1] == 100.0
    assert [each.line for each in found] == [text.count("\n", 0, at) + 1 for at in begun]
    store.close()


def test_a_row_that_was_committed_is_not_prolonged(folder: Path) -> None:
    """What came after the commit is news, and what came before is not."""
    store = opened(folder)
    store.read_log.note([chunk("ab\n", 0)], 10.0)
    judged_to = store.read_log.last
    store.commit(State(judged=judged_to))
    store.read_log.note([chunk("cd\n", 3)], 10.5)
    assert store.read_log.last > judged_to
    store.close()


def test_the_read_log_stays_small_and_keeps_what_came_last(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(read_log, "MAX_ARRIVALS", 100)
    store = opened(folder)
    for second in range(1000):
        store.read_log.note([chunk("a\n", 2 * second)], float(second))
    found = store.read_log.arrivals()
    assert len(found) <= 101
    assert [each.at for each in found[-40:]] == [float(second) for second in range(960, 1000)]
    ends = [0, *(each.stop for each in found)]
    assert [each.start for each in found] == ends[:-1]
    assert all(each.line == each.start + 1 for each in found)
    store.close()


def test_the_read_log_stays_small_where_each_record_is_shown_unfinished_first(
    folder: Path, monkeypatch
) -> None:
    """So a progress bar is read that is repainted less often than a peek is due."""
    monkeypatch.setattr(read_log, "MAX_ARRIVALS", 100)
    store = opened(folder)
    for second in range(1000):
        whole = chunk("a\n", 2 * second)
        store.read_log.note([replace(whole, data=b"a", peek=True)], float(second))
        store.read_log.note([whole], second + 0.5)
    found = store.read_log.arrivals()
    assert len(found) <= 101
    assert [each.at for each in found[-20:]] == [second / 2 for second in range(1980, 2000)]
    ends = [0, *(each.stop for each in found if each.kind == "records")]
    assert [each.start for each in found if each.kind == "records"] == ends[:-1]
    store.close()


def test_the_read_log_stays_small_where_logs_are_rotated(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(read_log, "MAX_ARRIVALS", 100)
    store = opened(folder)
    for number in range(1000):
        path = f"{number}.log"
        whole = chunk("a\n", 0, path)
        store.read_log.note([whole, replace(whole, data=b"", final=True)], float(number))
        store.commit(State(positions=[FilePosition.at_start(path, FILE)]))
    assert [each.path for each in store.read_log.arrivals()] == ["999.log", "999.log"]
    store.close()
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM arrival").fetchone()[0] <= 103
    again = opened(folder)
    assert sum(again.read_log.forget_others(set()).values()) <= 103
    again.close()


def test_files_that_cannot_be_read_again_are_forgotten_and_counted(folder: Path) -> None:
    store = opened(folder)
    store.commit(State(), [Arrival(9.0, "a.log", FILE, 0, 40)])
    store.read_log.note([chunk("ab\n", 40), chunk("x\n", 0, "b.log")], 10.0)
    present = {read_log.file_key("b.log", FILE)}
    assert store.read_log.forget_others(present) == {"a.log": 43}
    assert rows(store.read_log.arrivals()) == [(10.0, "b.log", 0, 2, 1, "records")]
    store.close()


def event(text: str) -> Event:
    position = records.Position("train.log", 1, 0)
    return Event(kind="log_silence", severity="info", run="r", message=text, position=position)


def test_what_was_observed_is_kept_whole_in_order(folder: Path) -> None:
    events = [event(text) for text in ("first", "second", "third")]
    store = opened(folder)
    store.read_log.note_observed(events[:2], 10.0)
    store.read_log.note_observed(events[2:], 20.0)
    store.close()
    again = opened(folder)
    seen = again.read_log.observed()
    assert [(each.at, each.record) for each in seen] == list(
        zip([10.0, 10.0, 20.0], events, strict=True)
    )
    again.close()


def test_of_a_rank_only_the_last_heartbeat_is_kept(folder: Path) -> None:
    def beat(rank: int, step: int) -> Heartbeat:
        position = records.Position(f"rank{rank}.json", 1, 0)
        return Heartbeat(
            run="r",
            rank=rank,
            host="h",
            pid=7,
            step=step,
            phase="step",
            time=1.0,
            position=position,
        )

    store = opened(folder)
    for step in range(3):
        store.read_log.note_observed([beat(0, step), beat(1, 0)], 10.0 + step)
    store.read_log.note_observed([beat(0, 8), beat(0, 9)], 20.0)
    found = [(each.at, each.record) for each in store.read_log.observed()]
    assert found == [(12.0, beat(1, 0)), (20.0, beat(0, 9))]
    store.close()


def test_an_input_whose_name_is_no_utf_8_has_a_state_folder_too(tmp_path: Path) -> None:
    names = [os.fsdecode(b"bad\xff.log"), os.fsdecode(b"bad\xfe.log")]
    first, second = (default_state_dir([name], tmp_path) for name in names)
    assert first.parent == second.parent
    assert first != second


def test_a_full_disk_does_not_end_a_start(folder: Path) -> None:
    state = StateDir(folder)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        state.announce("http://127.0.0.1:9090")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    state.close()
    again = StateDir(folder)
    again.announce("http://127.0.0.1:9090")
    with pytest.raises(UsageError) as refused:
        StateDir(folder)
    assert "attach http://127.0.0.1:9090" in str(refused.value)
    again.close()
