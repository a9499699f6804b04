"""Whatever writers do to a file, every record comes exactly once, or is known to be lost.

Real files, real renames; only the time is an argument. The model keeps, for every
content that a file has had (a *life*), what was written into it. A record may be
missing only if its life was truncated before the follower looked, or had lost its
name before the follower ever saw it, or was deleted while the follower was down. A
kill takes with it what was delivered since the last commit, positions and records.
"""

import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.source.follower import Follower
from ldlm_monitor.logs.source.named_files import LINGER_SECONDS
from ldlm_monitor.logs.source.open_files import RETIRED_FILES, RETIRED_SECONDS
from ldlm_monitor.logs.source.recalled import RECALL_SECONDS
from ldlm_monitor.logs.source.tail import RETURN_SECONDS
from tests.logs.source.kept_positions import positions_from_json, positions_to_json

WHOLE = re.compile(rb"<(\d+)\|x*>")
BANNER = b"#" * 1500 + b"\n"
ENDS = [b"\n", b"\r\n", b"\r"]
LOSSES = {"truncated", "rewritten", "replaced", "vanished", "gone"}
"""What the follower says where it cannot have read everything."""


@dataclass
class Life:
    """One content of one file: its records' numbers, and the second half of a half-written one.

    `begun` with the banner: so much of it was read, or nothing. `seen`: the follower, or
    what it left behind when it was killed, knows the file; `kept`: the last commit does.
    """

    writer: BinaryIO
    written: list[int] = field(default_factory=list)
    half: tuple[int, bytes] | None = None
    begun: bool = True
    seen: bool = False
    kept: bool = False
    deleted: bool = False

    @property
    def inode(self) -> int:
        return os.fstat(self.writer.fileno()).st_ino


