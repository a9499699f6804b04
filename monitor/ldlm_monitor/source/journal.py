"""What happened to the followed files, for people and for the monitor's own metrics."""

from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from ldlm_monitor.source.mounts import Mount

Kind: TypeAlias = Literal[
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
    """One thing worth a line to the user. `path` is empty where no one file is meant."""

    kind: Kind
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(slots=True)
class Journal:
    """Notices since they were last drained, and counts since the start.

    `lost_bytes` were seen to be there and were gone before they could be read, or read again
    after a restart;
    what is written and truncated between two looks nobody can count, which is
    why `truncations` are (files emptied or rewritten in place). `replacements`:
    another file appeared under a followed name. `gone`: files that were read before
    a restart and were not to be found after it. `cut_records` were too long.
    `stalls`: a file system gave no answer for a while; `silent`: those that do not now.
    """

    notices: list[Notice] = field(default_factory=list)
    lost_bytes: int = 0
    truncations: int = 0
    replacements: int = 0
    gone: int = 0
    cut_records: int = 0
    stalls: int = 0
    silent: set[Mount] = field(default_factory=set)

    def note(self, kind: Kind, path: str, message: str) -> None:
        """Keep a notice until it is drained."""
        self.notices.append(Notice(kind, path, message))

    def cut(self, path: str, count: int) -> None:
        """Count records of `path` that were longer than 1 MiB, if there were any."""
        if count:
            self.cut_records += count
            self.note("record_cut", path, "a record longer than 1 MiB was cut; the next are whole")

    def rewritten(self, path: str, read: int, *, shrunk: bool) -> None:
        """Another content is where `read` bytes of `path` had been read."""
        self.truncations += 1
        self.note(
            "truncated" if shrunk else "rewritten",
            path,
            f"was {'truncated' if shrunk else 'rewritten in place'} after byte {read} had been "
            "read; reading it from its start",
        )

    def replaced(self, path: str, *, copied: bool) -> None:
        """Another file is under the name `path`."""
        self.replacements += 1
        if copied:
            self.note("copied", path, "was replaced by a copy of itself; going on where it was")
        else:
            self.note("replaced", path, "is another file now; the old one is read to its end first")

    def lost_file(self, path: str, read: int) -> None:
        """A file that was read under the name `path` before a restart is not to be found."""
        self.gone += 1
        self.note(
            "gone", path, f"the file read before is gone, and what it got after byte {read} with it"
        )

    def stalled(self, path: str, mount: Mount, seconds: float) -> None:
        """Nothing is heard from `mount` since `path` was asked for `seconds` ago.

        Said once, whoever else finds it out, until it has `answered`.
        """
        if mount in self.silent:
            return
        self.silent.add(mount)
        self.stalls += 1
        self.note(
            "stalled", path, f"no answer from {mount} for {seconds:.0f} s; the other files go on"
        )

    def answered(self, mount: Mount) -> None:
        """`mount` had stalled, and answers again."""
        if mount in self.silent:
            self.silent.remove(mount)
            self.note("answering", "", f"{mount} answers again")

    def absorb(self, other: "Journal") -> None:
        """Take over what another journal holds, and leave it empty."""
        self.notices += other.drain()
        for count in COUNTS:
            setattr(self, count, getattr(self, count) + getattr(other, count))
            setattr(other, count, 0)

    def drain(self) -> list[Notice]:
        """The notices that nobody has taken yet."""
        taken = self.notices.copy()
        self.notices.clear()
        return taken


COUNTS = tuple(count.name for count in fields(Journal) if count.type is int)
