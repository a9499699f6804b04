"""Whatever happens to the files and to the daemon, it ends the night where a quiet one would.

Real files and the real pump; only the time is an argument. Beside it stands a *twin*: a
monitor that is fed the same text from memory, file by file, at the same moments. After
every look both must export the same and hold the same alerts. A killed pump can rebuild
only what the files still tell: then the same holds for all but the measured times, and
whoever is told has heard each alert as often as the twin raised it, never more.
"""

import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ldlm_monitor.alert import alert_key
from ldlm_monitor.assemble import assemble
from ldlm_monitor.config import Settings
from ldlm_monitor.ledger import Ledger
from ldlm_monitor.monitor import Monitor
from ldlm_monitor.notify import Outbox
from ldlm_monitor.pump import Pump
from ldlm_monitor.source.split import PEEK_SECONDS, Splitter

START = 1_769_681_700.0
NAN = "WARNING: Invalid text_loss detected: nan\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
NCCL = (
    "[rank3]:[E129 10:15:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1024, "
    "NumelOut=1024, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 12, in <module>\n'
    "    main()\n"
    '  File "train.py", line 9, in main\n'
    "    batch = next(batches)\n"
    "ValueError: the batch is empty\n"
)
REMARKS = {"nan": NAN, "oom": OOM, "nccl": NCCL, "traceback": TRACEBACK, "none": ""}
LOSSES = ["2.5", "2.25", "nan", "inf"]
EXPORTED = ("ldlm_train_", "ldlm_events_total", "ldlm_run_state")
MEASURED = {
    "ldlm_train_last_progress_timestamp_seconds",
    "ldlm_train_stall_limit_seconds",
    "ldlm_train_step_seconds",
    "ldlm_train_eta_seconds",
}
"""Bars tell whole seconds: after a restart these come out near, not equal."""
SLACK = "slack"
STALL_SECONDS = 150
CRASH_SECONDS = 15
"""A traceback is a crash if no step follows it for so long."""
IN_DOUBT_SECONDS = 20.0
"""So long before and after an alert changes a restarted daemon may hold the other state."""


@dataclass(slots=True)
class Life:
    """One content of one file: who writes it, and what the twin has of it."""

    writer: BinaryIO
    splitter: Splitter
    half: bytes = b""
    unseen: bytes = b""

    def write(self, data: bytes) -> None:
        self.writer.write(data)
        self.unseen += data


class StillWaker:
    """Never rings: the machine decides when the pump turns."""

    def wait(self, timeout: float) -> set[Path]:
        raise AssertionError("the pump itself never waits")

    def watch(self, folders: Collection[Path]) -> None:
        pass

    def ring(self, path: Path) -> None:
        pass

    def close(self) -> None:
        pass


class Night(RuleBasedStateMachine):
    """Writers, the pump on their files, and its twin.

    `pause`: seconds after a traceback. A step within a second of it may be of before it,
    and what is played after a restart is placed no more finely than that.
    """

    pause: ClassVar = 0

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
        self.lives = {path: [self.create(path)] for path in (self.log, self.rows)}
        self.pump: Pump | None = None

    @initialize()
    def begin(self) -> None:
        self.start()
        self.look()

    def start(self) -> None:
        state = self.folder.parent
        self.outbox = Outbox(state / "outbox.sqlite")
        self.ledger = Ledger(state / "ledger.sqlite")
        self.pump = Pump(self.settings, self.outbox, self.ledger, [SLACK], StillWaker())

    def kill(self) -> None:
        """The process is gone: nothing is kept that was not kept before."""
        if self.pump is not None:
            self.pump.follower.close()
            self.outbox.close()
            self.ledger.close()
            self.pump = None

    def create(self, path: Path) -> Life:
        self.count += 1
        life = Life(path.open("ab", buffering=0), Splitter(str(path), (1, self.count, 0)))
        os.utime(path, (self.now, self.now))
        return life

    def write(self, path: Path, life: Life, text: str, *, half: bool = False) -> None:
        """Records; `half` leaves out the second half of the last."""
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
            self.pump.turn((), self.now)
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
            if transition.state == "firing":
                self.raised[transition.key] += 1
            if transition.state != "pending":
                self.quiet_since = self.now

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
        text = "".join(self.next_bar(loss) for loss in losses) + REMARKS[remark]
        failed = remark == "traceback"
        half = half and not (failed and self.pause)
        self.write(self.log, self.lives[self.log][-1], text, half=half)
        self.wait(seconds + self.pause * failed)

    @rule(losses=st.lists(st.sampled_from(LOSSES), min_size=1, max_size=3), half=st.booleans())
    def log_rows(self, losses: list[str], half: bool) -> None:
        text = ""
        for loss in losses:
            self.step += 1
            told = {"nan": "NaN", "inf": "Infinity"}.get(loss, loss)
            text += f'{{"step": {self.step}, "time": {self.now:.1f}, "loss": {told}}}\n'
        self.write(self.rows, self.lives[self.rows][-1], text, half=half)

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
            for life in lives:
                if life.half:
                    self.write(path, life, "\n")

    def settle(self) -> None:
        self.wait(1 + int(PEEK_SECONDS))

    def teardown(self) -> None:
        try:
            if self.pump is not None:
                self.check()
        finally:
            self.kill()
            for lives in self.lives.values():
                for life in lives:
                    life.writer.close()
            shutil.rmtree(self.folder.parent)

    def check(self) -> None:
        raise NotImplementedError

    def compare(self, *, but: Collection[str] = ()) -> None:
        assert self.pump is not None
        ours, its = exported(self.pump.monitor, but), exported(self.twin, but)
        differing = {key: (ours.get(key), its.get(key)) for key in ours.keys() | its.keys()}
        assert not {key: pair for key, pair in differing.items() if pair[0] != pair[1]}
        assert alerts(self.pump.monitor) == alerts(self.twin)


