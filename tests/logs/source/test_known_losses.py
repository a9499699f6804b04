"""Sequences in which records were lost or repeated, found by the state machine of writers."""

import os
import shutil
from pathlib import Path

from ldlm_monitor.logs.source.follower import Follower
from ldlm_monitor.logs.source.open_files import RETIRED_SECONDS
from tests.logs.source.kept_positions import positions_from_json, positions_to_json

BANNER = b"#" * 1500 + b"\n"


def record(number: int) -> bytes:
    return b"<%d|%s>" % (number, b"x" * 3000)


def test_a_file_that_resembles_one_that_was_moved_away_is_read(reading, log):
    """Write a record; long silence; move the file away; delete and recreate; write a record."""
    log.write_bytes(BANNER + record(2) + b"\n")
    reader = reading(log)
    reader.look()
    reader.look(after=RETIRED_SECONDS + 1)
    away = log.with_name("away")
    log.rename(away)
    away.unlink()
    log.write_bytes(BANNER + record(4) + b"\n")
    reader.look()
    came = [each for chunk in reader.chunks for each in chunk.data.splitlines()]
    reader.end()
    assert record(4) in came


class Restarted:
    """A follower of a log and its rotated name that is killed at will, with what it committed."""

    def __init__(self, folder: Path) -> None:
        self.log, self.rotated = folder / "train.log", folder / "train.log.1"
        self.now = 1000.0
        self.came: list[bytes] = []
        self.kept = "[]"
        self.follower = Follower()
        self.restart()

    def restart(self) -> None:
        self.follower.close()
        self.follower = Follower()
        positions = positions_from_json(self.kept)
        for path in (self.log, self.rotated):
            self.follower.add(path, resume=[each for each in positions if each.path == str(path)])

    def look(self) -> None:
        for _ in range(3):
            for chunk in self.follower.read(None, self.now, 2**20):
                self.came += [] if chunk.peek else chunk.data.splitlines()
        self.kept = positions_to_json(self.follower.positions())


def test_a_restart_goes_on_where_the_file_was_read_last_under_any_name(tmp_path):
    """The file is away while a restart looks for it, and comes back renamed and grown.

    The state machine of writers (seed 19157140094029388497316830548590018671: rename, truncate,
    replacement by a copy, restart) needs no file that comes back: a new one that gets the inode
    number of a deleted one, which a file system decides, has the same effect.
    """
    logs, away = tmp_path / "logs", tmp_path / "away"
    logs.mkdir()
    writers = Restarted(logs)
    writers.log.write_bytes(BANNER)
    writers.look()
    writers.log.rename(away)
    writers.restart()
    writers.look()
    with away.open("ab") as file:
        file.write(record(1) + b"\n")
    away.rename(writers.rotated)
    writers.look()
    with writers.rotated.open("ab") as file:
        file.write(record(2) + b"\n")
    writers.look()
    writers.restart()
    writers.look()
    writers.follower.close()
    assert [line for line in writers.came if line + b"\n" != BANNER] == [record(1), record(2)]


class Scarce(Restarted):
    """The same, with one descriptor, which another log takes at each look."""

    def restart(self) -> None:
        self.follower.close()
        self.follower = Follower(open_files=1)
        self.another = self.log.with_name("another.log")
        positions = positions_from_json(self.kept)
        for path in (self.log, self.another):
            self.follower.add(path, resume=[each for each in positions if each.path == str(path)])

    def look(self) -> None:
        super().look()
        with self.another.open("ab") as file:
            file.write(b"another\n")
        super().look()

    def write(self, number: int) -> None:
        with self.log.open("ab") as file:
            file.write(record(number) + b"\n")

    def truncate(self, *, copied: bool = False) -> None:
        if copied:
            shutil.copy(self.log, self.log.with_name("copy"))
        os.truncate(self.log, 0)

    def records(self) -> list[bytes]:
        self.follower.close()
        return [line for line in self.came if line + b"\n" != BANNER and line != b"another"]


def test_a_closed_file_that_is_truncated_and_renamed_before_the_next_look_is_read(tmp_path):
    writers = Scarce(tmp_path)
    writers.log.write_bytes(BANNER + record(1) + b"\n")
    writers.look()
    writers.truncate()
    writers.write(2)
    writers.log.rename(writers.rotated)
    writers.log.write_bytes(BANNER + record(3) + b"\n")
    writers.look()
    assert writers.records() == [record(1), record(2), record(3)]


def test_an_unrelated_file_with_the_inode_of_a_deleted_one_is_not_read(tmp_path):
    writers = Scarce(tmp_path)
    writers.log.write_bytes(BANNER + record(1) + b"\n")
    writers.look()
    writers.log.rename(tmp_path / "other.log")  # as if a new file had got the inode
    os.truncate(tmp_path / "other.log", 0)
    (tmp_path / "other.log").write_bytes(record(9) + b"\n")
    writers.log.write_bytes(BANNER + record(2) + b"\n")
    writers.look()
    assert writers.records() == [record(1), record(2)]


def test_a_copy_that_gets_the_inode_number_of_the_deleted_original_is_not_read_again(tmp_path):
    """The log is replaced by its copy, as by rsync; then a rotation copies and truncates it."""
    writers = Restarted(tmp_path)
    writers.log.write_bytes(BANNER)
    writers.look()
    original = writers.log.stat().st_ino
    shutil.copy(writers.log, tmp_path / "swap")
    (tmp_path / "swap").replace(writers.log)
    writers.look()
    writers.follower.close()
    assert original not in {
        each.inode for each in positions_from_json(writers.kept) if each.path == str(writers.log)
    }
