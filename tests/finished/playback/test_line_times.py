"""A finished text log comes at the times of its lines, with its bars between them."""

import os
from itertools import chain
from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

WRITTEN = 1_780_000_000.0  # 2026-05-28 20:26:40 UTC
CRASH = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 3, in <module>\n'
    "ValueError: bad batch\n"
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def played(path: Path, text: str, written: float = WRITTEN) -> Replay:
    path.write_text(text)
    os.utime(path, (written, written))
    return Replay(Settings(files=(str(path),), companions=False))


def pieces(replay: Replay) -> list[tuple[float, int]]:
    """Seconds before the last write, and byte, of each piece, and of each part of one."""
    played = [(when, chunk) for when, chunk, _ in replay.history.play() if chunk.data]
    replay.history.files.clear()
    parts = chain.from_iterable(chunk.parts or [(when, chunk)] for when, chunk in played)
    return [(when - WRITTEN, part.offset) for when, part in parts]


def line(clock: str, text: str) -> str:
    return f"2026-05-28 {clock} - INFO - {text}\n"


def test_lines_without_a_zone_come_at_their_times(tmp_path: Path) -> None:
    text = line("20:20:00", "a") + "b\n" + line("20:20:30", "c") + line("20:26:40", "d")
    replay = played(tmp_path / "a.log", text)
    size = len(line("20:20:00", "a"))
    assert pieces(replay) == [(-400, 0), (-370, size + 2), (0, 2 * size + 2)]


def test_a_run_that_is_silent_between_two_lines_has_stalled_there(tmp_path: Path) -> None:
    steps = "".join(
        line(
            f"20:{minute:02}:{second:02}",
            f"step {60 * minute + second + 7} loss 2.{second} lr 3e-4",
        )
        for minute in range(5)
        for second in range(60)
    )
    replay = played(tmp_path / "a.log", steps + line("20:26:40", "done"))
    found = [each for each in replay.transitions() if each.state == "firing"]
    stalled = next(each for each in found if each.alert == "TrainingStalled")
    assert stalled.time == pytest.approx(WRITTEN - 1301 + 30, abs=2)  # the least limit


@pytest.mark.parametrize(("epoch", "stalls"), [(0, False), (4, True)])
def test_the_pause_before_another_launch_belongs_to_no_launch(
    tmp_path: Path, epoch: int, stalls: bool
) -> None:
    """A step that falls within an epoch may follow a hang; an epoch that falls is a new launch."""
    steps = "".join(
        line(f"10:00:{second:02}", f"Epoch: 4, step: {100 + second}, loss: 2.{second}, lr: 3e-4")
        for second in range(60)
    )
    again = line("20:26:40", f"Epoch: {epoch}, step: 1, loss: 3.2, lr: 3e-4")
    replay = played(tmp_path / "a.log", steps + again)
    assert ("TrainingStalled" in {each.alert for each in replay.transitions()}) is stalls


def test_bars_lie_between_the_lines_around_them(tmp_path: Path) -> None:
    """The last bar was drawn before the last line, and not when the file was last written."""
    bars = "".join(
        f"Training:  {second}%|# | {second}/100 [00:{second:02}<01:00, 1.0it/s, Loss=1.0]\r"
        for second in range(30)
    )
    text = line("20:20:00", "begin") + bars + "\n" + line("20:21:00", "saved") + CRASH
    text += line("20:26:40", "end")
    whens = {when for when, _ in pieces(played(tmp_path / "a.log", text))}
    assert {-400.0, -340.0, 0.0} <= whens
    assert sum(-400 <= when <= -340 for when in whens) > 25
    assert not any(-340 < when < 0 for when in whens)


def test_bars_of_a_copied_log_begin_soon_after_the_line_above_them(tmp_path: Path) -> None:
    bars = "".join(
        f"Training:  {second}%|# | {second}/100 [00:{second:02}<01:00, 1.0it/s, Loss=1.0]\r"
        for second in range(30)
    )
    found = [when for when, _ in pieces(played(tmp_path / "a.log", line("10:00:00", "a") + bars))]
    assert found[-1] - found[0] < 120


def test_two_launches_days_apart_lie_days_apart(tmp_path: Path) -> None:
    bars = "".join(
        f"Training:  {second}%|# | {second}/100 [00:{second:02}<01:00, 1.0it/s, Loss=1.0]\r"
        for second in range(20)
    )
    text = "2026-05-26 20:26:00 - INFO - begin\n" + bars + "\n" + line("20:26:00", "begin") + bars
    found = [when for when, _ in pieces(played(tmp_path / "a.log", text))]
    first, second = (
        [when for when in found if when < -86400],
        [when for when in found if when > -86400],
    )
    assert max(first) - min(first) == pytest.approx(19, abs=21)
    assert max(second) - min(second) == pytest.approx(19, abs=21)


def test_a_log_without_any_clock_has_the_time_of_its_last_write(tmp_path: Path) -> None:
    replay = played(tmp_path / "a.log", "step 1 loss 2.0\nstep 2 loss 1.9\n")
    assert pieces(replay) == [(0, 0)]


def test_lines_without_times_are_spread_up_to_the_launchers_report(tmp_path: Path) -> None:
    """Only the launcher prints times: the crash is near its report, and no step stalled."""
    steps = "".join(f"step {step} loss {3 - step / 5000:.4f} lr 3e-4\n" for step in range(3000))
    start = "W0528 17:20:00.000000 14 torch/distributed/run.py:874] \n"
    agent = (
        "E0528 20:26:40.000000 14 torch/distributed/elastic/multiprocessing/api.py:1002] failed "
        "(exitcode: 1) local_rank: 0 (pid: 15) of binary: /usr/bin/python3\n"
    )
    found = [
        (each.alert, each.time)
        for each in played(tmp_path / "a.log", start + steps + CRASH + agent).transitions()
        if each.state == "firing" and not each.is_heartbeat
    ]
    ((alert, when),) = found
    assert (alert, when) == ("TrainingCrashed", pytest.approx(WRITTEN, abs=5))


@pytest.mark.parametrize(
    ("first", "rings"),
    [("args: Namespace(batch_size=4, epochs=100, seed=1)", False), ("reading more data", True)],
)
def test_a_silence_that_ends_with_the_settings_of_a_launch_is_no_stall(
    tmp_path: Path, first: str, rings: bool
) -> None:
    """A program prints its settings as it starts: the one before is gone."""

    def launch(hour: int, words: str) -> str:
        clock = f"{hour}:00:"
        steps = (line(f"{clock}{at:02}", f"step {at} loss 2.{at} lr 3e-4") for at in range(9, 60))
        return line(f"{clock}01", words) + "".join(steps)

    replay = played(tmp_path / "a.log", launch(17, first) + launch(20, first))
    fired = {each.alert for each in replay.transitions() if each.state == "firing"}
    assert ("TrainingStalled" in fired) is rings
