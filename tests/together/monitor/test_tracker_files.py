"""Runs that only a tracker's files show: TensorBoard's, MLflow's and W&B's, live and at once."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings
from tests.logs.event_files.tfevents import VERSION, scalar
from tests.logs.event_files.wandblog import ended, log_of, row
from tests.service.daemon.watching import NOW, Watching, append

MLFLOW_RUN = "0123456789abcdef0123456789abcdef"


def steps(first: int, last: int) -> bytes:
    """One step a second, loss and learning rate."""
    return b"".join(
        scalar(tag, value, step, NOW + step)
        for step in range(first, last)
        for tag, value in (("train/loss", 2.5 + step % 7 / 8), ("train/learning_rate", 0.001))
    )


class Watched(Watching):
    """A pump on a folder, and what it reported; a step's number is its second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reported: list[tuple[str, str, float | None]] = []
        self.begin()

    def begin(self) -> None:
        wanted = Settings(files=(str(self.folder / "in"),), companions=False)
        self.start(wanted, self.folder / "state", receivers=())

    def write(self, name: str, data: bytes, second: float) -> None:
        path = self.folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        append(path, data, NOW + second)

    def until(self, first: int, last: int) -> None:
        """Look every second."""
        for second in range(first, last):
            self.pump.turn(None, NOW + second)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    (tmp_path / "in").mkdir()
    watched = Watched(tmp_path)
    yield watched
    watched.kill()


EVENTS = "exp/events.out.tfevents.1.host.1.0"


def test_a_writer_that_flushes_every_two_minutes_is_no_stall_and_a_hang_is_one(watched) -> None:
    watched.write(EVENTS, VERSION, 0)
    for burst in range(5):
        watched.write(EVENTS, steps(120 * burst + 4, 120 * burst + 124), 120 * burst + 120)
        watched.until(120 * burst + 120, 120 * burst + 240)
        assert watched.firing() == set()
    (run,) = watched.pump.monitor.snapshot().runs
    assert (run.name, run.step, run.state) == ("exp", 603, "running")
    assert 120 < run.stall_limit_seconds < 300
    watched.until(720, 920)
    assert watched.firing() == {"TrainingStalled"}


def test_a_nan_rings_at_its_frame(watched) -> None:
    watched.write(EVENTS, VERSION + steps(1, 31), 30)
    watched.until(30, 40)
    watched.write(EVENTS, scalar("train/loss", float("nan"), 31, NOW + 31), 40)
    watched.until(40, 42)
    (alert,) = [a for a in watched.pump.monitor.snapshot().alerts if a.name == "NonFiniteLoss"]
    assert alert.position is not None
    assert alert.position.line == 62


def test_after_a_kill_amid_a_frame_it_goes_on(watched) -> None:
    data = VERSION + steps(1, 101)
    watched.write(EVENTS, data[:2000], 30)
    watched.until(30, 45)
    watched.kill()
    watched.write(EVENTS, data[2000:], 100)
    watched.begin()
    watched.until(101, 110)
    snapshot = watched.pump.monitor.snapshot()
    assert [(run.name, run.step) for run in snapshot.runs] == [("exp", 100)]
    assert snapshot.monitor.parse_errors == 0
    assert snapshot.monitor.lines == 201
    assert snapshot.monitor.bytes == len(data)


def test_damage_is_counted_and_what_follows_is_read(watched) -> None:
    data = bytearray(VERSION + steps(1, 101))
    data[2000] ^= 0x55
    watched.write(EVENTS, bytes(data), 100)
    watched.until(100, 102)
    snapshot = watched.pump.monitor.snapshot()
    assert snapshot.monitor.parse_errors == 1
    assert snapshot.runs[0].step == 100


def metric_rows(first: int, last: int, value: float) -> bytes:
    return b"".join(
        b"%d %r %d\n" % ((NOW + step) * 1000, value + step % 7 / 8, step)
        for step in range(first, last)
    )


