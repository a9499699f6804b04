"""The outbox: committed before it is sent, in order, until it is accepted."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.service.notify.deliveries import LONGEST_PAUSE, pause
from ldlm_monitor.service.notify.message import Notification, Receipt, to_json
from ldlm_monitor.service.notify.outbox import KEPT_SECONDS, Outbox
from ldlm_monitor.service.notify.policy import Policy
from ldlm_monitor.service.state import database

NOW = 1_700_000_000.0
DOWN = DeliveryError("down")


def drain(box: Outbox, receiver: str, now: float) -> Iterator[Notification]:
    while (pending := box.due(receiver, now)) is not None:
        yield pending.message.lead
        box.accepted(pending, now, Receipt())


def states(box: Outbox, receiver: str, now: float) -> list[str]:
    return [notification.state for notification in drain(box, receiver, now)]


def test_what_was_added_is_due_at_once_and_once(outbox, make_notification):
    assert outbox.add(make_notification(), ["slack"], NOW)
    pending = outbox.due("slack", NOW)
    assert pending.message.lead.key == make_notification().key
    outbox.accepted(pending, NOW, Receipt())
    assert outbox.due("slack", NOW + 1e6) is None


def test_adding_the_same_again_changes_nothing(outbox, make_notification):
    outbox.add(make_notification(), ["slack"], NOW)
    assert not outbox.add(make_notification(summary="said otherwise"), ["slack"], NOW + 5)
    assert len(list(drain(outbox, "slack", NOW + 5))) == 1
    assert not outbox.add(make_notification(), ["slack"], NOW + 10)


def test_the_keys_of_what_fires_by_its_last_notification(outbox, make_notification):
    outbox.add(make_notification(run="r1"), ["slack"], NOW)
    outbox.add(make_notification(run="r2"), ["slack"], NOW)
    outbox.add(make_notification(run="r2", state="ended"), ["slack"], NOW + 5)
    assert outbox.firing_keys() == {make_notification(run="r1").key}
    outbox.add(make_notification(run="r2", started_at=NOW + 60), ["slack"], NOW + 60)
    assert outbox.firing_keys() == {make_notification(run=run).key for run in ("r1", "r2")}


@pytest.mark.parametrize("change", [{"state": "resolved"}, {"started_at": NOW + 60}, {"run": "r2"}])
def test_another_state_start_or_instance_is_another_notification(outbox, make_notification, change):
    outbox.add(make_notification(), ["slack"], NOW)
    assert outbox.add(make_notification(**change), ["slack"], NOW)


def test_a_receiver_that_came_later_gets_what_is_added_again(outbox, make_notification):
    outbox.add(make_notification(), ["slack"], NOW)
    assert outbox.add(make_notification(), ["slack", "pager"], NOW)
    assert len(list(drain(outbox, "pager", NOW))) == 1
    assert len(list(drain(outbox, "slack", NOW))) == 1


def test_without_a_receiver_nothing_is_kept(outbox, make_notification):
    assert not outbox.add(make_notification(), [], NOW)
    assert outbox.add(make_notification(), ["slack"], NOW)


def test_firing_and_resolved_go_out_in_order_even_if_the_first_must_wait(outbox, make_notification):
    outbox.add(make_notification(), ["slack"], NOW)
    outbox.failed(outbox.due("slack", NOW), DeliveryError("busy", retry_after=20), NOW)
    outbox.add(make_notification(state="resolved"), ["slack"], NOW + 1)
    assert outbox.due("slack", NOW + 19) is None
    assert states(outbox, "slack", NOW + 20) == ["firing", "resolved"]


def test_a_receiver_that_is_down_holds_up_no_other(outbox, make_notification):
    outbox.add(make_notification(), ["slack", "pager"], NOW)
    outbox.failed(outbox.due("slack", NOW), DOWN, NOW)
    assert states(outbox, "pager", NOW) == ["firing"]


def test_a_permanent_refusal_is_kept_aside_and_the_next_goes_out(outbox, make_notification):
    outbox.add(make_notification(), ["slack"], NOW)
    outbox.add(make_notification(state="resolved"), ["slack"], NOW)
    outbox.failed(outbox.due("slack", NOW), DeliveryError("gone", permanent=True), NOW)
    assert states(outbox, "slack", NOW) == ["resolved"]
    assert outbox.counts()["slack", "failed"] == 1


def test_counts_start_at_zero_and_are_kept_by_outcome(outbox, make_notification):
    outbox.register("slack")
    zero = {("slack", outcome): 0 for outcome in ("sent", "retried", "failed", "repeated")}
    assert outbox.counts() == {**zero, ("slack", "pending"): 0}
    for number in range(3):
        outbox.add(make_notification(started_at=NOW + number), ["slack"], NOW)
    outbox.failed(outbox.due("slack", NOW), DOWN, NOW)
    outbox.accepted(outbox.due("slack", NOW + 10), NOW + 10, Receipt())
    outbox.failed(outbox.due("slack", NOW + 10), DeliveryError("no", permanent=True), NOW + 10)
    assert outbox.counts() == {
        ("slack", "sent"): 1,
        ("slack", "retried"): 1,
        ("slack", "failed"): 1,
        ("slack", "repeated"): 0,
        ("slack", "pending"): 1,
    }


def test_settling_twice_counts_once(outbox, make_notification):
    outbox.add(make_notification(), ["slack"], NOW)
    pending = outbox.due("slack", NOW)
    outbox.accepted(pending, NOW, Receipt())
    outbox.accepted(pending, NOW, Receipt())
    outbox.failed(pending, DOWN, NOW)
    assert outbox.counts()["slack", "sent"] == 1
    assert outbox.due("slack", NOW + 1e6) is None


@given(attempts=st.integers(0, 10_000))
def test_pauses_double_up_to_five_minutes_and_are_spread(attempts):
    longest = min(LONGEST_PAUSE, 2.0 ** min(attempts, 20))
    assert longest / 2 <= pause(attempts, None) <= longest


@pytest.mark.parametrize(
    ("wish", "seconds"), [(30.0, 30.0), (0.0, 1.0), (1e9, 300.0), (float("inf"), 300.0)]
)
def test_the_wish_of_the_receiver_is_honoured_within_reason(wish, seconds):
    assert pause(9, wish) == seconds


def test_a_clock_that_was_set_back_does_not_delay_anything_by_hours(outbox, make_notification):
    outbox.add(make_notification(), ["slack"], NOW)
    assert outbox.due("slack", NOW - 86_400) is not None


def test_what_was_dealt_with_is_forgotten_in_the_end_and_what_waits_is_not(
    outbox, make_notification
):
    outbox.add(make_notification(run="sent"), ["slack"], NOW)
    list(drain(outbox, "slack", NOW))
    outbox.add(make_notification(run="waits"), ["slack"], NOW)
    later = NOW + KEPT_SECONDS + 1
    assert outbox.add(make_notification(run="sent"), ["slack"], later)
    assert not outbox.add(make_notification(run="waits"), ["slack"], later)


def test_everything_is_there_after_a_restart(tmp_path, make_notification):
    first = Outbox(tmp_path / "outbox.db")
    first.add(make_notification(), ["slack"], NOW)
    first.failed(first.due("slack", NOW), DeliveryError("busy", retry_after=60), NOW)
    first.close()
    again = Outbox(tmp_path / "outbox.db")
    assert not again.add(make_notification(), ["slack"], NOW)
    assert states(again, "slack", NOW) == ["firing"]
    assert again.counts()["slack", "retried"] == 1
    again.close()


def test_its_file_is_for_the_user_alone(tmp_path, make_notification):
    box = Outbox(tmp_path / "state" / "outbox.db")
    box.add(make_notification(), ["slack"], NOW)
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "state").iterdir()}
    box.close()
    assert modes == {0}


@pytest.mark.parametrize("damage", [b"this is not a database" * 200, b"SQLite format 3\x00junk"])
def test_a_damaged_file_is_set_aside_with_one_notice(tmp_path, make_notification, caplog, damage):
    path = tmp_path / "outbox.db"
    path.write_bytes(damage)
    box = Outbox(path)
    (notice,) = caplog.messages
    assert str(path) in notice
    assert "\n" not in notice
    assert (tmp_path / "outbox.db.damaged-1").read_bytes() == damage
    assert box.add(make_notification(), ["slack"], NOW)
    box.close()
    again = Outbox(path)
    assert caplog.messages == [notice]
    assert states(again, "slack", NOW) == ["firing"]
    again.close()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE notification RENAME COLUMN body TO text",
        "ALTER TABLE message_group DROP COLUMN worst_sent",
        "ALTER TABLE message_group RENAME COLUMN kind TO subject",
    ],
)
def test_the_file_of_a_version_with_other_columns_is_set_aside(
    tmp_path, make_notification, caplog, change
):
    path = tmp_path / "outbox.db"
    Outbox(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
    with closing(Outbox(path, {"slack": Policy()})) as box:
        (notice,) = caplog.messages
        assert "another version" in notice
        assert (tmp_path / "outbox.db.damaged-1").exists()
        assert box.add(make_notification(), ["slack"], NOW)
        assert states(box, "slack", NOW) == ["firing"]


def test_pages_overwritten_in_the_middle_are_noticed_at_the_start(
    tmp_path, make_notification, caplog
):
    path = tmp_path / "outbox.db"
    box = Outbox(path)
    for number in range(200):
        box.add(make_notification(started_at=NOW + number), ["slack"], NOW)
    box.close()
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 8 * 4096)
    box = Outbox(path)
    assert "damaged" in caplog.messages[0]
    assert box.add(make_notification(), ["slack"], NOW)
    box.close()


def test_a_folder_that_cannot_be_written_means_memory_and_a_notice(
    tmp_path, make_notification, caplog
):
    (tmp_path / "file").write_text("in the way")
    box = Outbox(tmp_path / "file" / "outbox.db")
    (notice,) = caplog.messages
    assert "memory" in notice
    assert "--state-dir" in notice
    box.add(make_notification(), ["slack"], NOW)
    assert states(box, "slack", NOW) == ["firing"]
    box.close()


FULL_DISK = """
import logging, resource, signal, sys
from pathlib import Path
from ldlm_monitor.service.notify.message import Notification, Receipt, from_json
from ldlm_monitor.service.notify.outbox import Outbox

