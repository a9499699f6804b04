"""Whatever happens to the files and to the daemon, it ends the night where a quiet one would.

Real files and the real pump; only the time is an argument. Beside it stands a *twin*: a
monitor that is fed the same text from memory, file by file, at the same moments. The pump
is killed between two turns, and within one: at any line of its code. Afterwards both must
hold the same alerts, and each was sent as often as the twin raised it; while no pump was
killed, both export the same. What nobody saw arrive is placed in time by what the files
contain: then the same holds for all but the measured times. What was rotated away before a
restart cannot be read again: then nothing is sent twice, and more is not known.
"""

import os
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, ClassVar, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ldlm_monitor.base.alert import alert_key
from ldlm_monitor.judge.core.assemble import assemble
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.source.split import PEEK_SECONDS, Splitter
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.pump import Pump
from tests.service.daemon.failing_lines import NAN, NCCL, OOM, TRACEBACK
from tests.service.daemon.watching import Watching

TraceFunction: TypeAlias = Any
START = 1_769_681_700.0
REMARKS = {"nan": NAN, "oom": OOM, "nccl": NCCL, "traceback": TRACEBACK, "none": ""}
LOSSES = ["2.5", "2.25", "nan", "inf"]
EXPORTED = ("ldlm_train_", "ldlm_events_total", "ldlm_run_state", "ldlm_detect_loss")
CRASH_SECONDS = 15
"""A traceback is a crash if no step follows it for so long."""
IN_DOUBT_SECONDS = 20.0
"""So long before and after an alert changes, what came unseen may mean the other state."""
ROOMS = ("pump.py", "dispatcher.py", "state_store.py", "read_log.py", "outbox.py")
"""Where a kill within a turn may fall: wherever something is read, kept or sent."""


class Killed(BaseException):
    """The process ends here: nothing catches it."""


@dataclass(slots=True)
class Life:
    """One content of one file: who writes it, and what the twin has of it.

    `deleted`: only who has it open can read it.
    """

    writer: BinaryIO
    splitter: Splitter
    deleted: bool = False
    half: bytes = b""
    unseen: bytes = b""

    def write(self, data: bytes) -> None:
        self.writer.write(data)
        self.unseen += data


