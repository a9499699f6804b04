"""A daemon that is started again goes on where it stood: the real pump, time as an argument."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.text.format import byte_size
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.notices import Journal
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.notify.outbox import Outbox
from tests.service.daemon.watching import NOW, RUN, Watching, append, bars

NAN = "WARNING: Invalid text_loss detected: nan\n"


class Watched(Watching):
    """A pump on one log, and what it reported; a bar's step is its second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / f"{RUN}_node0.log"
        self.started = NOW

    def write(self, text: str, second: float) -> None:
        append(self.log, text, NOW + second)

    def begin(self, second: float, **settings: object) -> None:
        files = {"files": (str(self.folder / "*.log"),)} | settings
        wanted = Settings(companions=False, **files)
        self.start(wanted, self.folder / "state")
        self.look(second)

    def look(self, second: float) -> None:
        self.pump.turn(None, NOW + second)

    def exported(self, name: str) -> float | None:
        points = self.pump.monitor.snapshot().points
        return next((point.value for point in points if point.name == name), None)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.kill()


def test_what_happened_while_it_was_down_is_told_even_if_it_is_over(watched: Watched) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    watched.kill()
    watched.write(NAN + bars(40, 900), 900)
    watched.begin(901)
    assert watched.reported() == ["NonFiniteLoss firing", "NonFiniteLoss resolved"]


def test_the_second_episode_of_an_alert_is_told_once(watched: Watched) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    watched.write(NAN, 42)
    watched.look(42)
    assert watched.reported() == ["NonFiniteLoss firing"]
    watched.kill()
    watched.write(bars(43, 900) + NAN, 900)
    watched.begin(901)
    assert watched.reported() == ["NonFiniteLoss resolved", "NonFiniteLoss firing"]
    watched.kill()
    watched.begin(905)
    assert watched.reported() == []


def others_than_watchdog(watched: Watched) -> list[tuple[str, str, float]]:
    """Name, state and start of the active alerts."""
    alerts = watched.pump.monitor.snapshot().alerts
    return [(a.name, a.state, a.active_at) for a in alerts if a.name != "Watchdog"]


def test_an_alert_whose_line_was_rotated_away_goes_on_until_its_rule_can_deny_it(
    watched: Watched,
) -> None:
    watched.write(bars(0, 40) + NAN, 40)
    watched.begin(41)
    assert watched.reported() == ["NonFiniteLoss firing"]
    watched.log.write_text("")
    watched.look(42)
    watched.kill()
    watched.begin(50)
    assert others_than_watchdog(watched) == [("NonFiniteLoss", "firing", NOW + 40)]
    watched.write(bars(41, 100), 100)
    watched.look(100)
    assert others_than_watchdog(watched) == [("NonFiniteLoss", "firing", NOW + 40)]
    for second in range(110, 1100, 10):
        watched.write(bars(second, second + 10), second)
        watched.look(second)
    assert watched.reported() == ["NonFiniteLoss resolved"]


def test_an_alert_of_which_no_file_is_left_ends_as_unknown(watched: Watched) -> None:
    watched.write(bars(0, 40) + NAN, 40)
    watched.begin(41)
    watched.log.unlink()
    watched.kill()
    for second in (50, 60):
        watched.begin(second)
        assert others_than_watchdog(watched) == [("NonFiniteLoss", "firing", NOW + 40)]
        if second == 50:
            watched.kill()
    watched.look(1100)
    assert others_than_watchdog(watched) == []
    assert watched.reported() == ["NonFiniteLoss firing", "NonFiniteLoss unknown"]


def test_bytes_that_are_gone_are_counted_and_said_once(watched: Watched, caplog) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    watched.write(bars(40, 50), 50)
    watched.look(50)
    watched.kill()
    watched.log.unlink()
    for second in (55, 57):
        watched.begin(second)
        if second == 55:
            watched.kill()
    assert caplog.text.count("rotated away or emptied") == 1
    assert f"{byte_size(len(bars(0, 50).encode()))} of this file" in caplog.text


def test_a_stall_of_a_log_without_times_keeps_its_start(watched: Watched) -> None:
    watched.write("step 0 loss 2.5\n", 0)
    watched.begin(0)
    for second in range(1, 60):
        watched.write(f"step {second} loss 2.{second:02d}\n", second)
        watched.look(second)
    watched.look(2000)
    before = others_than_watchdog(watched)
    # Without a total it may have ended: a warning.
    assert [each[:2] for each in before] == [("TrainingStalled", "firing")]
    assert watched.reported() == ["TrainingStalled firing"]
    os.utime(watched.log, (NOW + 2001, NOW + 2001))  # a copy back, a chmod of the folder
    for second in (2010, 2020):
        watched.kill()
        watched.begin(second)
        assert others_than_watchdog(watched) == before
        assert watched.exported("ldlm_train_last_progress_timestamp_seconds") == NOW + 59
    assert watched.reported() == []


def test_a_stall_that_ended_while_nothing_ran_and_began_again_has_a_new_start(
    watched: Watched,
) -> None:
    watched.write(bars(0, 62), 62)
    watched.begin(62)
    watched.look(2000)
    (before,) = others_than_watchdog(watched)
    watched.kill()
    watched.write(bars(2010, 2050), 2050)
    watched.begin(9000)
    (after,) = others_than_watchdog(watched)
    assert (after[0], after[2] > NOW + 2050) == (before[0], True)
    assert watched.reported() == [
        "TrainingStalled firing",
        "TrainingStalled resolved",
        "TrainingStalled firing",
    ]


