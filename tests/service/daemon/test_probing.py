"""A run whose host is asked why no step comes: the real pump, real processes, given times."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ldlm_callback import rank as written
from ldlm_callback.rank import pid_namespace, start_ticks
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.records import Event, Heartbeat, Record
from ldlm_monitor.host.probe.host import HostProbe
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.run.verdict import ProbeCandidate
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.stall_probe import (
    AGAIN_SECONDS,
    EARLY_SECONDS,
    LEAD_SECONDS,
    MAX_CASES,
    OLD_PAUSE_SECONDS,
    OLD_SECONDS,
    Probing,
)
from ldlm_monitor.service.notify.message import Receipt
from tests.service.daemon.watching import NOW, RUN, Watching, append, bars

LIMIT = 60.0
TRAINING = """\
import sys
sum(range(3_000_000))
print("now it waits", file=sys.stderr, flush=True)
sys.stdin.read()
"""


class Asked(HostProbe):
    """The host's own answers, and a record of when it was asked what."""

    def __init__(self) -> None:
        super().__init__(ras=("127.0.0.1", 1), wait=lambda seconds: time.sleep(0.3))
        self.looked: list[list[str]] = []
        self.hold: threading.Event | None = None

    def look(self, cases: Sequence[ProbeCandidate], seconds: float) -> dict[str, list[Record]]:
        self.looked.append([case.run for case in cases])
        if self.hold is not None:
            self.hold.wait(30)
        return super().look(cases, seconds)