class Night(Watching, RuleBasedStateMachine):
    """Writers, the pump on their files, and its twin.

    `unseen`: something was written while no pump was there to see it arrive. `killed`: a pump
    was; `rotated`: a file lost its name or its content; `lost`: one did before a kill.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp()) / "night"
        self.folder.mkdir()
        self.log = self.folder / "train_20260129_101500_node0.log"
        self.rows = self.folder / "training_log.jsonl"
        self.settings = Settings(files=(str(self.log), str(self.rows)), companions=False)
        self.now = START
        self.step = self.count = 0
        self.twin: Monitor = assemble(self.settings)
        self.raised: Counter[str] = Counter()
        self.quiet_since = START
        self.unseen = self.killed = self.rotated = self.lost = False
        self.renamed_unseen: set[Path] = set()
        self.lives = {path: [self.create(path)] for path in (self.log, self.rows)}
        self.pump: Pump | None = None

    @initialize()
    def begin(self) -> None:
        self.open()
        self.look()

    def open(self) -> None:
        self.start(self.settings, self.folder.parent)

    def kill(self) -> None:
        """The process is gone: nothing is kept that was not kept before."""
        self.killed, self.lost = True, self.rotated
        if self.pump is not None:
            super().kill()
            self.pump = None
        for lives in self.lives.values():
            self.unseen |= any(life.unseen for life in lives)
            for life in [life for life in lives if life.deleted]:  # nobody can open it any more
                life.writer.close()
                lives.remove(life)

    def create(self, path: Path) -> Life:
        self.count += 1
        life = Life(path.open("ab", buffering=0), Splitter(str(path), (1, self.count, 0)))
        os.utime(path, (self.now, self.now))
        return life

    def write(self, path: Path, life: Life, text: str, *, half: bool = False) -> None:
        """Records; `half` leaves out the second half of the last.

        What nobody sees arrive is known to a second: so far apart and more it comes then.
        """
        self.unseen |= self.pump is None
        data = text.encode()
        cut = len(data) - len(data.splitlines(keepends=True)[-1]) // 2 if half else len(data)
        life.write(life.half + data[:cut])
        life.half = data[cut:]
        os.utime(life.writer.fileno(), (self.now, self.now))

    def next_bar(self, loss: str) -> str:
        self.step += 1
        minutes, seconds = divmod(int(self.now - START), 60)
        hours, minutes = divmod(minutes, 60)
        elapsed = (
            f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"
        )
        return (
            f"Training:   1%|▏         | {self.step}/9500 [{elapsed}<9:00:00,  1.00it/s, "
            f"Epoch=0/1, Progress=1.0%, Loss={loss}, Text=2.5]\r"
        )

    def look(self) -> None:
        """Both read what is there at this moment."""
        if self.pump is not None:
            self.pump.turn(None, self.now)
            self.renamed_unseen.clear()
        self.twin_looks()

    def twin_looks(self) -> None:
        found = []
        for lives in self.lives.values():
            for life in lives:
                data, life.unseen = life.unseen, b""
                for chunk in life.splitter.feed(data, self.now) if data else ():
                    found += self.twin.feed(chunk, self.now)
        for lives in self.lives.values():
            for life in lives:
                at = life.splitter.peek_at()
                if at is not None and at <= self.now:
                    found += self.twin.feed(life.splitter.peek(), self.now)
        found += self.twin.tick(self.now)
        for transition in found:
            if transition.state == "firing" and not transition.is_heartbeat:
                self.raised[transition.key] += 1
            if transition.state != "pending":
                self.quiet_since = self.now

    def pause_unseen(self) -> None:
        """So long that a traceback before it is a crash beyond doubt."""
        if self.pump is None:
            self.wait(CRASH_SECONDS + 5)

    def wait(self, seconds: int) -> None:
        for _ in range(min(seconds, 3)):
            self.now += 1
            self.look()
        if seconds > 3:
            self.now += seconds - 3
            self.look()

    @rule(
        losses=st.lists(st.sampled_from(LOSSES), min_size=1, max_size=3),
        remark=st.sampled_from(sorted(REMARKS)),
        half=st.booleans(),
        seconds=st.integers(0, 3),
    )
    def log_lines(self, losses: list[str], remark: str, half: bool, seconds: int) -> None:
        self.pause_unseen()
        text = "".join(self.next_bar(loss) for loss in losses) + REMARKS[remark]
        self.write(self.log, self.lives[self.log][-1], text, half=half)
        self.look()
        self.wait(seconds)

    @rule(losses=st.lists(st.sampled_from(LOSSES), min_size=1, max_size=3), half=st.booleans())
    def log_rows(self, losses: list[str], half: bool) -> None:
        if self.pump is None:  # rows that nobody saw come in the order of the times they have
            self.finish_halves_of(self.lives[self.rows][:-1], self.rows)
        self.pause_unseen()
        text = ""
        for loss in losses:
            self.step += 1
            reported = {"nan": "NaN", "inf": "Infinity"}.get(loss, loss)
            text += f'{{"step": {self.step}, "time": {self.now:.1f}, "loss": {reported}}}\n'
        self.write(self.rows, self.lives[self.rows][-1], text, half=half)
        self.look()

    @rule(steps=st.integers(5, 40))
    def train_on(self, steps: int) -> None:
        self.finish_halves()
        for _ in range(steps):
            self.write(self.log, self.lives[self.log][-1], self.next_bar("2.5"))
            self.now += 1
            self.look()
        self.leave_old_files()

    @rule(seconds=st.sampled_from([4, 20, 45, 200, 400, 700]))
    def let_time_pass(self, seconds: int) -> None:
        """Files without a name are given up meanwhile; their writers are done before."""
        self.finish_halves()
        self.look()
        self.wait(seconds)
        self.leave_old_files()

    def leave_old_files(self) -> None:
        for lives in self.lives.values():
            for life in lives[:-1]:
                life.writer.close()
            del lives[:-1]

    def finish_halves(self) -> None:
        for path, lives in self.lives.items():
            self.finish_halves_of(lives, path)

    def finish_halves_of(self, lives: list[Life], path: Path) -> None:
        for life in lives:
            if life.half:
                self.write(path, life, "\n")

    def settle(self) -> None:
        """Halves are shown, and what is detected is taken at a slot of the grid."""
        self.wait(1 + int(PEEK_SECONDS + self.settings.evaluation_interval))

    def teardown(self) -> None:
        try:
            if self.pump is None:
                self.open()
                self.look()
            self.compare_in_the_end()
        finally:
            self.kill()
            for lives in self.lives.values():
                for life in lives:
                    life.writer.close()
            shutil.rmtree(self.folder.parent)

    def compare_in_the_end(self) -> None:
        assert self.pump is not None
        self.finish_halves()
        self.settle()
        if self.unseen:
            self.wait(CRASH_SECONDS)
            self.wait(self.longest_limit() + int(IN_DOUBT_SECONDS))
            self.wait_while_in_doubt()
            if alerts(self.pump.monitor) != alerts(self.twin):  # it is about to change
                self.wait(int(IN_DOUBT_SECONDS))
                self.wait_while_in_doubt()
        self.check_that_nothing_is_sent_twice()
        if self.lost:
            return
        self.compare()
        with closing(sqlite3.connect(self.folder.parent / "outbox.sqlite")) as db:
            reported = Counter(
                key for (key,) in db.execute("SELECT key FROM notification WHERE state = 'firing'")
            )
        if self.unseen:  # a second more or less between steps is some in the limit that they teach
            reported, self.raised = without_timed(reported), without_timed(self.raised)
        assert reported == self.raised

    def check_that_nothing_is_sent_twice(self) -> None:
        """Of each alert, what was sent says by turns that it fires and that it ended."""
        with closing(sqlite3.connect(self.folder.parent / "outbox.sqlite")) as db:
            sent = db.execute("SELECT key, state FROM notification ORDER BY id").fetchall()
        firing: dict[str, bool] = {}
        for key, state in sent:
            assert firing.get(key, False) != (state == "firing"), (key, sent)
            firing[key] = state == "firing"

    def longest_limit(self) -> int:
        """After so many seconds every run has stalled, in the pump and in the twin."""
        assert self.pump is not None
        limits = [
            point.value
            for monitor in (self.pump.monitor, self.twin)
            for point in monitor.snapshot().points
            if point.name == "ldlm_train_stall_limit_seconds"
        ]
        return int(max(limits, default=0.0))

    def wait_while_in_doubt(self) -> None:
        while self.now - self.quiet_since < IN_DOUBT_SECONDS:
            self.wait(10)

    def compare(self) -> None:
        assert self.pump is not None
        if not self.killed:
            ours, its = exported(self.pump.monitor), exported(self.twin)
            differing = {key: (ours.get(key), its.get(key)) for key in ours.keys() | its.keys()}
            assert not {key: pair for key, pair in differing.items() if pair[0] != pair[1]}
        assert alerts(self.pump.monitor) == alerts(self.twin)

    @precondition(lambda self: self.pump is not None and not (self.unseen or self.lost))
    @rule()
    def settle_and_compare(self) -> None:
        self.settle()
        self.compare()


class Rotations(Night):
    """Files are renamed, replaced and emptied."""

    paths: ClassVar = st.sampled_from(["log", "rows"])

    def path(self, which: str) -> Path:
        return self.log if which == "log" else self.rows

    @rule(which=paths)
    def rename_and_recreate(self, which: str) -> None:
        """The writer of the old file may go on.

        Of files that came and lost their name while nobody looked, nobody can know.
        """
        path = self.path(which)
        if self.pump is None and path in self.renamed_unseen:
            return
        self.look()
        self.rotated = True
        self.renamed_unseen.add(path)
        path.rename(path.with_name(f"{path.name}.{self.count}"))
        self.lives[path].append(self.create(path))

    @precondition(lambda self: any(len(lives) > 1 for lives in self.lives.values()))
    @rule(which=paths, remark=st.sampled_from(sorted(REMARKS)))
    def write_to_the_old_file(self, which: str, remark: str) -> None:
        path = self.path(which)
        if len(self.lives[path]) > 1:
            self.pause_unseen()
            text = self.next_bar("2.25") + REMARKS[remark] if which == "log" else "\n"
            self.write(path, self.lives[path][-2], text)
            self.look()

    @precondition(lambda self: self.pump is not None)
    @rule(which=paths)
    def delete_and_recreate(self, which: str) -> None:
        path = self.path(which)
        self.write(path, self.lives[path][-1], "\n")
        self.look()
        self.rotated = True
        path.unlink()
        self.lives[path][-1].deleted = True
        self.lives[path].append(self.create(path))
        self.look()

    @precondition(lambda self: self.pump is not None)
    @rule(which=paths)
    def copy_and_truncate(self, which: str) -> None:
        path = self.path(which)
        lives = self.lives[path]
        self.write(path, lives[-1], "\n")
        self.look()
        shutil.copy(path, path.with_suffix(".copy"))
        self.rotated = True
        os.truncate(path, 0)
        old = lives.pop()
        self.count += 1
        lives.append(Life(old.writer, Splitter(str(path), (1, self.count, 0))))
        self.look()


class Kills(Night):
    """The daemon is killed and started again."""

    @rule(seconds=st.sampled_from([0, 1, 5, 60]))
    def kill_and_restart(self, seconds: int) -> None:
        self.kill()
        self.wait(seconds)
        self.open()
        self.look()

    @precondition(lambda self: self.pump is not None)
    @rule(lines=st.integers(1, 600))
    def kill_amid_a_turn(self, lines: int) -> None:
        """Another process begins at once, at the same moment."""
        assert self.pump is not None
        left = lines

        def trace(frame: FrameType, event: str, argument: object) -> TraceFunction | None:
            nonlocal left
            if not frame.f_code.co_filename.endswith(ROOMS):
                return None
            if event == "line":
                left -= 1
                if not left:
                    raise Killed
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            self.pump.turn(None, self.now)
        except Killed:
            pass
        finally:
            sys.settrace(before)
        self.kill()
        self.open()
        self.look()

    @rule()
    def kill_it(self) -> None:
        self.look()
        self.kill()


class KillsAndRotations(Kills, Rotations):
    """Both."""


def without_timed(raised: Counter[str]) -> Counter[str]:
    """By key, but those alerts that measured times decide.

    A stall by how long steps take; a crash by whether a step came soon after the traceback.
    """
    timed = ("TrainingStalled", "TrainingCrashed")
    return Counter({key: n for key, n in raised.items() if not key.startswith(timed)})


def exported(monitor: Monitor) -> dict[tuple[str, object], str]:
    """What both must agree on; NaN equals NaN."""
    return {
        (point.name, point.labels): repr(float(point.value))
        for point in monitor.snapshot().points
        if point.name.startswith(EXPORTED)
    }


def alerts(monitor: Monitor) -> dict[str, str]:
    """Those of trainings, by key."""
    return {
        alert_key(alert.name, alert.labels): alert.state
        for alert in monitor.snapshot().alerts
        if "run" in alert.labels
    }


def test_rotations_change_nothing() -> None:
    run_state_machine_as_test(Rotations, settings=_settings(settings().max_examples))


@pytest.mark.long  # each run has them together with rotations
def test_kills_change_nothing() -> None:
    run_state_machine_as_test(Kills, settings=_settings(settings().max_examples))


def test_kills_and_rotations_change_nothing() -> None:
    run_state_machine_as_test(KillsAndRotations, settings=_settings(settings().max_examples))


@pytest.mark.long
def test_no_night_changes_anything() -> None:
    run_state_machine_as_test(KillsAndRotations, settings=_settings(10_000))


def _settings(examples: int) -> settings:
    return settings(
        derandomize=True,
        max_examples=examples,
        stateful_step_count=12,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