def test_the_counters_of_the_monitor_go_on(watched: Watched) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    before = watched.pump.monitor.own.view()
    watched.kill()
    watched.write(bars(40, 45) + "\n", 45)
    watched.begin(46)
    after = watched.pump.monitor.own.view()
    assert after.bytes - before.bytes == len(bars(40, 45).encode()) + 1
    assert (after.lines - before.lines, after.records["sample"] - before.records["sample"]) == (
        1,
        5,
    )
    assert after.evaluations > before.evaluations


def rows(*seconds: int, loss: str = "2.5") -> str:
    """JSON rows that have their times, of a step each second."""
    return "".join(
        f'{{"step": {second}, "time": {NOW + second}, "loss": {loss}}}\n' for second in seconds
    )


def test_rows_of_one_slot_count_once_although_some_were_judged_before(watched: Watched) -> None:
    """The commits are at 0 and 10 seconds: the rows after that are news."""
    watched.log = watched.folder / "train.jsonl"
    watched.write(rows(0), 0)
    watched.begin(0, files=(str(watched.log),))
    for second in range(1, 14):
        watched.write(rows(second), second)
        watched.look(second)
    watched.kill()
    watched.begin(14, files=(str(watched.log),))
    assert watched.pump.monitor.own.view().records["sample"] == 14


def test_an_old_nan_in_the_last_rows_is_news_after_a_restart_only_in_a_new_file(
    watched: Watched,
) -> None:
    watched.log = watched.folder / "train.jsonl"
    watched.write(rows(*range(60)) + rows(60, loss="NaN"), 60)
    for second in (7200, 7300):
        watched.begin(second, files=(str(watched.log),))
        assert watched.firing() >= {"NonFiniteLoss"}
        assert "NonFiniteLoss firing" not in watched.reported()
        watched.kill()
    other = watched.folder / "other.jsonl"
    append(other, rows(*range(60)) + rows(60, loss="NaN"), NOW + 7350)
    watched.begin(7400, files=(str(watched.folder / "*.jsonl"),))
    assert watched.reported().count("NonFiniteLoss firing") == 1


def test_a_log_that_is_longer_than_the_budget_is_read_in_part(watched: Watched) -> None:
    watched.write(bars(0, 2000) + NAN, 2000)
    watched.begin(2001, history_mib=0.05)
    assert watched.reported() == ["NonFiniteLoss firing"]
    for second in range(2002, 2500, 2):
        watched.write(bars(second, second + 2) + NAN, second)
        watched.look(second)
    watched.kill()
    watched.write(bars(2502, 2510), 2510)
    watched.begin(2511, history_mib=0.05)
    assert watched.exported("ldlm_train_step") == 2509
    assert others_than_watchdog(watched) == [("NonFiniteLoss", "firing", NOW + 2000)]
    assert watched.reported() == []


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
    assert watched.reported() == ["NonFiniteLoss firing"]


def test_a_turn_that_fails_is_done_again_after_the_restart(watched: Watched, monkeypatch) -> None:
    watched.write(bars(0, 40), 40)
    watched.begin(41)
    watched.write(NAN, 42)
    monkeypatch.setattr(Outbox, "add_all", broken)
    with pytest.raises(MemoryError):
        watched.look(42)
    monkeypatch.undo()
    watched.pump.close()
    watched.kill()
    watched.begin(43)
    assert watched.reported() == ["NonFiniteLoss firing"]


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
    assert watched.reported().count("NonFiniteLoss firing") == 1


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
    assert watched.reported() == ["TrainingStalled firing", "NonFiniteLoss firing"]


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
    # To one who saw both files all the time this is a smaller step after a greater: a resume.
    assert watched.exported("ldlm_train_last_progress_timestamp_seconds") == NOW + 14


def test_a_clock_that_was_set_back_is_no_clock_to_go_on_with(watched: Watched, caplog) -> None:
    later = time.time() + 1e6 - NOW
    watched.write(bars(0, 40), 40)
    watched.begin(later)
    watched.write(bars(40, 41), 40)
    watched.look(later + 1)
    watched.kill()
    watched.begin(41)
    assert watched.pump.monitor.clock == NOW + 41
    assert caplog.text.count("clock was set back") == 1
    watched.write(bars(40, 50), 50)
    watched.look(50)
    watched.kill()
    watched.begin(51)
    assert caplog.text.count("clock was set back") == 1


def test_a_cut_record_that_is_read_again_is_counted_once(watched: Watched) -> None:
    watched.write(bars(0, 40) + "x" * 2_000_000 + "\n" + bars(40, 50), 50)
    watched.begin(51)
    watched.look(52)
    counted = watched.pump.monitor.own.dropped["truncated"]
    assert counted > 0
    watched.kill()
    watched.begin(53)
    watched.look(54)
    assert watched.pump.monitor.own.dropped["truncated"] == counted


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
    found = Backlog.of(position, NOW, Journal())
    watched.log.write_text("new\n")
    assert b"new\n" in b"".join(chunk.data for chunk in found.chunks(NOW))
    found.tail.close()


@pytest.mark.parametrize("setting", [{"evaluation_interval": 1.0}, {"run": "mine"}])
def test_other_settings_change_nothing_about_a_restart(watched: Watched, setting) -> None:
    watched.write(bars(0, 40) + NAN, 40)
    watched.begin(41)
    assert watched.reported() == ["NonFiniteLoss firing"]
    watched.kill()
    watched.write(bars(40, 45), 45)
    watched.begin(46, **setting)
    assert watched.exported("ldlm_train_step") == 44
    assert watched.exported("ldlm_train_nonfinite_total") is not None
