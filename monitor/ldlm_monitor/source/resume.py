"""Finds the file of a position that was saved before a restart, or of a name that is gone."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from ldlm_monitor.model.errors import InputError
from ldlm_monitor.source.file_system import Disk, Key, likely_places
from ldlm_monitor.source.identity import COPY_BYTES
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.position import FilePosition
from ldlm_monitor.source.tail import Tail


@dataclass(frozen=True, slots=True)
class _Opened:
    """A candidate: a file that may be the one that the position describes."""

    path: Path
    descriptor: int
    key: Key


@dataclass(frozen=True, slots=True)
class Recall:
    """Finds the files of saved positions, and reports in the journal those that are gone."""

    journal: Journal
    disk: Disk

    def find(self, position: FilePosition, path: Path, now: float) -> Tail | None:
        """The file that `position` describes, ready to continue under the name `path`.

        The file may still have that name. It may be renamed in the same folder; it is then
        retired. The name may lead to a copy of it. The same file may hold new content,
        which is counted and read from its start. Or it is gone: that is counted, and the
        result is None. A reboot can change device numbers, so inode and content identify
        the file. Raises `OSError` or `InputError` while `path` cannot be read.
        """
        trouble: OSError | InputError | None = None
        opened = []
        try:
            opened.append(_Opened(path, *self.disk.open_regular(path)))
        except TimeoutError:
            raise
        except (OSError, InputError) as error:
            trouble = error
        if not (opened and self._is_same(position, opened[0])):  # listing folders is slow
            opened += self._candidates(position)
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

    def _is_same(self, position: FilePosition, file: _Opened) -> bool:
        """Whether the file has the inode and the content of the position."""
        return (
            file.key[1] == position.inode
            and position.verify(self.disk, file.descriptor) is not None
        )

    def _candidates(self, position: FilePosition) -> list[_Opened]:
        """The file at the old place, and files with its inode in the same folder."""
        found = []
        for place in likely_places(Path(position.place), position.inode, read=position.read):
            with contextlib.suppress(OSError, InputError):
                found.append(_Opened(place, *self.disk.open_regular(place)))
        return found

    def _choose(self, position: FilePosition, path: Path, opened: list[_Opened]) -> Tail | None:
        kept = [file for file in opened if position.verify(self.disk, file.descriptor)]
        for file in kept:
            if file.key[1] == position.inode:
                return self._begin(path, file, position.generation, position)
        if position.nameless:  # the system may have given its inode to any other file
            return None
        name = Path(position.place).name
        for file in opened:
            # An unrelated file that reuses the inode of a deleted one has another name.
            if file.key == position.key and (file.path == path or file.path.name.startswith(name)):
                shrunk = self.disk.fstat(file.descriptor).st_size < position.read
                self.journal.rewritten(str(path), position.read, shrunk=shrunk)
                return self._begin(path, file, position.generation + 1, None)
        for file in kept:
            if (
                file.path == path
                and position.offset >= COPY_BYTES
                and position.checksum.fits(self.disk, file.descriptor)
            ):
                self.journal.replaced(str(path), copied=True)
                return self._begin(path, file, 0, position)
        return None

    def _begin(self, path: Path, file: _Opened, generation: int, at: FilePosition | None) -> Tail:
        place = self.disk.realpath(file.path)
        tail = Tail(
            str(path), place, file.descriptor, file.key,
            generation=generation, journal=self.journal, disk=self.disk,
        )  # fmt: skip
        if at is not None:
            tail.continue_at(at)
        return tail


def find_again(tail: Tail) -> bool:
    """Open a closed file that lost its name: at its place, or renamed in the same folder."""
    for place in likely_places(tail.place, tail.key[1], read=tail.splitter.position):
        with contextlib.suppress(OSError, InputError):
            if tail.reopen(place) and tail.same_content():
                return True
            tail.close()  # another file has reused the inode
    return False
