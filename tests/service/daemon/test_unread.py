"""No silence is judged of bytes that wait to be read: the monitor was late, and not the run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.finished.playback.recording import Recorder
from ldlm_monitor.finished.playback.timed_inputs import of_recording
from ldlm_monitor.judge.core.assemble import assemble
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.logs.source.file_system_reader import MountReader
from ldlm_monitor.service.config import Settings
from tests.service.daemon.test_restart import Watched
from tests.service.daemon.watching import NOW, append

LIMIT = 30.0
STALL = Stall(limit_seconds={"running": LIMIT, "starting": LIMIT})
ROW = '{"step": %d, "loss": 2.5, "total_steps": 100000, "text": "%s"}\n'


STAMPED = '{"step": %d, "time": %f, "loss": 2.5, "total_steps": 100000}\n'


def rows(first: int, last: int, text: str = "") -> str:
    return "".join(ROW % (step, text) for step in range(first, last))


class Judged:
    """A monitor without files, and the stalls that it reported."""

    def __init__(self) -> None:
        self.monitor = assemble(Settings(files=("x.log",), stall=STALL))
        self.found: list[tuple[str, str]] = []
        self._ends: dict[str, int] = {}

    def feed(self, run: str, text: str, at: float) -> None:
        path, data = f"{run}.jsonl", text.encode()
        start = self._ends.get(path, 0)
        self._ends[path] = start + len(data)
        self._note(self.monitor.feed(Chunk(path, (1, 1, 0), start, 1, data), NOW + at))

    def hold(self, **read_to: float) -> None:
        self.monitor.hold({run: NOW + at for run, at in read_to.items()})

    def tick(self, at: float) -> None:
        self._note(self.monitor.tick(NOW + at))

    def _note(self, transitions) -> None:
        self.found += [
            (each.labels["run"], each.state)
            for each in transitions
            if each.alert == "TrainingStalled"
        ]


@pytest.fixture
def judged() -> Judged:
    judged = Judged()
    for at in range(0, 60, 2):
        for run in "ab":
            judged.feed(run, rows(at, at + 2), at)
    return judged


def test_silence_counts_up_to_what_was_read_and_other_runs_are_judged(judged: Judged) -> None:
    judged.hold(a=60)
    judged.tick(150)
    assert judged.found == [("b", "firing")]
    judged.feed("a", rows(60, 70), 150)
    judged.hold()
    judged.tick(170)
    assert {run for run, _ in judged.found} == {"b"}


def test_a_run_that_hangs_is_reported_as_soon_as_it_is_read(judged: Judged) -> None:
    judged.hold(a=60, b=60)
    judged.tick(150)
    assert judged.found == []
    judged.hold(b=60)
    judged.tick(150.5)
    assert judged.found == [("a", "firing")]
    judged.hold(b=100)
    judged.tick(151)
    assert {run for run, _ in judged.found} == {"a", "b"}


def test_a_stall_that_was_reported_is_not_taken_back_by_bytes_that_wait(judged: Judged) -> None:
    judged.tick(100)
    firing = [("a", "firing"), ("b", "firing")]
    assert sorted(judged.found) == firing
    judged.hold(a=10, b=10)
    for at in range(105, 400, 5):
        judged.tick(at)
    judged.hold()
    judged.tick(400)
    assert sorted(judged.found) == firing


def test_a_limit_is_not_learned_from_time_that_was_not_read(judged: Judged) -> None:
    assert judged.monitor.snapshot().runs[0].stall_limit_seconds == LIMIT
    judged.monitor.runs.set_stall(Stall())
    before = judged.monitor.snapshot().runs[0].stall_limit_seconds
    for at in (300, 600):
        judged.hold(a=at - 240)
        judged.feed("a", rows(at, at + 2), at)
        judged.hold()
        judged.feed("a", rows(at + 2, at + 4), at + 2)
    assert judged.monitor.snapshot().runs[0].stall_limit_seconds == before


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    watched.write(rows(0, 40), 40)
    watched.begin(41, stall=STALL)
    for second in range(42, 60):
        watched.write(rows(second, second + 1), second)
        watched.look(second)
    yield watched
    watched.kill()


def stalls(watched: Watched) -> list[str]:
    return [each for each in watched.reported() if "TrainingStalled" in each]


@pytest.mark.parametrize("text", ["", "x" * 900], ids=["short", "long"])
def test_what_waits_is_read_before_time_is_judged_though_it_takes_many_turns(
    watched: Watched, text: str
) -> None:
    watched.write(rows(60, 900, text), 900)
    watched.look(900)
    second = 900.0
    while watched.pump.behind():
        second += 3  # each of the turns takes long
        watched.look(second)
    watched.look(second)
    assert watched.exported("ldlm_train_step") == 899
    assert stalls(watched) == []
    watched.look(second + 20)
    assert stalls(watched) == []
    watched.look(second + LIMIT + 4)
    assert stalls(watched) == ["TrainingStalled firing"]


def test_a_hang_during_which_the_monitor_was_late_is_reported_at_its_next_look(
    watched: Watched,
) -> None:
    watched.look(900)
    assert stalls(watched) == ["TrainingStalled firing"]


def test_lines_without_a_step_do_not_hide_a_hang_though_each_look_is_late(
    watched: Watched,
) -> None:
    for second in range(62, 110, 3):
        watched.write("waiting for rank 3\n" * 200, second)
        watched.look(second)
    assert stalls(watched) == ["TrainingStalled firing"]


def test_a_file_that_grows_faster_than_it_is_read_does_not_hide_a_hang(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = MountReader.submit
    monkeypatch.setattr(MountReader, "submit", lambda *given: read(*given[:3], 1, *given[4:]))
    for second in range(62, 140, 3):
        watched.write("waiting for rank 3\n" * 20_000, second)
        watched.look(second)
    assert watched.pump.behind() > 0
    assert stalls(watched) == ["TrainingStalled firing"]


def plain(first: int, last: int) -> str:
    return "".join(f"step {step}/100000 loss 2.5 lr 1e-4\n" for step in range(first, last))


@pytest.mark.parametrize("rows", [rows, plain])
def test_what_was_read_late_is_no_stall_after_a_kill(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, rows: Callable[[int, int], str]
) -> None:
    monkeypatch.setattr("ldlm_monitor.service.daemon.pump.COMMIT_SECONDS", 1000.0)
    watched.look(62)
    watched.write(rows(63, 211), 211)
    watched.look(211)  # a reading, or a stop, took as long
    assert stalls(watched) == []
    watched.kill()
    watched.write(rows(211, 220), 220)
    watched.begin(220, stall=STALL)
    watched.look(221)
    assert stalls(watched) == []
    watched.look(221 + LIMIT)
    assert stalls(watched) == ["TrainingStalled firing"]


@pytest.mark.parametrize("rows", [rows, plain])
@pytest.mark.parametrize("seconds", [1, 10])
def test_what_was_written_while_no_monitor_ran_is_no_stall(
    tmp_path: Path, rows: Callable[[int, int], str], seconds: int
) -> None:
    watched, other = Watched(tmp_path), tmp_path / "other.log"

    def write(first: int, last: int) -> None:
        """Steps of both, one in `seconds`; those of the other have times."""
        watched.write(rows(first, last), last * seconds)
        at = [(step, NOW + step * seconds) for step in range(first, last)]
        append(other, "".join(STAMPED % each for each in at), NOW + last * seconds)

    write(0, 40)
    watched.begin(41 * seconds)
    for step in range(41, 71):
        write(step, step + 1)
        watched.look(step * seconds)
    for step in (171, 271):
        watched.kill()
        write(step - 100, step)
        watched.begin(step * seconds + 0.5)
        watched.look(step * seconds + 1.5)
        assert stalls(watched) == []
    watched.look(271 * seconds + 10 * max(LIMIT, seconds))
    assert set(stalls(watched)) == {"TrainingStalled firing"}
    watched.kill()


@pytest.mark.parametrize("commit_seconds", [10.0, 1000.0])
def test_a_kill_before_all_of_a_late_reading_was_read_makes_no_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit_seconds: float
) -> None:
    monkeypatch.setattr("ldlm_monitor.service.daemon.pump.COMMIT_SECONDS", commit_seconds)
    watched = Watched(tmp_path)
    logs = [tmp_path / f"{name}.log" for name in "abcd"]

    def write(first: int, last: int) -> None:
        """Steps of two runs with times, and of two without."""
        stamped = "".join(STAMPED % (step, NOW + step) for step in range(first, last))
        for log in logs[:2]:
            append(log, stamped, NOW + last)
        for log in logs[2:]:
            append(log, plain(first, last), NOW + last)

    write(0, 40)
    watched.begin(41)
    for step in range(41, 71):
        write(step, step + 1)
        watched.look(step)
    write(71, 271)
    read = MountReader.submit
    monkeypatch.setattr(MountReader, "submit", lambda *given: read(*given[:3], 1, *given[4:]))
    watched.look(271)
    assert watched.pump.behind() > 0
    watched.kill()
    monkeypatch.undo()
    write(271, 280)
    watched.begin(280)
    watched.look(281)
    assert stalls(watched) == []
    watched.kill()


def test_a_recorded_hold_takes_no_pace_away(judged: Judged, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.rec", "*", NOW)
    for at in range(0, 60, 2):
        text = rows(at, at + 2).encode()
        recorder.fed(Chunk("a.jsonl", (1, 1, 0), at * len(text) // 2, 1, text), "a", NOW + at)
    recorder.passed(NOW + 60, read_to={"a": NOW + 59})
    recorder.close()
    reel = of_recording(tmp_path / "a.rec", Settings(files=("x.log",), stall=STALL), tmp_path)
    for piece in reel.pieces:
        piece.play()
    held, (played,) = judged.monitor.runs.get("a"), reel.monitor.runs
    assert held is not None
    assert played.progress.step_seconds == held.progress.step_seconds


def test_a_recording_of_a_late_monitor_plays_without_a_stall(
    watched: Watched, tmp_path: Path
) -> None:
    place = tmp_path / "late.rec"
    watched.pump.recorder = Recorder(place, "*.log", NOW + 60)
    watched.write(rows(60, 62), 60)
    watched.look(60)
    watched.pump.leave_out(100)
    watched.write(rows(62, 300), 200)
    for second in (200.0, 201.0, 202.0):
        watched.look(second)
    watched.pump.recorder.close()
    reel = of_recording(place, Settings(files=("x.log",), stall=STALL), tmp_path)
    found = [each for piece in reel.pieces for each in piece.play()]
    assert {each.alert for each in found if each.state == "firing"} <= {"MonitorAlive", "Watchdog"}
    assert reel.monitor.snapshot().runs[0].step == 299
