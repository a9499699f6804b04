"""A wall clock that jumps: time goes on as it does, and nothing is silent that was not."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ldlm_monitor.service.daemon.daemon import _judging_time
from tests.service.daemon.test_judging_clock import Clocks, clocks
from tests.service.daemon.test_restart import Watched
from tests.service.daemon.watching import NOW

__all__ = ["clocks"]  # a fixture
HOUR = 3600.0


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
    timed.train(62, stamped=True)
    for _ in range(4):
        timed.clocks.wait(20)
        timed.turn()
    assert timed.reported() == ["TrainingStalled firing"]


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("jump", [-HOUR, HOUR, -90.0, 90.0])
@pytest.mark.slice(3)
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