logging.basicConfig(stream=sys.stdout, format="%(message)s")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
first, second = (from_json(Notification, text) for text in sys.argv[2:])
box = Outbox(path)
box.add(first, ["slack"], 1.0)
room = max(file.stat().st_size for file in path.parent.iterdir())
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
box.add(second, ["slack"], 2.0)
while (pending := box.due("slack", 3.0)) is not None:
    print(pending.message.lead.state)
    box.accepted(pending, 3.0, Receipt())
print(box.counts()["slack", "sent"])
"""


def test_a_disk_that_fills_up_loses_nothing_that_waits(tmp_path, make_notification):
    """A real refusal of the system: the process may not make the file any bigger."""
    firing, resolved = make_notification(), make_notification(state="resolved", line="y" * 3900)
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "outbox.db")]
    result = subprocess.run(
        [*command, to_json(firing), to_json(resolved)], capture_output=True, text=True, check=True
    )
    notice, *rest = result.stdout.splitlines()
    assert "kept in memory only" in notice
    assert rest == ["firing", "resolved", "2"]


ROOM_AGAIN = """
import errno, logging, os, signal, sys, threading
from pathlib import Path
from ldlm_monitor.service.notify.message import Notification, from_json
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.state import database

database.RETRY_SECONDS = 0.05
said, heard = [], threading.Event()
class Heard(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
        if "can be used again" in said[-1]:
            heard.set()
logging.basicConfig(handlers=[Heard()], level="INFO")
disk = Path(sys.argv[1])
box = Outbox(disk / "state" / "outbox.db")
first, second, third = (from_json(Notification, text) for text in sys.argv[2:])
box.add(first, ["slack"], 1.0)
with (disk / "checkpoint").open("wb", buffering=0) as full:
    try:
        while True:
            full.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
box.add(second, ["slack"], 2.0)
assert len(said) == 1 and "kept in memory only" in said[0], said
(disk / "checkpoint").unlink()
assert heard.wait(60), said
box.add(third, ["slack"], 3.0)
print(len(said), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a disk of its own, which needs root")
def test_what_a_full_disk_kept_in_memory_is_on_it_once_there_is_room(tmp_path, make_notification):
    """Without a restart, so that a `kill -9` afterwards loses nothing."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(tmp_path)], check=True)
    try:
        sent = [to_json(make_notification(run=run, line="y" * 3900)) for run in "abc"]
        command = [sys.executable, "-c", ROOM_AGAIN, str(tmp_path), *sent]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout) == (-signal.SIGKILL, "2\n"), result.stderr
        box = Outbox(tmp_path / "state" / "outbox.db")
        assert [each.run for each in drain(box, "slack", 5.0)] == ["a", "b", "c"]
        box.close()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_file_that_a_start_could_not_read_is_never_written_over(
    tmp_path, make_notification, caplog, monkeypatch
):
    """What waits in it is sent by the next start."""
    monkeypatch.setattr(database, "RETRY_SECONDS", 0.01)
    path = tmp_path / "outbox.db"
    box = Outbox(path)
    box.add(make_notification(), ["slack"], NOW)
    box.close()
    locked = sqlite3.connect(path, isolation_level=None)
    locked.execute("PRAGMA locking_mode = EXCLUSIVE")
    locked.execute("BEGIN EXCLUSIVE")
    box = Outbox(path)
    assert "and restart" in caplog.messages[-1]
    locked.close()
    box.add(make_notification(state="resolved"), ["slack"], NOW)
    box.close()
    again = Outbox(path)
    assert states(again, "slack", NOW) == ["firing"]
    again.close()


def test_a_row_of_another_version_does_not_block_the_queue(tmp_path, make_notification):
    path = tmp_path / "outbox.db"
    box = Outbox(path)
    box.add(make_notification(), ["slack"], NOW)
    box.add(make_notification(state="resolved"), ["slack"], NOW)
    box.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE notification SET body = '{}' WHERE state = 'firing'")
    connection.close()
    box = Outbox(path)
    assert states(box, "slack", NOW) == ["resolved"]
    assert box.counts()["slack", "failed"] == 1
    box.close()


def test_using_it_after_close_is_an_error(tmp_path, make_notification):
    box = Outbox(tmp_path / "outbox.db")
    box.close()
    with pytest.raises(sqlite3.ProgrammingError):
        box.add(make_notification(), ["slack"], NOW)


class OutboxAgainstAList(RuleBasedStateMachine):
    """Whatever is added, sent, refused and restarted: each receiver gets all, in order, once."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "outbox.db"
        self.box = Outbox(self.path)
        self.now = NOW
        self.waiting: dict[str, list[float]] = {"a": [], "b": []}
        self.number = 0.0

    def notification(self, started_at: float) -> Notification:
        return Notification(
            key="k", alert="A", state="firing", severity="none", reason="", run="r", rank=None,
            step=None, line=None, path=None, line_number=None, summary="", description="",
            action="", labels={}, value=1.0, started_at=started_at, at=None,
        )  # fmt: skip

    @rule(receivers=st.sampled_from([["a"], ["b"], ["a", "b"]]))
    def add(self, receivers: list[str]) -> None:
        self.number += 1
        assert self.box.add(self.notification(self.number), receivers, self.now)
        for receiver in receivers:
            self.waiting[receiver].append(self.number)

    @rule(receiver=st.sampled_from(["a", "b"]), outcome=st.sampled_from(["ok", "down", "never"]))
    def attempt(self, receiver: str, outcome: str) -> None:
        self.now += LONGEST_PAUSE
        pending = self.box.due(receiver, self.now)
        assert (pending is None) == (not self.waiting[receiver])
        if pending is None:
            return
        assert pending.message.lead.started_at == self.waiting[receiver][0]
        if outcome == "ok":
            self.box.accepted(pending, self.now, Receipt())
        else:
            refusal = DeliveryError("no", permanent=outcome == "never")
            self.box.failed(pending, refusal, self.now)
        if outcome != "down":
            self.waiting[receiver].pop(0)

    @precondition(lambda self: self.number)
    @rule()
    def add_again(self) -> None:
        had = [receiver for receiver in ("a", "b") if self.number in self.waiting[receiver]]
        assert not self.box.add(self.notification(self.number), had, self.now)

    @rule()
    def restart(self) -> None:
        self.box.close()
        self.box = Outbox(self.path)

    @invariant()
    def counts_agree(self) -> None:
        counts = self.box.counts()
        for receiver, waiting in self.waiting.items():
            assert counts.get((receiver, "pending"), 0) == len(waiting)

    def teardown(self) -> None:
        self.box.close()
        self.folder.cleanup()


TestOutboxAgainstAList = OutboxAgainstAList.TestCase
TestOutboxAgainstAList.settings = settings(stateful_step_count=25)