class NightOfRotations(Night):
    """Files are renamed, replaced and emptied, and the daemon lives: nothing differs at all."""

    paths: ClassVar = st.sampled_from(["log", "rows"])

    def path(self, which: str) -> Path:
        return self.log if which == "log" else self.rows

    @rule()
    def settle_and_compare(self) -> None:
        self.settle()
        self.compare()

    @rule(which=paths)
    def rename_and_recreate(self, which: str) -> None:
        """The writer of the old file may go on."""
        path = self.path(which)
        self.look()
        path.rename(path.with_name(f"{path.name}.{self.count}"))
        self.lives[path].append(self.create(path))

    @precondition(lambda self: any(len(lives) > 1 for lives in self.lives.values()))
    @rule(which=paths, remark=st.sampled_from(sorted(REMARKS)))
    def write_to_the_old_file(self, which: str, remark: str) -> None:
        path = self.path(which)
        if len(self.lives[path]) > 1:
            text = self.next_bar("2.25") + REMARKS[remark] if which == "log" else "\n"
            self.write(path, self.lives[path][-2], text)
            self.look()

    @rule(which=paths)
    def delete_and_recreate(self, which: str) -> None:
        path = self.path(which)
        self.write(path, self.lives[path][-1], "\n")
        self.look()
        path.unlink()
        self.lives[path].append(self.create(path))

    @rule(which=paths)
    def copy_and_truncate(self, which: str) -> None:
        path = self.path(which)
        lives = self.lives[path]
        self.write(path, lives[-1], "\n")
        self.look()
        shutil.copy(path, path.with_suffix(".copy"))
        os.truncate(path, 0)
        old = lives.pop()
        self.count += 1
        lives.append(Life(old.writer, Splitter(str(path), (1, self.count, 0))))
        self.look()

    def check(self) -> None:
        self.settle()
        self.compare()


class NightOfKills(Night):
    """The daemon is killed and started again; the files keep all they ever held."""

    pause: ClassVar = 5

    @rule(seconds=st.sampled_from([0, 1, 5, 60]))
    def kill_and_restart(self, seconds: int) -> None:
        self.finish_halves()
        self.kill()
        self.wait(seconds)
        self.start()
        self.look()

    @rule()
    def kill_it(self) -> None:
        self.kill()

    def check(self) -> None:
        if self.pump is None:
            self.start()
        self.wait(CRASH_SECONDS)
        self.wait(STALL_SECONDS)
        while self.now - self.quiet_since < IN_DOUBT_SECONDS:
            self.wait(10)
        self.compare(but=MEASURED)
        with closing(sqlite3.connect(self.folder.parent / "outbox.sqlite")) as db:
            told = Counter(
                key for (key,) in db.execute("SELECT key FROM notification WHERE state = 'firing'")
            )
        assert told == self.raised


def exported(monitor: Monitor, but: Collection[str]) -> dict[tuple[str, object], str]:
    """What both must agree on; NaN equals NaN."""
    return {
        (point.name, point.labels): repr(float(point.value))
        for point in monitor.snapshot().points
        if point.name.startswith(EXPORTED) and point.name not in but
    }


def alerts(monitor: Monitor) -> dict[str, str]:
    return {alert_key(alert.name, alert.labels): alert.state for alert in monitor.snapshot().alerts}


def test_rotations_change_nothing() -> None:
    run_state_machine_as_test(NightOfRotations, settings=_settings(30))


def test_kills_change_nothing() -> None:
    run_state_machine_as_test(NightOfKills, settings=_settings(30))


def _settings(examples: int) -> settings:
    return settings(
        derandomize=True,
        max_examples=examples,
        stateful_step_count=12,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
