"""Notices of what happened to the followed files."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ldlm_monitor.source.file_system import Mount
from ldlm_monitor.text.format import duration

NoticeKind: TypeAlias = Literal[
    "truncated",
    "rewritten",
    "replaced",
    "vanished",
    "returned",
    "unreadable",
    "readable",
    "copied",
    "gone",
    "record_cut",
    "stalled",
    "answering",
    "watching",
    "exhausted",
]


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the user. `path` is empty if it concerns no single file."""

    kind: NoticeKind
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(slots=True)
class Journal:
    """Notices since the last `drain`; `silent`: file systems that do not answer at present.

    `lost_bytes` were in a file's size and disappeared before they were read, or read again
    after a restart. Bytes written and truncated between two checks cannot be counted.
    """

    notices: list[Notice] = field(default_factory=list)
    lost_bytes: int = 0
    silent: set[Mount] = field(default_factory=set)
    is_exhausted: bool = False

    def note(self, kind: NoticeKind, path: str, message: str) -> None:
        """Keep a notice until it is drained."""
        self.notices.append(Notice(kind, path, message))

    def cut(self, path: str, count: int) -> None:
        """`count` records of `path` were longer than 1 MiB."""
        if count:
            self.note("record_cut", path, "a record longer than 1 MiB was cut; the next are whole")

    def rewritten(self, path: str, read: int, *, shrunk: bool) -> None:
        """The file holds new content, after `read` bytes of the old were read."""
        self.note(
            "truncated" if shrunk else "rewritten",
            path,
            f"was {'truncated' if shrunk else 'rewritten in place'} after byte {read} had been "
            "read; reading it from the start",
        )

    def replaced(self, path: str, *, copied: bool) -> None:
        """The name `path` leads to another file."""
        if copied:
            self.note("copied", path, "was replaced by a copy of itself; reading continues")
        else:
            self.note("replaced", path, "is another file now; the old one is read to its end first")

    def lost_file(self, path: str, read: int) -> None:
        """The file that was read under the name `path` before a restart cannot be found."""
        self.note(
            "gone", path, f"the file read before is gone; everything after byte {read} is lost"
        )

    def stalled(self, path: str, mount: Mount, seconds: float) -> None:
        """A read of `path` on `mount` has not returned for `seconds`.

        Reported once until the mount has `answered`, whichever reader finds it first.
        """
        if mount in self.silent:
            return
        self.silent.add(mount)
        self.note(
            "stalled",
            path,
            f"no answer from {mount} for {duration(seconds)}; other files are still read",
        )

    def answered(self, mount: Mount) -> None:
        """A mount that had stalled answers again."""
        if mount in self.silent:
            self.silent.remove(mount)
            self.note("answering", "", f"{mount} answers again")

    def exhausted(self) -> None:
        """The process may open no more files; said once."""
        if not self.is_exhausted:
            self.is_exhausted = True
            self.note(
                "exhausted",
                "",
                "no more files can be opened (see `ulimit -n`); some logs wait until one is closed",
            )

    def absorb(self, other: "Journal") -> None:
        """Move the notices of another journal into this one."""
        self.notices += other.drain()
        self.lost_bytes += other.lost_bytes
        other.lost_bytes = 0

    def drain(self) -> list[Notice]:
        """Remove and return the notices."""
        drained = self.notices.copy()
        self.notices.clear()
        return drained
