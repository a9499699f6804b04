"""A wall clock that jumps: time goes on as it does, and nothing is silent that was not."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ldlm_monitor.service.daemon.daemon import _judging_time
from ldlm_monitor.service.daemon.judging_clock import JudgingClock, runnable_seconds
from tests.together.monitor.test_restart import Watched
from tests.together.watching import NOW

HOUR = 3600.0


class Clocks:
    """A wall clock that can be set, and one that only goes on."""

    def __init__(self) -> None:
        self.wall, self.steady = NOW, 100.0
        self.ran = 0.0
        self.judging = JudgingClock(lambda: self.wall, lambda: self.steady, lambda: self.ran)

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds
        self.ran += seconds

    def stop(self, seconds: float) -> None:
        """Time that passes while the monitor is stopped."""
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_a_clock_that_is_set_back_goes_on_until_it_is_right_again(clocks: Clocks, caplog) -> None:
    clocks.wait(60)
    clocks.wall -= HOUR
    found = []
    for _ in range(10):
        clocks.wait(5)
        found.append(clocks.judging.now() - NOW)
    assert found == pytest.approx([65 + 5 * n for n in range(10)])
    assert clocks.judging.ahead == pytest.approx(HOUR)
    assert len(caplog.records) == 1
    clocks.wall += HOUR / 2
    clocks.judging.now()
    assert clocks.judging.ahead == pytest.approx(HOUR / 2)
    assert len(caplog.records) == 1
    clocks.wall += HOUR / 2
    assert clocks.judging.now() == pytest.approx(clocks.wall)
    assert (clocks.judging.ahead, clocks.judging.skipped) == (0.0, 0.0)


def test_a_clock_that_is_set_forward_is_right_and_the_jump_is_known_once(
    clocks: Clocks, caplog
) -> None:
    clocks.wait(5)
    clocks.wall += HOUR
    assert clocks.judging.now() == pytest.approx(NOW + 5 + HOUR)
    assert clocks.judging.skipped == pytest.approx(HOUR)
    clocks.wait(5)
    clocks.judging.now()
    assert clocks.judging.skipped == 0.0
    assert len(caplog.records) == 1


def test_small_steps_are_followed_and_time_never_falls(clocks: Clocks, caplog) -> None:
    before = clocks.judging.now()
    for step in (-0.4, 0.3, -0.9, 0.8, -0.01):
        clocks.wall += step
        clocks.wait(0.1)
        now = clocks.judging.now()
        assert now >= before
        before = now
    assert caplog.records == []


def test_time_for_which_the_monitor_was_stopped_is_known_once(clocks: Clocks, caplog) -> None:
    clocks.wait(5)
    clocks.judging.now()
    clocks.stop(45)
    assert clocks.judging.now() == pytest.approx(NOW + 50)
    assert clocks.judging.skipped == pytest.approx(45)
    (said,) = caplog.messages
    assert "stopped" in said
    clocks.wait(60)  # a long turn that computes is none
    clocks.judging.now()
    assert clocks.judging.skipped == 0.0


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="Linux has it")
def test_a_thread_that_computes_or_waits_for_a_core_is_not_stopped() -> None:
    before, began = runnable_seconds(), time.monotonic()
    while (elapsed := time.monotonic() - began) < 0.2:
        pass
    assert elapsed - (runnable_seconds() - before) < 0.1


class Timed:
    """A pump whose turns are at a clock's time, as in the daemon."""

    def __init__(self, folder: Path, clocks: Clocks) -> None:
        self.watched = Watched(folder)
        self.clocks = clocks
        self.step = 0

    def train(self, seconds: int, *, stamped: bool) -> None:
        """A step a second, with its own time or without."""
        for _ in range(seconds):
            self.clocks.wait(1)
            moment = datetime.fromtimestamp(self.clocks.wall, UTC).isoformat()
            stamp = f"[{moment}] " if stamped else ""
            self.step += 1
            self.append(f"{stamp}step {self.step} loss 2.5\n")
            self.turn()

    def append(self, text: str) -> None:
        self.watched.write(text, self.clocks.wall - NOW)

    def turn(self) -> None:
        now = _judging_time(self.clocks.judging, self.watched.pump)
        self.watched.pump.turn(None, now)

    def idle(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clocks.wait(1)
            self.turn()

    def reported(self) -> list[str]:
        found = self.watched.reported()
        return [each for each in found if "stopped" not in each]


@pytest.fixture
def timed(tmp_path: Path, clocks: Clocks) -> Iterator[Timed]:
    timed = Timed(tmp_path, clocks)
    timed.watched.write("step 0 loss 2.5\n", 0)
    timed.watched.begin(0)
    yield timed
    timed.watched.kill()


@pytest.mark.parametrize("stamped", [True, False])
def test_a_stop_of_everything_is_no_stall_and_a_later_hang_is(timed: Timed, stamped: bool) -> None:
    """A frozen container, a paused machine: the training takes its next step after waking."""
    timed.train(60, stamped=stamped)
    timed.clocks.stop(600)
    timed.turn()
    timed.idle(5)
    timed.train(60, stamped=stamped)
    assert timed.reported() == []
    timed.idle(60)
    assert timed.reported() == ["TrainingStalled firing"]
    timed.clocks.stop(600)
    timed.turn()
    timed.idle(10)
    assert timed.reported() == []


def test_a_hang_is_reported_though_each_turn_of_a_starved_monitor_takes_long(timed: Timed) -> None:
    timed.train(60, stamped=True)
    for _ in range(4):
        timed.clocks.wait(20)
        timed.turn()
    assert timed.reported() == ["TrainingStalled firing"]


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("jump", [-HOUR, HOUR, -90.0, 90.0])
def test_a_jump_of_the_clock_is_no_stall_and_fires_nothing_twice(
    timed: Timed, jump: float, stamped: bool
) -> None:
    timed.train(60, stamped=stamped)
    timed.append(f"step {timed.step + 1} loss nan\n")
    timed.turn()
    assert timed.reported() == ["NonFiniteLoss firing"]
    timed.clocks.wall += jump
    before = timed.watched.pump.snapshot.version
    timed.train(120, stamped=stamped)
    assert not [each for each in timed.reported() if "firing" in each]
    snapshot = timed.watched.pump.snapshot
    assert snapshot.version > before
    assert snapshot.runs[0].step == timed.step
    timed.idle(600)
    assert "TrainingStalled firing" in timed.reported()
