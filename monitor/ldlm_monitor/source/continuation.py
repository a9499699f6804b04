"""One file, read on after a restart from where it was read to before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ldlm_monitor.model.chunk import Chunk, FileId
from ldlm_monitor.source.disk import DIRECT, Disk
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.position import Position
from ldlm_monitor.source.recall import Recall
from ldlm_monitor.source.split import RECORD_BYTES
from ldlm_monitor.source.tail import Tail

START_BYTES = 256


class Continuation:
    """What a file got since its kept position: chunks, exactly as they would have come live.

    `path` is the followed name, `place` where the file is now, `offset` where the first
    chunk begins, `size` its bytes, `modified` (Unix seconds) when it was written last.
    `has_name`: it is the one that the name leads to now. `start`: the file's first bytes.
    """

    def __init__(self, tail: Tail, disk: Disk) -> None:
        self._tail = tail
        self._disk = disk
        descriptor = tail.descriptor
        assert descriptor is not None  # it was found by opening it
        self._descriptor = descriptor
        self._status = disk.fstat(descriptor)
        self.path = tail.name
        self.place: Path = tail.place
        self.file: FileId = tail.splitter.file
        self.offset = tail.splitter.offset
        self.modified = self._status.st_mtime
        self.size = self._status.st_size
        self.has_name = tail.retired_at is None
        self.start = disk.pread(descriptor, START_BYTES, 0)

    @classmethod
    def of(
        cls, position: Position, now: float, journal: Journal, disk: Disk = DIRECT
    ) -> Continuation | None:
        """The file that `position` tells of, as `Recall.find` finds it; None: it is gone.

        Raises `OSError` or `InputError` where the name cannot be read now.
        """
        tail = Recall(journal, disk).find(position, Path(position.path), now)
        return None if tail is None else cls(tail, disk)

    def begin_at(self, offset: int, line: int) -> None:
        """Read again from `offset` on, where a record begins; `line` is its line."""
        self._tail.begin_at(offset, line)
        self.offset = offset

    def chunks(self, now: float) -> Iterator[Chunk]:
        """Whole records up to the file's end, read at `now`. Raises `OSError`."""
        self._tail.see(self._status, now)
        while self._tail.due:
            before = self._tail.splitter.position
            found = self._tail.read(now)
            yield from found
            if not found and self._tail.splitter.position == before:
                return  # emptied meanwhile: there is less than was seen

    def unfinished(self) -> Chunk | None:
        """The last record as it stands, if its end is missing. Exhaust `chunks` first."""
        return self._tail.splitter.rest() if self._tail.splitter.unfinished else None

    def note_shown(self, stop: int) -> None:
        """Up to byte `stop` an unfinished record was shown."""
        self._tail.splitter.shown = max(self._tail.splitter.shown, stop)

    def show(self) -> Chunk:
        """What is `unfinished`; from now on it was shown."""
        return self._tail.splitter.peek()

    @property
    def was_shown(self) -> bool:
        """Whether the unfinished record was, as it stands."""
        return self._tail.splitter.peek_at() is None

    def part(self, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop`, as they are now; no more than a record may have."""
        return self._disk.pread(self._descriptor, min(stop - start, RECORD_BYTES), start)

    def finish(self) -> Chunk:
        """The last chunk: nothing more will be read of the file."""
        return self._tail.finish()

    def position(self) -> Position | None:
        """Where reading stands now; None: it was finished, and nobody can write to it by name."""
        if self._tail.finished and not self._disk.fstat(self._descriptor).st_nlink:
            return None
        return self._tail.position()

    def close(self) -> None:
        """Give the descriptor back."""
        self._tail.close()
