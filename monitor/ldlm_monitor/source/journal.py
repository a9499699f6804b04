"""What happened to the followed files, for people and for the monitor's own metrics."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "truncated",
    "rewritten",
    "replaced",
    "vanished",
    "returned",
    "unreadable",
    "readable",
    "record_cut",
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

    `lost_bytes` were seen to be there and were gone before they could be read;
    what is written and truncated between two looks nobody can count, which is
    why `truncations` are (files emptied or rewritten in place). `replacements`:
    another file appeared under a followed name. `cut_records` were too long.
    """

    notices: list[Notice] = field(default_factory=list)
    lost_bytes: int = 0
    truncations: int = 0
    replacements: int = 0
    cut_records: int = 0

    def note(self, kind: Kind, path: str, message: str) -> None:
        """Keep a notice until it is drained."""
        self.notices.append(Notice(kind, path, message))

    def drain(self) -> list[Notice]:
        """The notices that nobody has taken yet."""
        taken = self.notices.copy()
        self.notices.clear()
        return taken
