"""The clock of judging: it never goes back, and a monitor that was stopped saw no silence."""

import time
from pathlib import Path

import pytest

from ldlm_monitor.service.daemon.judging_clock import JudgingClock, runnable_seconds

NOW, HOUR = 1_769_681_700.0, 3600.0


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
