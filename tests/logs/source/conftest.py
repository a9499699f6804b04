"""A reader of real files whose time is an argument, and a guard against left threads."""

import re
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.logs.source.follower import Follower
from ldlm_monitor.logs.source.tail import Tail


class Reader:
    """A follower with a clock of its own that keeps all that it was given."""

    def __init__(self, *paths: Path, **options: int) -> None:
        self.follower = Follower(**options)
        self.now = 1000.0
        self.chunks: list[Chunk] = []
        for path in paths:
            self.follower.add(path)

    def look(
        self, paths: Collection[Path] | None = None, *, after: float = 0.0, **options: int
    ) -> list[bytes]:
        """The records that are new `after` so many seconds, without their ends."""
        self.now += after
        new = list(self.follower.read(paths, self.now, **options))
        self.chunks += new
        return records(new)

    def end(self) -> list[bytes]:
        new = list(self.follower.finish())
        self.chunks += new
        return records(new)

    def tails(self) -> list[Tail]:
        """The local files that are read."""
        registry = self.follower._local._named_files
        return [tail for _, tail in registry.live.values()]

    def notices(self) -> list[str]:
        return [notice.kind for notice in self.follower.journal.drain()]


def records(chunks: list[Chunk]) -> list[bytes]:
    data = [chunk.data for chunk in chunks if not chunk.peek]
    return [record for piece in data for record in re.split(rb"\r\n|\n|\r", piece) if record]


@pytest.fixture
def reading() -> Iterator[Callable[..., Reader]]:
    """`reading(path, ...)` is a Reader of these paths; its descriptors are given back."""
    made: list[Reader] = []

    def make(*paths: Path, **options: int) -> Reader:
        made.append(Reader(*paths, **options))
        return made[-1]

    yield make
    for reader in made:
        reader.follower.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    assert not left, f"threads left running: {left}"
