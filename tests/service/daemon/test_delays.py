"""How soon the picture that `/metrics` and the screen show has what was written last."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.logs.source.split import PEEK_SECONDS
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.dispatcher import Dispatcher
from ldlm_monitor.service.daemon.pictures import SNAPSHOT_SECONDS
from tests.service.daemon.watching import NOW, PollingWaker, Watching, append


class Followed(Watching):
    """A pump on one log, whose turns come when the pump asks for them."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "app.log"
        settings = Settings(files=(str(self.log),), companions=False)
        self.start(settings, folder, receivers=())
        self.now = NOW
        self.pump.turn(None, self.now)

    def write(self, text: str, seconds: float) -> None:
        """Append `seconds` later; the file system reports the change at once."""
        self.now += seconds
        with self.log.open("a") as file:
            file.write(text)
        self.pump.turn({self.log}, self.now)

    def wait(self) -> float:
        """Take the turn that the pump asked for; how many seconds later it was."""
        pause = self.pump.pause(self.now)
        self.now += pause
        self.pump.turn(set(), self.now)
        return pause

    @property
    def step(self) -> int | None:
        runs = self.pump.snapshot.runs
        return runs[0].step if runs else None


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    # Pictures take no time, however busy the machine is: a slow one is taken more seldom.
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    followed = Followed(tmp_path)
    yield followed
    followed.close()


def row(step: int) -> str:
    return json.dumps({"step": step, "loss": 2.0}) + "\n"


def test_the_last_row_of_a_burst_is_shown_with_the_next_picture(followed: Followed) -> None:
    followed.write(row(1), 0.0)
    followed.wait()
    followed.write(row(2), SNAPSHOT_SECONDS)
    followed.write(row(3), 0.01)
    assert followed.step == 2
    assert followed.wait() <= SNAPSHOT_SECONDS
    assert followed.step == 3


def test_a_bar_without_its_end_is_shown_once_it_stands(followed: Followed) -> None:
    followed.write("\rTraining:   1%| | 7/950 [00:00<03:38,  4.34it/s, Loss=6.2621]", 0.5)
    waited = 0.0
    while followed.step is None and waited < 10.0:
        waited += followed.wait()
    assert followed.step == 7
    assert waited <= PEEK_SECONDS + SNAPSHOT_SECONDS


class WritesMeanwhile(PollingWaker):
    """Reports, at the first look of a turn, lines that were written since it began."""

    polling = False

    def __init__(self, lines: dict[Path, str]) -> None:
        self.lines = lines

    def wait(self, timeout: float) -> set[Path]:
        assert timeout == 0, "a turn waits for nothing"
        lines, self.lines = self.lines, {}
        for path, line in lines.items():
            append(path, line, NOW)
        return {*lines}


def test_a_failure_that_is_written_while_a_turn_judges_waits_for_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for the end of the turn, and what its file said before is judged before it."""
    monkeypatch.setattr("ldlm_monitor.service.daemon.pump.LOOK_SECONDS", 0.0)
    folder = tmp_path / "logs"
    logs = [folder / f"run{number}.jsonl" for number in range(9)]
    watching, steps = Watching(), list[dict[str, int | None]]()

    class Notes(Dispatcher):
        def dispatch(self, transitions: Iterable[Transition], *given: Any, **more: Any) -> None:
            found = [each for each in transitions if each.alert == "NonFiniteLoss"]
            runs = watching.pump.monitor.runs if found else ()
            steps.extend([{run.name: run.progress.step for run in runs}] * bool(found))
            super().dispatch(transitions, *given, **more)

    folder.mkdir()
    for log in logs:
        append(log, row(1), NOW)
    waker = WritesMeanwhile({})
    settings = Settings(files=(str(folder),), companions=False)
    watching.start(settings, tmp_path / "state", dispatcher=Notes, waker=waker)
    watching.pump.turn(None, NOW)
    for log in logs:
        append(log, row(2), NOW)
    late, calm = logs[6], logs[7]
    nan = '{"step": 3, "loss": NaN}\n'
    waker.lines = {late: nan, calm: row(3)}
    watching.pump.turn({*logs}, NOW + 1)
    assert len(steps) == 1
    assert sorted(step for step in steps[0].values() if step) == [1, 1, 1, 1, 1, 1, 1, 2, 3]
    assert watching.pump.pause(NOW + 1) <= 0.02, "what was left waits for the next turn"
    watching.pump.turn(set(), NOW + 2)
    shown = {run.name: run.progress.step for run in watching.pump.monitor.runs}
    assert sorted(step for step in shown.values() if step) == [2, 2, 2, 2, 2, 2, 2, 3, 3]
    watching.close()
