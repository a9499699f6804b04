"""Notices and counts of what happened to the followed files."""

from dataclasses import dataclass, field, fields
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
    """Notices since the last `drain`, and counts since the start.

    `lost_bytes`: bytes that were in a file's size and disappeared before they were read,
    or read again after a restart.
    Bytes written and truncated between two checks cannot be counted; `truncations` counts
    the files emptied or rewritten in place. `replacements`: another file appeared under a
    followed name. `gone`: files read before a restart and not found after it.
    `cut_records` were too long. `stalls`: file systems that stopped answering; `silent`:
    those that do not answer at present.
    """

    notices: list[Notice] = field(default_factory=list)
    lost_bytes: int = 0
    truncations: int = 0
    replacements: int = 0
    gone: int = 0
    cut_records: int = 0
    stalls: int = 0
    silent: set[Mount] = field(default_factory=set)

    def note(self, kind: NoticeKind, path: str, message: str) -> None:
        """Keep a notice until it is drained."""
        self.notices.append(Notice(kind, path, message))

    def cut(self, path: str, count: int) -> None:
        """Count `count` records of `path` that were longer than 1 MiB."""
        if count:
            self.cut_records += count
            self.note("record_cut", path, "a record longer than 1 MiB was cut; the next are whole")

    def rewritten(self, path: str, read: int, *, shrunk: bool) -> None:
        """The file holds new content, after `read` bytes of the old were read."""
        self.truncations += 1
        self.note(
            "truncated" if shrunk else "rewritten",
            path,
            f"was {'truncated' if shrunk else 'rewritten in place'} after byte {read} had been "
            "read; reading it from the start",
        )

    def replaced(self, path: str, *, copied: bool) -> None:
        """The name `path` leads to another file."""
        self.replacements += 1
        if copied:
            self.note("copied", path, "was replaced by a copy of itself; reading continues")
        else:
            self.note("replaced", path, "is another file now; the old one is read to its end first")

    def lost_file(self, path: str, read: int) -> None:
        """The file that was read under the name `path` before a restart cannot be found."""
        self.gone += 1
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
        self.stalls += 1
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

    def absorb(self, other: "Journal") -> None:
        """Move the notices and counts of another journal into this one."""
        self.notices += other.drain()
        for count in COUNTS:
            setattr(self, count, getattr(self, count) + getattr(other, count))
            setattr(other, count, 0)

    def drain(self) -> list[Notice]:
        """Remove and return the notices."""
        drained = self.notices.copy()
        self.notices.clear()
        return drained


COUNTS = tuple(count.name for count in fields(Journal) if count.type is int)
