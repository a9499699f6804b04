"""Notices of what happened to the followed files."""

from collections import deque
from dataclasses import dataclass, field

from ldlm_monitor.base.text.format import duration
from ldlm_monitor.logs.source.file_system import Mount

STALL_SECONDS = 5.0
"""A mount that has not answered for so long is reported: a busy NFS server answers within a
second or two, and a user should see a dead one before the first alert fires."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the user.

    `kind`: a word for programs, such as `unreadable`; each method of `Journal` writes its own.
    `path` is empty if the line concerns no single file.
    """

    kind: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(slots=True)
class Journal:
    """Notices since the last `drain`; several threads may note.

    `silent`: the mounts that do not answer at present, each with the readers that wait for it.
    `is_exhausted`: `exhausted` gave its notice.
    """

    notices: deque[Notice] = field(default_factory=deque)
    silent: dict[Mount, set[object]] = field(default_factory=dict)
    is_exhausted: bool = False

    def note(self, kind: str, path: str, message: str) -> None:
        """Keep a notice until it is drained."""
        self.notices.append(Notice(kind, path, message))

    def cut(self, path: str, count: int) -> None:
        """Note that `count` records of `path`, if any, were longer than `split.RECORD_BYTES`."""
        if count:
            text = "a record longer than 1 MiB was cut or skipped; later records are read whole"
            self.note("record_cut", path, text)

    def rewritten(self, path: str, read: int, *, shrunk: bool) -> None:
        """Note new content of a file; `read`: bytes read of the old; `shrunk`: it has fewer."""
        how = "truncated" if shrunk else "rewritten in place"
        text = f"was {how} after byte {read} had been read; reading it from the start"
        self.note("truncated" if shrunk else "rewritten", path, text)

    def returned(self, path: str, read: int, size: int) -> None:
        """Note that a file of which `read` bytes were read had only `size`, and has them again."""
        text = f"went back from {read} to {size} bytes and has the same again; reading continues"
        self.note("returned", path, text)

    def replaced(self, path: str, *, copied: bool) -> None:
        """Note that the name `path` leads to another file; `copied`: to a copy of the old file."""
        if copied:
            self.note("copied", path, "was replaced by a copy of itself; reading continues")
        else:
            text = "leads to another file now; the old one is read to its end first"
            self.note("replaced", path, text)

    def lost_file(self, path: str, read: int) -> None:
        """Note that a file is gone of which `read` bytes were read before a restart."""
        text = f"the file read before the restart is gone; its bytes from {read} on are not read"
        self.note("gone", path, text)

    def stalled(self, path: str, mount: Mount, seconds: float, reader: object) -> None:
        """Note that a call for `path` has not returned for `seconds`; `reader` waits for it.

        One notice is given for all readers of the mount, after `STALL_SECONDS`.
        """
        if seconds < STALL_SECONDS:
            return
        if mount not in self.silent:
            text = f"no answer from {mount} for {duration(seconds)}; other files are still read"
            self.note("stalled", path, text)
        self.silent.setdefault(mount, set()).add(reader)

    def answered(self, mount: Mount, reader: object) -> None:
        """Remove `reader` from those that wait; note when none waits for the mount any more."""
        readers = self.silent.get(mount, set())
        readers.discard(reader)
        if mount in self.silent and not readers:
            del self.silent[mount]
            self.note("answering", "", f"{mount} answers again")

    def exhausted(self) -> None:
        """Note, once per journal, that the process may open no more files."""
        if not self.is_exhausted:
            self.is_exhausted = True
            text = "no more files can be opened, and some logs are read late: raise `ulimit -n`"
            self.note("exhausted", "", text)

    def drain(self) -> list[Notice]:
        """Remove and return the notices."""
        return [self.notices.popleft() for _ in range(len(self.notices))]