def test_the_metrics_of_an_mlflow_run_are_one_run(watched) -> None:
    folder = f"0/{MLFLOW_RUN}"
    watched.write(f"{folder}/meta.yaml", b"run_id: x\n", 0)
    for burst in range(10):
        first, last = 10 * burst + 1, 10 * burst + 11
        watched.write(f"{folder}/metrics/train/loss", metric_rows(first, last, 2.5), last)
        watched.write(f"{folder}/metrics/grad_norm", metric_rows(first, last, 0.5), last)
        watched.write(f"{folder}/metrics/system/cpu", metric_rows(burst, burst + 1, 50), last)
        watched.until(last, last + 10)
    (run,) = watched.pump.monitor.snapshot().runs
    assert (run.name, run.step) == (MLFLOW_RUN, 100)
    assert {"loss", "grad_norm", "system_cpu"} <= set(run.statistics)
    assert watched.firing() == set()


def test_a_finished_file_is_replayed_at_the_times_that_it_tells(tmp_path: Path) -> None:
    path = tmp_path / EVENTS
    path.parent.mkdir()
    nan = scalar("train/loss", float("nan"), 101, NOW + 101)
    path.write_bytes(VERSION + steps(1, 101) + nan + steps(102, 110))
    replay = Replay(Settings(files=(str(path),), once=True))
    reported = {
        (each.alert, each.state): (each.time, each.line)
        for each in replay.transitions()
        if each.alert == "NonFiniteLoss"
    }
    assert reported["NonFiniteLoss", "firing"] == (NOW + 101, None), (
        "bytes are not quoted as a line"
    )


def test_a_finished_metric_is_replayed_at_the_times_that_it_tells(tmp_path: Path) -> None:
    path = tmp_path / f"0/{MLFLOW_RUN}/metrics/loss"
    path.parent.mkdir(parents=True)
    nan = b"%d nan 101\n" % ((NOW + 101) * 1000)
    path.write_bytes(metric_rows(1, 101, 2.5) + nan + metric_rows(102, 110, 2.5))
    replay = Replay(Settings(files=(str(path),), once=True))
    fired = [
        each.time
        for each in replay.transitions()
        if (each.alert, each.state) == ("NonFiniteLoss", "firing")
    ]
    assert fired == [NOW + 101]


TRANSACTIONS = "wandb/run-20261121_211546-a1/run-a1.wandb"


def rows(first: int, last: int) -> list[bytes]:
    """One step a second, as wandb's history has them."""
    return [
        row(_step=step, _timestamp=NOW + step, loss=2.5 + step % 7 / 8, lr=0.001)
        for step in range(first, last)
    ]


def test_a_run_that_wandb_tells_of_is_followed_and_after_a_kill_amid_a_record_too(watched) -> None:
    """W&B writes whole blocks, and what there is every fifteen seconds."""
    data = log_of(*rows(1, 601), ended(0))
    cuts = [int(len(data) * part) for part in (0, 0.3, 0.5, 0.8, 1)]
    for begin, end in pairwise(cuts[:4]):
        second = round(600 * end / len(data))
        watched.write(TRANSACTIONS, data[begin:end], second)
        watched.until(second, second + 20)
    assert watched.firing() == set()
    watched.kill()
    watched.write(TRANSACTIONS, data[cuts[3] :], 600)
    watched.begin()
    watched.until(601, 605)
    snapshot = watched.pump.monitor.snapshot()
    assert [(run.name, run.step, run.state) for run in snapshot.runs] == [
        ("run-a1", 600, "finished")
    ]
    assert (snapshot.monitor.parse_errors, snapshot.monitor.bytes) == (0, len(data))


def test_a_run_that_wandb_saw_fail_has_crashed(watched) -> None:
    watched.write(TRANSACTIONS, log_of(*rows(1, 31), ended(1)), 31)
    watched.until(31, 60)
    assert watched.firing() == {"TrainingCrashed"}


def test_a_finished_run_of_wandb_is_replayed_at_the_times_that_it_tells(tmp_path: Path) -> None:
    path = tmp_path / TRANSACTIONS
    path.parent.mkdir(parents=True)
    nan = row(_step=101, _timestamp=NOW + 101, loss=float("nan"))
    path.write_bytes(log_of(*rows(1, 101), nan, *rows(102, 110)))
    replay = Replay(Settings(files=(str(path),), once=True))
    fired = [
        each.time
        for each in replay.transitions()
        if (each.alert, each.state) == ("NonFiniteLoss", "firing")
    ]
    assert fired == [NOW + 101]