class Watched(Watching):
    """A pump on one log that a real process holds open; a bar's step is its second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / f"{RUN}_node0.log"
        self.host = Asked()
        self.answered = threading.Event()
        with self.log.open("ab") as file:
            self.training = subprocess.Popen(
                [sys.executable, "-c", TRAINING],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.PIPE,
            )
        assert self.training.stderr is not None
        self.training.stderr.readline()

    def write(self, text: str, second: float) -> None:
        append(self.log, text, NOW + second)

    def begin(self, second: float) -> None:
        self.probing = Probing(self.host, self.answered.set)
        settings = Settings(
            files=(str(self.folder / "*.log"),),
            companions=False,
            stall={"limit_seconds": {"running": LIMIT}},
        )
        self.start(settings, self.folder / "state", probing=self.probing)
        self.look(second)

    def look(self, second: float, *, answer: bool = False) -> None:
        """A turn of the pump; `answer`: the host was asked in it, and has answered then."""
        self.answered.clear()
        self.pump.turn(None, NOW + second)
        while any(self.pump.follower.late(NOW + second)):  # a thread of its own reads
            self.pump.turn(set(), NOW + second)
        if answer:
            assert self.answered.wait(30)

    def stall(self) -> None:
        """The steps end at second 40; the look before the limit is answered."""
        self.write(bars(0, 41), 40)
        self.begin(41)
        self.look(42, answer=True)  # whose processes they are
        self.look(40 + LIMIT - 3, answer=True)
        self.look(40 + LIMIT + 1)

    def summary(self, alert: str = "TrainingStalled") -> str:
        while (pending := self.outbox.due("slack", NOW + 1e6)) is not None:
            self.outbox.accepted(pending, NOW, Receipt())
            if pending.message.lead.alert == alert:
                return pending.message.lead.summary
        return ""

    def verdict(self) -> str | None:
        return self.pump.monitor.runs.verdict(RUN)

    def kill(self) -> None:
        self.probing.close(30)
        super().kill()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.training.kill()
        self.training.communicate()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.kill()
    watched.end()


def test_the_alert_of_a_stall_says_what_is_the_matter(watched: Watched) -> None:
    watched.stall()
    summary = watched.summary()
    assert f"; hung: pid {watched.training.pid} sleeps" in summary
    assert summary.startswith(f"{RUN}: no step for ")
    (run,) = watched.pump.monitor.snapshot().runs
    assert run.verdict is not None
    assert (run.state, run.verdict.word) == ("stalled", "hung")


def test_a_training_whose_process_is_gone_has_ended(watched: Watched) -> None:
    watched.write(bars(0, 41), 40)
    watched.begin(41)
    watched.look(42, answer=True)
    watched.training.kill()
    watched.training.wait()
    watched.look(40 + LIMIT - 3, answer=True)
    watched.look(40 + LIMIT + 1)
    watched.look(40 + LIMIT + 6)  # the next evaluation
    assert watched.summary("TrainingEnded").endswith(
        f"ended: stopped at step 40 of 9,500; pid {watched.training.pid} is gone, and no line says "
        "why: a signal, or an end without a message"
    )
    assert watched.summary() == ""


def test_the_stall_is_told_in_time_although_the_host_does_not_answer(
    watched: Watched, caplog
) -> None:
    watched.write(bars(0, 41), 40)
    watched.begin(41)
    watched.look(42, answer=True)
    watched.host.hold = threading.Event()
    watched.look(40 + LIMIT - 3)
    watched.look(40 + LIMIT + 1)
    assert watched.summary() == f"{RUN}: no step for 1m 0s"
    watched.look(40 + LIMIT + 4)
    assert "did not answer within 5 s" in caplog.text
    watched.answered.clear()
    watched.host.hold.set()
    assert watched.answered.wait(30)
    watched.look(40 + LIMIT + 6)
    assert f"{RUN}: hung" in caplog.text
    assert watched.verdict() is not None


def test_an_answer_that_comes_very_late_is_heard_all_the_same(watched: Watched) -> None:
    watched.write(bars(0, 41), 40)
    watched.begin(41)
    watched.look(42, answer=True)
    watched.host.hold = threading.Event()
    watched.look(40 + LIMIT - 3)
    watched.look(40 + LIMIT + 1)
    watched.look(40 + LIMIT + 100)
    watched.answered.clear()
    watched.host.hold.set()
    assert watched.answered.wait(30)
    watched.look(40 + LIMIT + 101)
    assert watched.verdict() is not None


def test_a_step_that_comes_after_all_makes_what_was_found_worthless(watched: Watched) -> None:
    watched.write(bars(0, 41), 40)
    watched.begin(41)
    watched.look(42, answer=True)
    watched.look(40 + LIMIT - 3, answer=True)
    watched.write(bars(41, 42), 40 + LIMIT - 2)
    watched.look(40 + LIMIT - 2)
    watched.look(40 + LIMIT + 1)
    events = [event.kind for event in watched.pump.monitor.snapshot().events]
    assert "log_silence" not in events
    assert watched.verdict() is None


def test_the_verdict_of_a_stall_ends_with_the_next_step(watched: Watched) -> None:
    watched.stall()
    watched.write(bars(41, 45), 110)
    watched.look(110)
    assert watched.verdict() is None


def test_a_run_that_stays_stalled_is_looked_at_again_ever_more_rarely(watched: Watched) -> None:
    watched.stall()
    first = len(watched.host.looked)
    at = 40 + LIMIT + 1
    for second in range(0, int(4 * AGAIN_SECONDS), 10):
        before = len(watched.host.looked)
        watched.look(at + second)
        if len(watched.host.looked) > before:
            assert watched.answered.wait(30)
    assert len(watched.host.looked) - first == 2


def test_a_run_whose_pauses_are_often_long_is_not_looked_at_in_each(watched: Watched) -> None:
    watched.write(bars(0, 41), 40)
    watched.begin(41)
    watched.look(42, answer=True)
    for pause in range(3):
        last = 40 + pause * (LIMIT - 1)
        watched.look(last + LIMIT - LEAD_SECONDS + 1)
        watched.answered.wait(1)
        step = 41 + pause
        watched.write(bars(step, step + 1), last + LIMIT - 1)
        watched.look(last + LIMIT - 1)
        watched.answered.wait(1)
    assert EARLY_SECONDS > LIMIT - 1
    assert len(watched.host.looked) == 2


def test_after_a_restart_the_verdict_is_what_it_was(watched: Watched) -> None:
    watched.stall()
    before = watched.verdict()
    assert before is not None
    assert before in watched.summary()
    reported = watched.pump.monitor.snapshot()
    watched.kill()  # at once: what was observed is in no checkpoint yet
    watched.training.kill()
    watched.training.wait()
    watched.begin(40 + LIMIT + 2)
    again = watched.pump.monitor.snapshot()
    assert watched.verdict() == before
    assert [event.kind for event in again.events] == [event.kind for event in reported.events]
    assert watched.summary() == ""


def test_of_a_run_that_ended_well_nobody_is_asked(watched: Watched) -> None:
    watched.write(bars(0, 41) + "\nTraining complete! Time: 1.25h\n", 40)
    watched.begin(41)
    for second in range(42, 200, 5):
        watched.look(second)
    assert watched.host.looked == []


def test_a_bug_of_the_probe_costs_its_evidence_and_nothing_else(watched: Watched, caplog) -> None:
    def fail(*args: object) -> dict[str, list[Event]]:
        raise RuntimeError("a bug")

    watched.write(bars(0, 41), 40)
    watched.begin(41)
    watched.look(42, answer=True)
    watched.host.look = fail  # type: ignore[method-assign]
    watched.look(40 + LIMIT - 3, answer=True)
    watched.look(40 + LIMIT + 1)
    assert watched.summary() == f"{RUN}: no step for 1m 0s"
    assert "a bug of ours" in caplog.text


def test_a_process_that_was_stopped_and_goes_on_leaves_no_verdict(watched: Watched) -> None:
    os.kill(watched.training.pid, signal.SIGSTOP)
    watched.stall()
    assert "is stopped" in watched.summary()
    os.kill(watched.training.pid, signal.SIGCONT)
    watched.write(bars(41, 60), 120)
    watched.look(120)
    assert watched.verdict() is None


def test_a_stalled_run_whose_process_leaves_is_looked_at_at_once(watched: Watched) -> None:
    watched.stall()
    assert "sleeps" in watched.summary()
    watched.look(40 + LIMIT + 20)
    watched.look(40 + LIMIT + 21)
    assert len(watched.host.looked) == 1
    watched.training.kill()
    watched.training.wait()
    watched.look(40 + LIMIT + 22, answer=True)
    for second in range(23, 30):  # a look that began before may have been answered
        watched.look(40 + LIMIT + second)
        (run,) = watched.pump.monitor.snapshot().runs
        if run.state == "ended":
            break
        watched.answered.wait(1)
    assert run.state == "ended"


def test_a_crash_is_looked_at_too_for_the_dumps_that_it_left(watched: Watched) -> None:
    dumps = Path(__file__).resolve().parents[2] / "host/probe/data/missing"
    watched.write(bars(0, 41), 40)
    watched.begin(41)
    watched.look(42, answer=True)
    for path in dumps.glob("comm_lib*"):
        copy = shutil.copy(path, watched.folder)
        os.utime(copy, (NOW + 43, NOW + 43))
    watched.write(
        "\nTraceback (most recent call last):\n"
        '  File "/job/train.py", line 8, in main\n'
        "ValueError: bad batch\n",
        43,
    )
    watched.look(43)
    watched.look(58)
    watched.look(59, answer=True)
    watched.look(60)
    (run,) = watched.pump.monitor.snapshot().runs
    assert run.state == "crashed"
    assert run.verdict is not None
    assert (run.verdict.word, run.verdict.reasons[0]) == ("crashed", "ValueError: bad batch")
    assert "rank 2 did not join it" in run.verdict.reasons[1]
    dump = next(e for e in watched.pump.monitor.snapshot().events if e.kind == "fr_dump")
    assert dump.fields["missing_ranks"] == [2]


def page(folder: Path, rank: int) -> written.HeartbeatPage:
    identity = written.Identity(
        pid=os.getpid(),
        stack_signal=0,
        started=start_ticks(),
        pid_namespace=pid_namespace(),
        rank=rank,
        host=b"elsewhere",
        stack_file=b"",
        recorder_socket=b"",
    )
    return written.HeartbeatPage(folder / f"heartbeat_rank{rank}", identity)


def beat(step: int, second: float, phase: bytes = b"train") -> written.Beat:
    at = NOW + second
    return written.Beat(step=step, time=at, phase_since=at, phase=phase, status=b"running")


def reported_by(monitor: Monitor, host: Asked, seconds: Sequence[float]) -> list[list[Heartbeat]]:
    """What each turn hands over; the host has answered what it was asked before the next."""
    answered = threading.Event()
    probing = Probing(host, answered.set)
    reported = []
    for second in seconds:
        found = list(probing.turn(monitor, NOW + second))
        for each in found:
            monitor.observe(each.events, each.at)
        reported.append([event for each in found for event in each.events])
        answered.wait(0.5)
        answered.clear()
    probing.close(patience=30)
    return reported


def rows_of_rank_0(folder: Path) -> Monitor:
    rows = [f'{{"step": {step}, "time": {NOW + step}, "loss": 2.5}}\n' for step in range(41)]
    monitor = Monitor()
    path = str(folder / "health_rank0.jsonl")
    monitor.feed(Chunk(path, (1, 1, 0), 0, 1, "".join(rows).encode()), NOW + 40)
    return monitor


def test_heartbeats_beside_rows_tell_where_each_rank_is_and_which_are_read_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monitor = rows_of_rank_0(tmp_path)
    first, second = page(tmp_path, 0), page(tmp_path, 1)
    first.beat(beat(40, 40))
    second.beat(beat(39, 39.5, b"eval"))
    reported = reported_by(monitor, Asked(), [41, 42, 43])
    assert sorted((each.rank, each.step, each.phase) for each in reported[-1] + reported[-2]) == [
        (0, 40, "train"),
        (1, 39, "eval"),
    ]
    (run,) = monitor.snapshot().runs
    assert {each.rank: (each.step, each.phase) for each in run.ranks}[1] == (39, "eval")
    said = [each for each in caplog.messages if "following too" in each]
    assert len(said) == 1
    assert said[0].startswith(f"{tmp_path}/heartbeat_rank0 and 1 more: following too")


def test_a_heartbeat_that_stands_still_is_not_told_again(tmp_path: Path) -> None:
    monitor = rows_of_rank_0(tmp_path)
    writer = page(tmp_path, 0)
    writer.beat(beat(40, 40))
    reported = reported_by(monitor, Asked(), [41, 42, 52, 53, 63, 64])
    assert sum(map(len, reported)) == 1


def test_a_heartbeat_that_an_earlier_launch_left_is_not_believed(tmp_path: Path) -> None:
    monitor = rows_of_rank_0(tmp_path)
    page(tmp_path, 3).beat(beat(9000, -500))
    assert reported_by(monitor, Asked(), [41, 42, 43]) == [[], [], []]


def test_of_runs_that_were_given_up_long_ago_some_are_looked_at_now_and_then() -> None:
    monitor, host = Monitor(), Asked()
    for number in range(MAX_CASES + 8):
        path = f"run{number:02d}.log"
        monitor.feed(Chunk(path, (1, number + 1, 0), 0, 1, bars(0, 41).encode()), NOW)
    late = NOW + 2 * OLD_SECONDS
    monitor.tick(late)
    answered = threading.Event()
    probing = Probing(host, answered.set)
    list(probing.turn(monitor, late))
    assert answered.wait(30)
    answered.clear()
    for second in range(1, int(OLD_PAUSE_SECONDS)):
        list(probing.turn(monitor, late + second))
    assert len(host.looked) == 1
    list(probing.turn(monitor, late + OLD_PAUSE_SECONDS))
    assert answered.wait(30)
    probing.close(patience=30)
    assert [len(cases) for cases in host.looked] == [MAX_CASES, 8]
