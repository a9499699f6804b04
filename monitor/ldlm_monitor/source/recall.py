"""Finding again, after a restart, the files that were read before it."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from ldlm_monitor.model.errors import InputError
from ldlm_monitor.source.disk import Disk, Key
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.position import Position
from ldlm_monitor.source.tail import COPY_BYTES, Tail, places


@dataclass(frozen=True, slots=True)
class _Opened:
    """A file that may be the one."""

    path: Path
    descriptor: int
    key: Key


@dataclass(frozen=True, slots=True)
class Recall:
    """Looks for the files of positions, and says what became of them."""

    journal: Journal
    disk: Disk

    def find(self, position: Position, path: Path, now: float) -> Tail | None:
        """The file that `position` tells of, ready to be read on, for the name `path`.

        It is under that name, or renamed beside where it was (then it is retired), or
        the name leads to a copy of it, or another content is in the same file (which is
        counted, and begun at its start), or it is gone (counted; None). A device may get
        another number by a restart: inode and content say which file it is. Raises
        `OSError` or `InputError` where nothing can be known until `path` can be read.
        """
        trouble: OSError | InputError | None = None
        opened = []
        try:
            opened.append(_Opened(path, *self.disk.open_regular(path)))
        except TimeoutError:
            raise
        except (OSError, InputError) as error:
            trouble = error
        if not (opened and self._is_there(position, opened[0])):  # listing folders takes long
            opened += self._beside(position)
        tail: Tail | None = None
        try:
            tail = self._choose(position, path, opened)
        finally:
            for file in opened:
                if tail is None or file.descriptor != tail.descriptor:
                    self.disk.close(file.descriptor)
        if tail is None:
            if trouble is not None and not position.nameless:
                raise trouble
            self.journal.lost_file(str(path), position.read)
        elif trouble is not None or tail.descriptor != opened[0].descriptor:
            tail.retired_at = now
        return tail

    def _is_there(self, position: Position, file: _Opened) -> bool:
        """Whether the file is still what its position tells of, under its own name."""
        return (
            file.key[1] == position.inode
            and position.verify(self.disk, file.descriptor) is not None
        )

    def _beside(self, position: Position) -> list[_Opened]:
        """Where the file was, and what was renamed there and has its inode."""
        found = []
        for place in places(Path(position.place), position.inode, read=position.read):
            with contextlib.suppress(OSError, InputError):
                found.append(_Opened(place, *self.disk.open_regular(place)))
        return found

    def _choose(self, position: Position, path: Path, opened: list[_Opened]) -> Tail | None:
        kept = [file for file in opened if position.verify(self.disk, file.descriptor)]
        for file in kept:
            if file.key[1] == position.inode:
                return self._begin(path, file, position.generation, position)
        if position.nameless:  # by now its inode may be any file's
            return None
        name = Path(position.place).name
        for file in opened:
            # A foreign file with the inode of a deleted one would have another name.
            if file.key == position.key and (file.path == path or file.path.name.startswith(name)):
                shrunk = self.disk.fstat(file.descriptor).st_size < position.read
                self.journal.rewritten(str(path), position.read, shrunk=shrunk)
                return self._begin(path, file, position.generation + 1, None)
        for file in kept:
            if file.path == path and position.offset >= COPY_BYTES:
                self.journal.replaced(str(path), copied=True)
                return self._begin(path, file, 0, position)
        return None

    def _begin(self, path: Path, file: _Opened, generation: int, at: Position | None) -> Tail:
        place = self.disk.realpath(file.path)
        tail = Tail(
            str(path), place, file.descriptor, file.key,
            generation=generation, journal=self.journal, disk=self.disk,
        )  # fmt: skip
        if at is not None:
            tail.start_at(at.offset, at.line, at.shown)
        return tail
