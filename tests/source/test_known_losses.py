"""Sequences in which the follower loses or repeats records, found by the state machine of writers.

Each fails today, strictly: whoever mends the follower turns it green and takes the mark away.
"""

from pathlib import Path

from kept_positions import positions_from_json, positions_to_json

from ldlm_monitor.source.follow import Follower
from ldlm_monitor.source.named_files import RETIRED_SECONDS

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