class Writers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.log = self.folder / "train.log"
        self.away = self.folder / "away"
        self.follower: Follower
        self.now = 1000.0
        self.count = 0
        self.rotated = 0
        self.replaced = 0
        self.halves: list[bytes] = []
        self.written: set[int] = set()
        self.lost: list[set[int]] = []
        self.chunks: list[Chunk] = []
        self.delivered: set[int] = set()
        self.noticed: set[str] = set()
        self.old: list[Life] = []
        self.deleted: list[Life] = []
        self.present = True
        self.down = False
        self.committed: tuple[int, str] = (0, "[]")

    @initialize(
        rotated_names=st.booleans(),
        append=st.booleans(),
        linked=st.booleans(),
        files=st.sampled_from([1, 256]),
        is_right=st.booleans(),
    )
    def begin(
        self, rotated_names: bool, append: bool, linked: bool, files: int, is_right: bool
    ) -> None:
        """The clock is that of the files' times, or one that was never set."""
        self.now = time.time() if is_right else self.now
        self.all_names, self.append, self.linked, self.files = rotated_names, append, linked, files
        self.scarce = files == 1
        self.start("[]")
        self.life = self.create()

    def start(self, kept: str) -> None:
        self.follower = Follower(open_files=self.files)
        paths = [self.log]
        if self.all_names:
            paths += [self.folder / f"train.log.{number}" for number in range(1, 30)]
        positions = positions_from_json(kept)
        for path in paths:
            resume = [position for position in positions if position.path == str(path)]
            self.follower.add(path, resume=resume)

    def create(self) -> Life:
        place = self.folder / f"run.{self.count}.{len(self.lost)}" if self.linked else self.log
        self.count += 1
        life = Life(place.open("ab" if self.append else "wb", buffering=0))
        life.writer.write(BANNER)
        if self.linked:
            swap = self.folder / "swap"
            swap.symlink_to(place)
            swap.replace(self.log)
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

    @precondition(lambda self: self.present or self.is_away())
    @rule(size=st.sampled_from([0, 10, 1000, 3000]), end=st.sampled_from(ENDS))
    def write_a_record(self, size: int, end: bytes) -> None:
        self.write(self.life, size, end)

    @precondition(lambda self: self.present or self.is_away())
    @rule(size=st.sampled_from([2, 1500]), end=st.sampled_from(ENDS))
    def write_half_a_record(self, size: int, end: bytes) -> None:
        if self.life.half is None:
            number, text = self.new_record(size, end)
            cut = len(text) // 2
            self.life.writer.write(text[:cut])
            self.life.half = number, text[cut:]
            self.halves.append(text[:cut])

    # With few descriptors, only so many files without a name are kept for late writes.
    @precondition(lambda self: self.old and not (self.scarce and self.replaced > RETIRED_FILES))
    @rule(which=st.integers(0, 10), size=st.sampled_from([0, 500]))
    def write_to_a_file_that_lost_its_name(self, which: int, size: int) -> None:
        self.write(self.old[which % len(self.old)], size, b"\n")

    @rule()
    def rename_and_recreate(self) -> None:
        """Where the name is a symbolic link, it is led to a new file."""
        if self.present and self.linked:
            self.set_aside(known=False, deleted=False)
        elif self.present:
            self.rotated += 1
            self.log.rename(self.folder / f"train.log.{self.rotated}")
            self.set_aside(known=self.all_names and self.rotated < 30, deleted=False)
        elif self.is_away():
            self.away.unlink()
            self.set_aside(known=False, deleted=not self.linked)
        self.life = self.create()
        self.present = True

    @precondition(lambda self: self.present)
    @rule(another=st.booleans())
    def delete(self, another: bool) -> None:
        """Another file may get the inode number of the deleted one."""
        self.log.unlink()
        self.set_aside(known=False, deleted=not self.linked)
        self.present = False
        if another:
            (self.folder / f"other.{self.count}").write_bytes(b"of no concern\n")

    @precondition(lambda self: self.present)
    @rule()
    def reuse_the_inode(self) -> None:
        """While nobody reads, the file is deleted, and the next one gets its inode number.

        ext4 gives the number freed last, tmpfs never one that it gave before.
        """
        self.commit()
        self.kill_and_restart()
        before = self.life.inode
        self.delete(another=False)
        self.life = self.create()
        self.present = True
        event(f"the inode number is the same: {self.life.inode == before}")

    @precondition(lambda self: self.present and set(self.life.written) & self.delivered)
    @rule()
    def move_away(self) -> None:
        self.log.rename(self.away)
        self.present = False

    @precondition(lambda self: not self.present and self.is_away())
    @rule()
    def move_back(self) -> None:
        self.away.rename(self.log)
        self.present = True

    def is_away(self) -> bool:
        return os.path.lexists(self.away)

    def set_aside(self, *, known: bool, deleted: bool) -> None:
        """The file loses its name: who has it open, or knows where it is, still reads it."""
        self.replaced += 1
        self.life.deleted = deleted
        if deleted:
            self.deleted.append(self.life)
        if known or (self.life.seen and not (deleted and (self.scarce or self.down))):
            self.life.seen = True
            self.old.append(self.life)
        else:
            self.lose(self.life)
            self.life.writer.close()

    @precondition(lambda self: self.present)
    @rule(regrown=st.integers(0, 6), copied=st.booleans())
    def truncate(self, regrown: int, copied: bool) -> None:
        """With a writer that does not append, this leaves a hole at the start."""
        self.lose(self.life)
        if copied:
            shutil.copy(self.log, self.folder / "copy")
        os.truncate(self.log, 0)
        # Not kept: the last commit knows the file by what is gone now, and by its name.
        self.life = Life(self.life.writer, begun=regrown > 0, seen=self.life.seen)
        if regrown:
            self.life.writer.write(BANNER)
        for _ in range(regrown):
            self.write(self.life, 700, b"\n")

    @precondition(lambda self: self.present and not self.down)
    @rule(share=st.floats(0.01, 0.99), grows=st.booleans(), budget=st.sampled_from([1, 2**20]))
    def go_back_and_return(self, share: float, grows: bool, budget: int) -> None:
        """The size goes back, and the same bytes return, as a network file system shows it.

        Just after a start it is another content: only a file that is read is waited for.
        """
        content = self.log.read_bytes()
        if (cut := int(len(content) * share)) == 0:
            return
        os.truncate(self.log, cut)
        self.now += RETURN_SECONDS / 3
        self.look(budget)
        with self.log.open("r+b", buffering=0) as file:
            file.write(content)
        if grows:
            self.write(self.life, 100, b"\n")
        self.now += RETURN_SECONDS / 3
        self.look(budget)

    @precondition(lambda self: self.present and not self.linked and self.life.begun)
    @rule(rest=st.booleans(), down=st.booleans())
    def replace_by_a_copy(self, rest: bool, down: bool) -> None:
        """As rsync, or an editor, updates a file: the same content, another inode.

        A copy is known only if it is seen under the name of what it replaced.
        """
        if self.life.half is not None:
            self.write(self.life, 0, b"\n")
        self.settle()
        if down:
            self.commit()
            self.kill_and_restart()
        if rest:
            self.write(self.life, 100, b"\n")
        self.replaced += 1
        swap = self.folder / "swap"
        shutil.copy(self.log, swap)
        swap.replace(self.log)
        self.life.writer.close()
        self.life.writer = self.log.open("ab" if self.append else "r+b", buffering=0)
        self.life.writer.seek(0, os.SEEK_END)
        self.settle()
        self.commit()

    def lose(self, life: Life) -> None:
        """Nobody can read any more what was not read of it."""
        self.lost.append(set(life.written))

    @rule(after=st.sampled_from([0.0, 0.1, 3.0]), budget=st.sampled_from([1, 2**20]))
    def read(self, after: float, budget: int) -> None:
        self.now += after
        self.look(budget)

    def look(self, budget: int = 2**23) -> list[Chunk]:
        new = list(self.follower.read(None, self.now, budget))
        self.chunks += new
        for chunk in new:
            if not chunk.peek:
                self.delivered.update(int(number) for number in WHOLE.findall(chunk.data))
        self.noticed.update(notice.kind for notice in self.follower.journal.drain())
        self.life.seen = self.life.seen or self.present
        self.down = False
        return new

    @rule()
    def commit(self) -> None:
        """Keep the positions together with all that was delivered before them."""
        positions = self.follower.positions()
        self.committed = (len(self.chunks), positions_to_json(positions))
        inodes = {position.inode for position in positions}
        for life in [*self.old, *([] if self.life.writer.closed else [self.life])]:
            life.kept = life.seen and life.inode in inodes

    @rule()
    def kill_and_restart(self) -> None:
        """What was delivered and not committed is forgotten on both sides."""
        self.follower.close()
        length, kept = self.committed
        del self.chunks[length:]
        self.delivered = {
            int(number)
            for chunk in self.chunks
            if not chunk.peek
            for number in WHOLE.findall(chunk.data)
        }
        for life in self.deleted:
            self.lose(life)
        for life in list(self.old):
            named = self.all_names and not self.linked
            if life.deleted or not (named or life.kept):
                self.lose(life)
                life.writer.close()
                self.old.remove(life)
        self.life.seen = self.life.kept
        self.start(kept)
        self.down = True

    @rule()
    def long_silence(self) -> None:
        """Long enough that files without a name are given up.

        The writers of deleted ones are gone too. Another may come back, or its writer wake,
        and then it goes on where it was.
        """
        for life in [*self.old, *([self.life] if self.is_away() else [])]:
            if life.half is not None:
                self.write(life, 0, b"\n")
        self.settle()
        self.now += RETIRED_SECONDS + 1
        self.settle()
        for life in list(self.old):
            if life.deleted:
                life.writer.close()
                self.old.remove(life)
        self.life.seen = self.present

    @rule(by=st.sampled_from([-3600.0, -5.0, 5.0, 3600.0]))
    def set_the_clock(self, by: float) -> None:
        """Back only at a restart: before, the daemon goes on from its last time.

        An hour forward is a long silence, as after a sleep of the machine: a file without a
        followed name is then given up at the next look, and its writer wakes too late.
        """
        if by >= LINGER_SECONDS:
            self.long_silence()
            for life in [] if self.all_names and not self.linked else list(self.old):
                life.writer.close()
                self.old.remove(life)
        elif by < 0:
            self.commit()
            self.kill_and_restart()
        self.now += by

    def settle(self) -> None:
        # A file that a restart did not find is looked for again after so long, not before; what
        # begins like a content that was truncated is read after so long.
        self.look()
        self.now += max(RECALL_SECONDS, RETURN_SECONDS)
        for _ in range(40):
            if not self.look() and not self.follower.behind():
                break

    def teardown(self) -> None:
        try:
            if hasattr(self, "life"):
                if not self.present and not self.life.seen:
                    self.lose(self.life)
                self.settle()
                self.chunks += self.follower.finish()
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
        missing = self.written - set(numbers)
        assert not missing - set().union(*self.lost), f"records {sorted(missing)} were lost"
        for life in self.lost:
            if life & missing and life & set(numbers):
                assert self.noticed & LOSSES, f"nothing was said of {sorted(life & missing)}"


def test_every_record_comes_exactly_once_or_is_known_to_be_lost():
    run_state_machine_as_test(Writers, settings=_settings(settings().max_examples))


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
