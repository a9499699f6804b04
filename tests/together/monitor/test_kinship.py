"""A file near a log is a companion only if something shows that one launch wrote both."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.service.config import Settings
from tests.service.daemon.watching import NOW, Watching, append

DAY = 86_400.0


def write(path: Path, text: str, at: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    append(path, text, at)
    return path


def callback_rows(started: float, steps: int, loss: float, run: str = "train", pid: int = 7) -> str:
    """A callback's file: a step a second, all losses finite."""
    head = {"schema": "ldlm.health/1", "type": "run", "run": run, "rank": 0, "world_size": 1}
    rows = [{**head, "time": started, "pid": pid, "host": "gpu1"}]
    for step in range(steps):
        value = loss - step / 1000
        rows.append({"type": "step", "step": step, "time": started + step, "loss": value})
    return "".join(json.dumps(row) + "\n" for row in rows)


def trainer_rows(steps: int, loss: float) -> str:
    """Rows of a trainer, without times."""
    return "".join(
        json.dumps({"epoch": 0, "step": step, "loss": loss - step / 1000}) + "\n"
        for step in range(steps)
    )


def lines(steps: range, lost_from: int, loss: float = 4.0) -> str:
    """A log that prints every step, without times; the loss is NaN from a step on."""
    return "".join(
        f"iter {step}: loss {'nan' if step >= lost_from else f'{loss - step / 1000:.4f}'}, "
        "time 1000.00ms, mfu 30.00%\n"
        for step in steps
    )


STRANGERS = {
    "an older run's callback": ("health_rank0.jsonl", callback_rows(NOW - DAY, 900, 1.2)),
    "an older run's rows": ("training_log.jsonl", trainer_rows(900, 1.2)),
    "an older run's folder": ("saved/old/training_log.jsonl", trainer_rows(900, 1.2)),
    "a longer run that began alike, as the seed was the same": (
        "health_rank0.jsonl",
        callback_rows(NOW - 7200, 900, 4.0, pid=6),
    ),
    "a run that ended minutes ago": (
        "health_rank0.jsonl",
        callback_rows(NOW - 1200, 900, 4.4, pid=6),
    ),
}


