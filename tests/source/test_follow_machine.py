"""Whatever writers do to a file, every record comes exactly once, or is known to be lost.

Real files, real renames; only the time is an argument. The model keeps, for every
content that a file has had (a *life*), what was written into it. A record may be
missing only if its life was truncated before the follower looked, or had lost its
name before the follower ever saw it.
"""

import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ldlm_monitor.chunk import Chunk
from ldlm_monitor.source import Follower
from ldlm_monitor.source.follow import RETIRED_SECONDS

WHOLE = re.compile(rb"<(\d+)\|x*>")
BANNER = b"#" * 1500 + b"\n"
ENDS = [b"\n", b"\r\n", b"\r"]


@dataclass
class Life:
    """One content of one file: its records' numbers, and the second half of a half-written one."""

    writer: BinaryIO
    written: list[int] = field(default_factory=list)
    half: tuple[int, bytes] | None = None
    seen: bool = False


class Writers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.log = self.folder / "train.log"
        self.away = self.folder / "away"
        self.follower = Follower()
        self.now = 1000.0
        self.count = 0
        self.rotated = 0
        self.excused: set[int] = set()
        self.halves: list[bytes] = []
        self.written: set[int] = set()
        self.truncated_what_was_read = False
        self.chunks: list[Chunk] = []
        self.delivered: set[int] = set()
        self.old: list[Life] = []
        self.present = True

    @initialize(rotated_names=st.booleans(), append=st.booleans(), files=st.sampled_from([1, 256]))
    def begin(self, rotated_names: bool, append: bool, files: int) -> None:
        self.follower = Follower(open_files=files)
        self.scarce = files == 1
        self.append = append
        self.follower.add(self.log)
        if rotated_names:
            for number in range(1, 30):
                self.follower.add(self.folder / f"train.log.{number}")
        self.all_names = rotated_names
        self.life = self.create()

    def create(self) -> Life:
        life = Life(self.log.open("ab" if self.append else "wb", buffering=0))
        life.writer.write(BANNER)
        return life

    def new_record(self, size: int, end: bytes) -> tuple[int, bytes]:
        self.count += 1
        return self.count, b"<%d|%s>" % (self.count, b"x" * size) + end

    def write(self, life: Life, size: int, end: bytes) -> None:
        if life.half is not None:
            number, rest = life.half
            life.half = None
            life.writer.write(rest)
            life.written.append(number)
            self.written.add(number)
        number, text = self.new_record(size, end)
        life.writer.write(text)
        life.written.append(number)
        self.written.add(number)

    @precondition(lambda self: self.present or self.away.exists())
    @rule(size=st.sampled_from([0, 10, 1000, 3000]), end=st.sampled_from(ENDS))
    def write_a_record(self, size: int, end: bytes) -> None:
        self.write(self.life, size, end)

    @precondition(lambda self: self.present or self.away.exists())
    @rule(size=st.sampled_from([2, 1500]), end=st.sampled_from(ENDS))
    def write_half_a_record(self, size: int, end: bytes) -> None:
        if self.life.half is None:
            number, text = self.new_record(size, end)
            cut = len(text) // 2
            self.life.writer.write(text[:cut])
            self.life.half = number, text[cut:]
            self.halves.append(text[:cut])

    @precondition(lambda self: self.old)
    @rule(which=st.integers(0, 10), size=st.sampled_from([0, 500]))
    def write_to_a_file_that_lost_its_name(self, which: int, size: int) -> None:
        self.write(self.old[which % len(self.old)], size, b"\n")

    @rule()
    def rename_and_recreate(self) -> None:
        if self.present:
            self.rotated += 1
            self.log.rename(self.folder / f"train.log.{self.rotated}")
            self.set_aside(known=self.all_names and self.rotated < 30)
        elif self.away.exists():
            self.away.unlink()
            self.set_aside(known=False, deleted=True)
        self.life = self.create()
        self.present = True

    @precondition(lambda self: self.present)
    @rule(another=st.booleans())
    def delete(self, another: bool) -> None:
        """Another file may get the inode number of the deleted one."""
        self.log.unlink()
        self.set_aside(known=False, deleted=True)
        self.present = False
        if another:
            (self.folder / f"other.{self.count}").write_bytes(b"of no concern\n")

    @precondition(lambda self: self.present and set(self.life.written) & self.delivered)
    @rule()
    def move_away(self) -> None:
        self.log.rename(self.away)
        self.present = False

    @precondition(lambda self: not self.present and self.away.exists())
    @rule()
    def move_back(self) -> None:
        self.away.rename(self.log)
        self.present = True

    def set_aside(self, *, known: bool, deleted: bool = False) -> None:
        """The file loses its name: who has it open, or knows the new name, still reads it."""
        reachable = known or (self.life.seen and not (deleted and self.scarce))
        if reachable:
            self.life.seen = True
            self.old.append(self.life)
        else:
            self.excuse(self.life)
            self.life.writer.close()

    @precondition(lambda self: self.present)
    @rule(regrown=st.integers(0, 6))
    def truncate(self, regrown: int) -> None:
        """With a writer that does not append, this leaves a hole at the start."""
        if self.life.seen and set(self.life.written) & self.delivered:
            self.truncated_what_was_read = True
        self.excuse(self.life)
        os.truncate(self.log, 0)
        self.life = Life(self.life.writer, seen=self.life.seen)
        if regrown:
            self.life.writer.write(BANNER)
        for _ in range(regrown):
            self.write(self.life, 700, b"\n")

    def excuse(self, life: Life) -> None:
        self.excused.update(set(life.written) - self.delivered)

    @rule(after=st.sampled_from([0.0, 0.1, 3.0]), budget=st.sampled_from([1, 2**20]))
    def read(self, after: float, budget: int) -> None:
        self.now += after
        self.take(list(self.follower.read(None, self.now, budget)))
        self.life.seen = self.life.seen or self.present

    @rule()
    def long_silence(self) -> None:
        """Long enough that files without a name are let go; their writers are gone too.

        A file that was moved away may still come back, and then goes on where it was.
        """
        if not self.present and self.life.half is not None and self.away.exists():
            self.write(self.life, 0, b"\n")
        self.settle()
        self.now += RETIRED_SECONDS + 1
        self.settle()
        for life in self.old:
            life.writer.close()
        self.old.clear()
        self.life.seen = self.present

    def settle(self) -> None:
        for _ in range(40):
            new = list(self.follower.read(None, self.now))
            self.take(new)
            if not new and not self.follower.behind():
                break
        self.life.seen = self.life.seen or self.present

    def take(self, chunks: list[Chunk]) -> None:
        self.chunks += chunks
        for chunk in chunks:
            if not chunk.peek:
                self.delivered.update(int(number) for number in WHOLE.findall(chunk.data))

    def teardown(self) -> None:
        try:
            if hasattr(self, "life"):
                if not self.present and not self.life.seen:
                    self.excuse(self.life)
                self.settle()
                self.take(list(self.follower.finish()))
                self.check()
        finally:
            self.follower.close()
            for life in [*self.old, *([self.life] if hasattr(self, "life") else [])]:
                life.writer.close()
            shutil.rmtree(self.folder)

    def check(self) -> None:
        came = [
            (chunk.file, record)
            for chunk in self.chunks
            if not chunk.peek
            for record in re.split(rb"\r\n|\n|\r", chunk.data)
            if record and record + b"\n" != BANNER
        ]
        numbers: list[int] = []
        last: dict[tuple[int, int, int], int] = {}
        for file, record in came:
            match = WHOLE.fullmatch(record)
            if match is None:
                assert record in self.halves, f"{record[:60]!r} was never written so"
                continue
            number = int(match[1])
            assert number > last.get(file, 0), "out of order within one file"
            last[file] = number
            numbers.append(number)
        assert len(numbers) == len(set(numbers)), "a record came twice"
        missing = self.written - set(numbers) - self.excused
        assert not missing, f"records {sorted(missing)} were lost"
        if self.truncated_what_was_read and not self.scarce:
            assert self.follower.journal.truncations, "a truncation went unnoticed"


def test_every_record_comes_exactly_once_or_is_known_to_be_lost():
    run_state_machine_as_test(Writers, settings=_settings(150))


@pytest.mark.long
def test_ten_thousand_sequences():
    run_state_machine_as_test(Writers, settings=_settings(10_000))


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
