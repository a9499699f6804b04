"""Local stamps: over a change of the clocks, from another zone, of nodes minutes apart."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from ldlm_monitor.service.config import Settings
from tests.service.daemon.watching import Watching, append

BERLIN = "Europe/Berlin"
PITCH = 10.0
STEPS = 203
SUMMER, AUTUMN, SPRING = (
    datetime(2026, month, day, 0, 45, tzinfo=UTC).timestamp()
    for month, day in ((6, 1), (10, 25), (3, 29))
)
"""When the logs begin; the clocks change a quarter of an hour later, or not."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the monitor's zone."""

    def be(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield be
    monkeypatch.undo()
    time.tzset()


class Training:
    """A run of a node or two that step every `PITCH` seconds from `begin` (Unix seconds) on.

    `slow`: by how many seconds the second node's clock is slow.
    """

    def __init__(self, folder: Path, zone: str, begin: float, slow: float | None) -> None:
        self.folder, self.zone, self.begin = folder, ZoneInfo(zone), begin
        self.clocks = [0.0] if slow is None else [0.0, slow]
        self.watching = Watching()

    def write(self, first: int, last: int) -> None:
        for node, slow in enumerate(self.clocks):
            lines = []
            for step in range(first, last):
                shown = datetime.fromtimestamp(self.at(step) - slow, self.zone)
                loss = f"loss {2.5 + step % 7 / 100} lr 1e-4"
                lines.append(f"{shown:%Y-%m-%d %H:%M:%S} INFO step {step}/9000 {loss}\n")
            append(self.folder / f"run_node{node}.log", "".join(lines), self.at(last - 1))

    def at(self, step: int) -> float:
        return self.begin + step * PITCH

    def start(self) -> None:
        pattern = str(self.folder / "*.log")
        state = self.folder / ".state"
        self.watching.start(Settings(files=(pattern,), companions=False), state)

    def look(self, now: float) -> None:
        self.watching.pump.turn(None, now)

    def sent(self) -> list[str]:
        return [each for each in self.watching.reported() if "Watchdog" not in each]


@pytest.mark.parametrize(
    ("zones", "begin", "slow"),
    [
        pytest.param((BERLIN, BERLIN), AUTUMN, None, id="an hour comes twice"),
        pytest.param((BERLIN, BERLIN), SPRING, None, id="an hour is left out"),
        pytest.param(("UTC", "America/Los_Angeles"), SUMMER, None, id="a zone behind"),
        pytest.param(("UTC", "Asia/Tokyo"), SUMMER, None, id="a zone ahead"),
        pytest.param(("Asia/Kolkata", "Asia/Karachi"), SUMMER, None, id="half an hour behind"),
        pytest.param(("UTC", "UTC"), SUMMER, 180.0, id="a node three minutes slow"),
        pytest.param(("UTC", "UTC"), SUMMER, -180.0, id="a node three minutes fast"),
    ],
)
@pytest.mark.slice(3)
def test_what_local_clocks_show_is_no_stall_and_moves_no_step(
    tmp_path: Path,
    here: Callable[[str], None],
    zones: tuple[str, str],
    begin: float,
    slow: float | None,
) -> None:
    """Read at the start, then live, then written while nothing ran; `zones`: ours, the writer's."""
    here(zones[0])
    training = Training(tmp_path, zones[1], begin, slow)
    training.write(0, STEPS)
    training.start()
    training.look(training.at(STEPS) - PITCH + 1)
    (run,) = training.watching.pump.snapshot.runs
    assert run.started_at == pytest.approx(begin, abs=2)
    assert run.last_progress_at == pytest.approx(training.at(STEPS - 1), abs=2)
    assert run.stall_limit_seconds == 8 * PITCH
    for step in range(STEPS, STEPS + 20):
        training.write(step, step + 1)
        training.look(training.at(step) + 0.5)
        training.look(training.at(step) + 5)
    training.watching.kill()
    training.write(STEPS + 20, STEPS + 400)
    training.start()
    training.look(training.at(STEPS + 400) - PITCH + 1)
    assert training.sent() == []
    training.look(training.at(STEPS + 420))
    training.look(training.at(STEPS + 421))
    assert training.sent() == ["TrainingStalled firing"]
    training.watching.close()