@pytest.fixture(params=STRANGERS.values(), ids=STRANGERS.keys())
def stranger(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name, rows = request.param
    return write(tmp_path / "exp" / name, rows, NOW - 300)


class Followed(Watching):
    """A pump on one log that looks every second."""

    def __init__(self, log: Path, folder: Path) -> None:
        self.start(Settings(files=(str(log),)), folder, receivers=())
        self.fired: set[str] = set()

    def until(self, first: float, last: float) -> None:
        for second in range(int(first), int(last)):
            self.pump.turn(None, float(second))
            self.fired |= self.firing()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    followed = Followed(tmp_path / "exp/train.log", tmp_path)
    yield followed
    followed.close()


def test_a_stranger_near_a_log_hides_nothing_of_it_in_a_replay(stranger, tmp_path) -> None:
    log = write(tmp_path / "exp/train.log", lines(range(60), 40), NOW)
    replay = Replay(Settings(files=(str(log),)))
    fired = {each.alert for each in replay.transitions() if each.state == "firing"}
    assert "NonFiniteLoss" in fired
    assert "TrainingStalled" not in fired
    (notice,) = replay.notices
    assert str(stranger) in notice
    assert "name the file together with the log to follow it" in notice
    (run,) = replay.snapshot().runs
    assert run.step == 59


def test_a_stranger_near_a_log_hides_nothing_of_it_while_it_is_followed(
    stranger, followed, tmp_path, caplog
) -> None:
    caplog.set_level("INFO")
    log = tmp_path / "exp/train.log"
    for begin in range(0, 150, 5):
        write(log, lines(range(begin, begin + 5), 100), NOW + begin + 4)
        followed.until(NOW + begin, NOW + begin + 5)
    assert "NonFiniteLoss" in followed.fired
    assert "TrainingStalled" not in followed.fired
    assert [text for text in caplog.messages if str(stranger) in text and "no companion" in text]


def test_a_stranger_in_a_followed_folder_is_a_run_of_its_own(stranger, tmp_path) -> None:
    log = write(tmp_path / "exp/train.log", lines(range(60), 40), NOW)
    replay = Replay(Settings(files=(str(log.parent),)))
    list(replay.transitions())
    runs = {run.name: run for run in replay.snapshot().runs}
    mine = runs.pop("exp")
    assert (mine.files, mine.step, mine.statistics["loss"].nonfinite) == ((str(log),), 59, 20)
    (theirs,) = runs.values()
    assert theirs.files == (str(stranger),)
    assert any("as a run of its own" in notice for notice in replay.notices)


def test_logs_that_have_the_same_strangers_have_one_notice(stranger, tmp_path) -> None:
    for number in range(3):
        write(tmp_path / f"exp/train{number}.log", lines(range(60), 40), NOW)
    replay = Replay(Settings(files=(str(tmp_path / "exp/*.log"),)))
    (notice,) = (each for each in replay.notices if "no companion" in each)
    assert notice.startswith(str(stranger))
    assert "train0.log" in notice
    assert "train2.log" in notice


def test_a_stranger_in_a_folder_that_is_followed_live_is_a_run_of_its_own(
    stranger, tmp_path
) -> None:
    log = write(tmp_path / "exp/train.log", lines(range(60), 999), NOW)
    followed = Followed(log.parent, tmp_path)
    followed.until(NOW, NOW + 3)
    runs = {run.name: run.files for run in followed.pump.monitor.snapshot().runs}
    followed.close()
    assert runs.pop("exp") == (str(log),)
    assert list(runs.values()) == [(str(stranger),)]


def test_a_file_that_the_user_names_with_the_log_is_of_its_run(stranger, tmp_path) -> None:
    log = write(tmp_path / "exp/train.log", lines(range(60), 40), NOW)
    replay = Replay(Settings(files=(str(log), str(stranger)), run="mine"))
    list(replay.transitions())
    (run,) = replay.snapshot().runs
    assert set(run.files) == {str(log), str(stranger)}


KIN = {
    "a callback that writes at the same time": (
        "health_rank0.jsonl",
        callback_rows(NOW - 60, 60, 2.0),
        lines(range(0, 60, 30), 60),
    ),
    "rows whose losses agree with those of the log": (
        "training_log.jsonl",
        trainer_rows(60, 4.0),
        lines(range(60), 60),
    ),
    "a folder whose losses agree with those of the log": (
        "saved/qwen/training_log.jsonl",
        trainer_rows(60, 4.0),
        lines(range(60), 60),
    ),
    "a callback that a hang stopped between two lines of the log": (
        "health_rank0.jsonl",
        callback_rows(NOW - 1800, 125, 4.0),
        "".join(lines(range(step, step + 1), 999) for step in (0, 50, 100)),
    ),
    "the process that NCCL names in the log": (
        "health_rank0.jsonl",
        callback_rows(NOW - DAY, 60, 4.0, pid=4711),
        "gpu1:4711:4790 [0] NCCL INFO Bootstrap : Using eth0\n",
    ),
}


@pytest.mark.parametrize(("name", "rows", "text"), KIN.values(), ids=KIN.keys())
def test_evidence_makes_a_file_near_a_log_its_companion(name, rows, text, tmp_path) -> None:
    log = write(tmp_path / "exp/train.log", text, NOW)
    companion = write(tmp_path / "exp" / name, rows, NOW)
    write(tmp_path / "exp/saved/other/training_log.jsonl", trainer_rows(60, 9.0), NOW - DAY)
    replay = Replay(Settings(files=(str(log),)))
    list(replay.transitions())
    assert any(str(companion) in notice and "added" in notice for notice in replay.notices)
    (run,) = replay.snapshot().runs
    assert set(run.files) == {str(log), str(companion)} - ({str(log)} if "NCCL" in text else set())
    assert run.statistics["loss"].current == json.loads(rows.splitlines()[-1])["loss"]


def test_the_other_ranks_of_a_callback_that_is_a_companion_are_companions_too(tmp_path) -> None:
    log = write(tmp_path / "exp/train.log", lines(range(60), 60), NOW + DAY)
    for rank in range(3):
        rows = callback_rows(NOW - 60, 60, 4.0 + rank)
        write(tmp_path / f"exp/health_rank{rank}.jsonl", rows, NOW)
    replay = Replay(Settings(files=(str(log),)))
    assert len([notice for notice in replay.notices if "added" in notice]) == 3


def test_the_launch_that_a_log_names_is_not_that_of_files_from_long_before_it(tmp_path) -> None:
    log = tmp_path / "train_logs/train_20260129_101500_node0.log"
    write(log, f"Working directory: {tmp_path}/saved/qwen\n", NOW)
    rows = write(tmp_path / "saved/qwen/training_log.jsonl", trainer_rows(60, 4.0), NOW - 3 * DAY)
    (notice,) = Replay(Settings(files=(str(log),))).notices
    assert str(rows) in notice
    assert "before the log began" in notice


def test_a_value_that_is_not_finite_counts_whatever_the_better_source_reports() -> None:
    """A companion adds exact values; it refutes none of the log."""
    monitor = Monitor()
    rows, log = trainer_rows(60, 4.0).encode(), lines(range(60), 40).encode()
    monitor.feed(Chunk("saved/exp/training_log.jsonl", (1, 1, 0), 0, 1, rows), NOW)
    monitor.names.tie("train.log", "exp")
    fired = monitor.feed(Chunk("train.log", (1, 2, 0), 0, 1, log), NOW + 1)
    assert "NonFiniteLoss" in {each.alert for each in fired if each.state == "firing"}
    (run,) = monitor.snapshot().runs
    assert run.statistics["loss"].current == 4.0 - 59 / 1000
    assert run.statistics["loss"].nonfinite == 20


def test_what_both_sources_report_as_not_finite_counts_once() -> None:
    monitor = Monitor()
    lost = trainer_rows(40, 4.0) + "".join(
        f'{{"epoch": 0, "step": {step}, "loss": NaN}}\n' for step in (40, 41)
    )
    monitor.feed(Chunk("saved/exp/training_log.jsonl", (1, 1, 0), 0, 1, lost.encode()), NOW)
    monitor.names.tie("train.log", "exp")
    log = lines(range(43), 40).encode()  # its steps are numbered from 1
    monitor.feed(Chunk("train.log", (1, 2, 0), 0, 1, log), NOW + 1)
    (run,) = monitor.snapshot().runs
    assert run.statistics["loss"].nonfinite == 2
