"""A follower that is really killed, at any moment, while its files are rotated and truncated."""

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

FOLLOWER = """
import sqlite3, sys, time
from pathlib import Path
sys.path.append(sys.argv[3])
from tests.logs.source.kept_positions import positions_from_json, positions_to_json
from ldlm_monitor.logs.source.follower import Follower

log, state = Path(sys.argv[1]), sqlite3.connect(sys.argv[2], isolation_level=None)
state.execute("PRAGMA journal_mode=WAL")
state.execute("CREATE TABLE IF NOT EXISTS records (text TEXT)")
state.execute("CREATE TABLE IF NOT EXISTS kept (positions TEXT)")
rows = state.execute("SELECT positions FROM kept").fetchall()
follower = Follower()
follower.add(log, resume=positions_from_json(rows[0][0]) if rows else [])
print("following", flush=True)
while True:
    records = [
        (record.decode(),)
        for chunk in follower.read(None, time.time(), budget=1)
        if not chunk.peek
        for record in chunk.data.splitlines()
    ]
    state.execute("BEGIN")
    state.executemany("INSERT INTO records VALUES (?)", records)
    state.execute("DELETE FROM kept")
    state.execute("INSERT INTO kept VALUES (?)", [positions_to_json(follower.positions())])
    state.execute("COMMIT")
"""
BANNER = b"#" * 1500 + b"\n"


class Killed:
    """The log, its writer, and the follower's process."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.log = folder / "train.log"
        self.state = folder / "state.sqlite"
        self.count = 0
        self.rotated = 0
        self.excused: set[int] = set()
        self.life: list[int] = []
        self.writer = self.log.open("ab", buffering=0)
        self.process: subprocess.Popen[str] | None = None

    def write(self) -> None:
        for _ in range(self.random.randrange(1, 400)):
            self.count += 1
            self.life.append(self.count)
            self.writer.write(b"%d %s\n" % (self.count, b"x" * self.random.randrange(0, 900)))

    def rotate(self) -> None:
        """The old file stays in the folder, where every reader finds it."""
        self.rotated += 1
        self.log.rename(self.folder / f"train.log.{self.rotated}")
        old, self.writer = self.writer, self.log.open("ab", buffering=0)
        self.writer.write(BANNER)
        self.count += 1
        old.write(b"%d late\n" % self.count)
        old.close()
        self.life = []

    def truncate(self) -> None:
        """Between looks nobody can know what was there."""
        self.excused.update(self.life)
        os.truncate(self.log, 0)
        self.life = []
        self.writer.write(BANNER)

    def restart(self) -> None:
        self.kill()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                FOLLOWER,
                str(self.log),
                str(self.state),
                str(Path(__file__).parents[3]),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "following\n"

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def records(self) -> list[int]:
        with sqlite3.connect(self.state) as state:
            texts = [text for (text,) in state.execute("SELECT text FROM records")]
        state.close()
        return [int(text.split()[0]) for text in texts if text and text[0] != "#"]

    def until_seen(self, number: int) -> None:
        while number not in self.records():
            assert self.process is not None
            assert self.process.poll() is None


@pytest.mark.long
@pytest.mark.live
@pytest.mark.parametrize("seed", range(8))
def test_a_killed_follower_goes_on_with_nothing_lost_and_nothing_twice(tmp_path, seed):
    scene = Killed(tmp_path, seed)
    try:
        scene.restart()
        for _ in range(30):
            scene.write()
            step = scene.random.choice([scene.rotate, scene.truncate, scene.restart, scene.write])
            if step == scene.rotate:  # a file that nobody saw under its name is nobody's
                scene.until_seen(scene.count)
            step()
        scene.write()
        scene.until_seen(scene.count)
        scene.restart()
        scene.write()
        scene.until_seen(scene.count)
    finally:
        scene.kill()
        scene.writer.close()
    came = scene.records()
    assert len(came) == len(set(came)), "a record came twice"
    assert set(range(1, scene.count + 1)) - set(came) <= scene.excused
