"""A daemon that is started again goes on where it stood: the real pump, time as an argument."""

import contextlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.config import Settings
from ldlm_monitor.core.assemble import assemble
from ldlm_monitor.core.monitor import Monitor
from ldlm_monitor.daemon.checkpoint import Checkpoint, thaw
from ldlm_monitor.daemon.pump import Pump
from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.model.errors import CheckpointError
from ldlm_monitor.notify import Outbox
from ldlm_monitor.source import Continuation, Journal, PollingWaker
from ldlm_monitor.state.state_store import StateStore

NOW = 1_769_681_700.0
RUN = "train_20260129_101500"
NAN = "WARNING: Invalid text_loss detected: nan\n"
RUNS = Path(__file__).resolve().parents[1] / "corpus/runs"


def bars(first: int, last: int) -> str:
    return "".join(
        f"Training:   1%|▏         | {step}/9500 [{step // 60:02d}:{step % 60:02d}<9:00:00,  "
        f"1.00it/s, Epoch=0/1, Progress=1.0%, Loss=2.{5000 + step * 37 % 991}, Text=2.5]\r"
        for step in range(first, last)
    )


class Watched:
    """A pump on one log, and what it told; a bar's step is its second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / f"{RUN}_node0.log"
        self.started = NOW

    def write(self, text: str, second: float) -> None:
        with self.log.open("a") as file:
            file.write(text)
        os.utime(self.log, (NOW + second, NOW + second))

    def begin(self, second: float, **settings: object) -> None:
        self.outbox = Outbox(self.folder / "state" / "outbox.sqlite")
        self.ledger = StateStore(self.folder / "state" / "ledger.sqlite")
        wanted = Settings(files=(str(self.folder / "*.log"),), companions=False, **settings)
        self.pump = Pump(wanted, self.outbox, self.ledger, ["slack"], PollingWaker())
        self.look(second)

    def look(self, second: float) -> None:
        self.pump.turn((), NOW + second)

    def kill(self) -> None:
        self.pump.follower.close()
        self.outbox.close()
        self.ledger.close()

    def told(self) -> list[str]:
        """Alert and state of everything that waits for the receiver, which then has it."""
        found = []
        while (pending := self.outbox.due("slack", NOW + 1e6)) is not None:
            found.append(f"{pending.notification.alert} {pending.notification.state}")
            self.outbox.accepted(pending, NOW)
        return found

    def exported(self, name: str) -> float | None:
        points = self.pump.monitor.snapshot().points
        return next((point.value for point in points if point.name == name), None)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    (tmp_path / "state").mkdir()
    watched = Watched(tmp_path)
    yield watched
    watched.kill()


def test_what_happened_while_it_was_down_is_told_even_if_it_is_over(watched: Watched) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    watched.kill()
    watched.write(NAN + bars(40, 900), 900)
    watched.begin(901)
    assert watched.told() == ["NonFiniteLoss firing", "NonFiniteLoss resolved"]


def test_the_second_episode_of_an_alert_is_told_once(watched: Watched) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    watched.write(NAN, 42)
    watched.look(42)
    assert watched.told() == ["NonFiniteLoss firing"]
    watched.kill()
    watched.write(bars(43, 900) + NAN, 900)
    watched.begin(901)
    assert watched.told() == ["NonFiniteLoss resolved", "NonFiniteLoss firing"]
    watched.kill()
    watched.begin(905)
    assert watched.told() == []


def test_what_was_emptied_away_is_not_forgotten(watched: Watched) -> None:
    watched.write(bars(0, 40) + NAN, 40)
    watched.begin(41)
    watched.log.write_text("")
    watched.look(42)
    watched.kill()
    watched.begin(50)
    assert watched.exported("ldlm_train_step") == 39
    alerts = watched.pump.monitor.snapshot().alerts
    (alert,) = (each for each in alerts if each.name != "Watchdog")
    assert (alert.name, alert.active_at) == ("NonFiniteLoss", NOW + 40)


def test_bytes_that_are_gone_before_they_were_kept_are_counted(watched: Watched) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    watched.write(bars(40, 50), 50)
    watched.look(50)
    watched.kill()
    watched.log.unlink()
    watched.begin(55)
    assert watched.pump.follower.journal.lost_bytes == len(bars(40, 50).encode())


def test_alerts_reach_the_receivers_although_stdout_cannot_be_written(
    watched: Watched, monkeypatch
) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        watched.write(NAN, 42)
        watched.look(42)
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
    assert watched.told() == ["NonFiniteLoss firing"]


def test_a_turn_that_fails_is_done_again_after_the_restart(watched: Watched, monkeypatch) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    watched.write(NAN, 42)
    monkeypatch.setattr(Outbox, "add", broken)
    with pytest.raises(MemoryError):
        watched.look(42)
    monkeypatch.undo()
    watched.pump.close()
    watched.kill()
    watched.begin(43)
    assert watched.told() == ["NonFiniteLoss firing"]


def broken(*_: object) -> bool:
    raise MemoryError


def test_files_that_join_together_are_judged_once(watched: Watched) -> None:
    """The bell rang for one of them only."""
    watched.begin(0)
    others = [watched.log.with_name(f"train_2026012{n}_101500_node0.log") for n in (7, 8)]
    for other in others:
        other.write_text(bars(0, 5) + NAN)
        os.utime(other, (NOW + 1, NOW + 1))
    watched.pump.turn({others[0]}, NOW + 1)
    watched.kill()
    watched.begin(2)
    points = watched.pump.monitor.snapshot().points
    counted = [point.value for point in points if point.name == "ldlm_train_nonfinite_total"]
    assert sorted(counted) == [0, 0, 0, 0, 1, 1]


def test_a_file_that_was_renamed_and_read_to_its_end_is_not_read_again(watched: Watched) -> None:
    watched.write(bars(0, 40) + NAN, 40)
    watched.begin(41)
    watched.log.rename(f"{watched.log}.1")
    for second in (42, 110):
        watched.look(second)
    before = watched.pump.monitor.snapshot().monitor.bytes
    for second in (120, 121, 122):
        watched.kill()
        watched.begin(second)
    assert watched.pump.monitor.snapshot().monitor.bytes == before
    assert watched.told().count("NonFiniteLoss firing") == 1


def test_the_writer_of_a_renamed_file_that_was_given_up_may_wake_after_a_restart(
    watched: Watched,
) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    renamed = watched.log.rename(f"{watched.log}.1")
    for second in (42, 110):
        watched.look(second)
    for second in (111, 112):
        watched.kill()
        watched.begin(second)
    with renamed.open("a") as file:
        file.write(NAN)
    os.utime(renamed, (NOW + 113, NOW + 113))
    watched.look(113)
    assert watched.told() == ["TrainingStalled firing", "NonFiniteLoss firing"]


def test_a_record_that_was_shown_unfinished_is_not_shown_again_after_a_restart(
    watched: Watched,
) -> None:
    later = bars(7, 8)
    watched.write(bars(0, 7) + later[:70], 7)
    watched.begin(8)
    watched.look(10)
    renamed = watched.log.rename(f"{watched.log}.1")
    watched.write(bars(8, 12), 12)
    watched.look(12)
    watched.kill()
    watched.begin(13)
    with renamed.open("a") as file:
        file.write(later[70:])
    os.utime(renamed, (NOW + 14, NOW + 14))
    watched.look(14)
    # To whoever saw both files all the time this is a smaller step after a greater: a resume.
    assert watched.exported("ldlm_train_last_progress_timestamp_seconds") == NOW + 14


def test_a_clock_that_was_set_back_is_no_clock_to_go_on_with(watched: Watched, caplog) -> None:
    later = time.time() + 1e6 - NOW
    watched.write(bars(0, 40), 40)
    watched.begin(later)
    watched.kill()
    watched.begin(41)
    assert watched.pump.monitor.clock == NOW + 41
    assert "of the future" in caplog.text


def test_what_a_reload_took_up_goes_on_and_what_it_did_not_does_not(watched: Watched) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    named = Settings(files=(str(watched.folder / "*.log"),), companions=False, run="mine")
    watched.pump.reload(named)
    watched.look(42)
    watched.kill()
    watched.begin(43, run="mine")
    assert [run.name for run in watched.pump.monitor.snapshot().runs] == ["mine"]


def test_a_file_that_is_emptied_while_it_is_read_on_is_read_to_its_end(watched: Watched) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    (position,) = watched.pump.follower.positions()
    watched.write(bars(40, 80), 80)
    found = Continuation.of(position, NOW, Journal())
    watched.log.write_text("new\n")
    assert b"new\n" in b"".join(chunk.data for chunk in found.chunks(NOW))
    found.close()


@pytest.mark.parametrize("setting", [{"evaluation_interval": 1.0}, {"run": "mine"}])
def test_under_other_settings_the_logs_are_read_anew(watched: Watched, setting) -> None:
    watched.write(bars(0, 40) + NAN, 40)
    watched.begin(41)
    assert watched.told() == ["NonFiniteLoss firing"]
    watched.kill()
    watched.write(bars(40, 45), 45)
    watched.begin(46, **setting)
    assert watched.exported("ldlm_train_step") == 44
    assert watched.exported("ldlm_train_nonfinite_total") is not None


def test_a_damaged_state_is_said_and_the_logs_are_read_anew(watched: Watched, caplog) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    stamp = watched.pump.stamp
    watched.ledger.commit([], {}, {}, checkpoint=(stamp, b"\x80\x05nonsense"))
    watched.kill()
    watched.begin(46)
    assert watched.exported("ldlm_train_step") == 39
    (said,) = [r.getMessage() for r in caplog.records if "reading the logs anew" in r.getMessage()]
    assert "cannot be used" in said


class Exploit:
    """Unpickled by pickle itself, it would run a command."""

    def __init__(self, make: Callable[..., object], *arguments: object) -> None:
        self._reduced = (make, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._reduced


@pytest.mark.parametrize(
    "thing",
    [
        Exploit(os.system, "true"),
        Exploit(getattr, "a", "upper"),
        Exploit(eval, "1"),
        Exploit(thaw, b"", None),
        {"no": "checkpoint"},
    ],
)
def test_only_a_checkpoint_comes_out_of_a_checkpoint(thing: object) -> None:
    with pytest.raises(CheckpointError):
        thaw(pickle.dumps(thing), assemble(Settings()))


def test_a_foreign_module_that_is_called_like_one_of_ours_is_not_asked(
    tmp_path: Path, monkeypatch
) -> None:
    """PyPI has a package `parse`, and anybody may have a `records.py`."""
    (tmp_path / "records.py").write_text(
        "import pathlib\nclass Event:\n    def __init__(self, path): pathlib.Path(path).touch()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made = tmp_path / "made"
    with pytest.raises(CheckpointError, match="does not belong here"):
        thaw(f"crecords\nEvent\n(V{made}\ntR.".encode(), assemble(Settings()))
    assert not made.exists()


def test_nothing_is_started_or_opened_by_what_stands_in_a_checkpoint(tmp_path: Path) -> None:
    made = tmp_path / "made.sqlite"
    for call in (
        f"ldlm_monitor.state.database\nDatabase\n(V{made}\nV\nt",
        "ldlm_monitor.source.follow\nFollower\n(t",
    ):
        with pytest.raises(CheckpointError, match="does not belong here"):
            thaw(f"c{call}R.".encode(), assemble(Settings()))
    assert not made.exists()


LOGS = sorted([*RUNS.glob("upstream/*/train_logs/*.log"), *RUNS.glob("elastic/*.log")])


@pytest.mark.parametrize(
    "log",
    [pytest.param(log, marks=[pytest.mark.long] if i % 8 else []) for i, log in enumerate(LOGS)],
    ids=lambda log: log.name,
)
def test_a_monitor_that_was_frozen_amid_a_genuine_log_goes_on_as_if_it_had_not_been(log) -> None:
    """In pieces of a few lines, so that every kind of record is open at some freezing."""
    undisturbed, frozen = assemble(Settings()), assemble(Settings())
    lines = log.read_bytes().splitlines(keepends=True)
    offset, pitch = 0, max(1, len(lines) // 60)
    for index in range(0, len(lines), pitch):
        data = b"".join(lines[index : index + pitch])
        chunk = Chunk("train_node0.log", (1, 2, 0), offset, index + 1, data)
        offset += len(data)
        frozen = thawed(frozen)
        now = NOW + index * 0.5
        assert frozen.feed(chunk, now) == undisturbed.feed(chunk, now)
        assert frozen.tick(now + 0.1) == undisturbed.tick(now + 0.1)
    ends = [each.finish(NOW + len(lines), ["train_node0.log"]) for each in (frozen, undisturbed)]
    assert ends[0] == ends[1]
    assert repr(frozen.snapshot()) == repr(undisturbed.snapshot())


def thawed(monitor: Monitor) -> Monitor:
    return thaw(Checkpoint(monitor, [], [], 0).freeze(), assemble(Settings())).monitor
