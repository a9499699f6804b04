"""How far a file was read, in a form that survives the process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from ldlm_monitor.model.chunk import FileId
from ldlm_monitor.model.errors import InputError
from ldlm_monitor.source.disk import Disk, Key
from ldlm_monitor.source.fingerprint import Fingerprint

Count: TypeAlias = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading stands in one content of one file, and how to know that content again.

    `path` is the followed name, `place` where the file itself was. All that is before
    `offset` is in chunks that were given; `line` (1-based, counts `\\n`) is that of
    `offset`. `read` is `offset` plus what was read of an unfinished record. `head`
    and `window` are SHA-256 of the first KiB and of the KiB before `read`, shorter
    where `read` is. `nameless`: the name led to another file, or none, by then. `shown`:
    up to which byte an unfinished record was shown as it stood.
    """

    path: str
    place: str
    device: Count
    inode: Count
    generation: Count
    offset: Count
    line: Count
    read: Count
    head: str
    window: str
    nameless: bool = False
    shown: Count = 0

    @classmethod
    def at_start(cls, path: str, file: FileId) -> Position:
        """That of a file of which nothing was read."""
        nothing = Fingerprint().digests()
        return cls(path, path, *file, 0, 1, 0, *nothing)

    @classmethod
    def reached(cls, path: str, offset: int, line: int, disk: Disk) -> Position | None:
        """That of the file under a name, read up to `offset`; None: it is not there any more."""
        try:
            descriptor, key = disk.open_regular(Path(path))
            try:
                found = Fingerprint.of(disk, descriptor, offset)
            finally:
                disk.close(descriptor)
            place = str(disk.realpath(Path(path)))
        except (OSError, InputError):
            return None
        if found is None:
            return None
        return cls(path, place, *key, 0, offset, line, offset, *found.digests())

    @property
    def key(self) -> Key:
        """Device and inode."""
        return self.device, self.inode

    @property
    def file(self) -> FileId:
        """Names the content."""
        return self.device, self.inode, self.generation

    def verify(self, disk: Disk, descriptor: int) -> Fingerprint | None:
        """What the file holds, if that is the content that was read; else None."""
        found = Fingerprint.of(disk, descriptor, self.read)
        if found is None or found.digests() != (self.head, self.window):
            return None
        return found


_POSITIONS = TypeAdapter(list[Position])


def positions_to_json(positions: Iterable[Position]) -> str:
    """One JSON array, ASCII. Names that are not valid UTF-8 come back as they were."""
    return json.dumps([asdict(position) for position in positions], separators=(",", ":"))


def positions_from_json(text: str | bytes) -> list[Position]:
    """The positions of `positions_to_json`. Raises `InputError` for anything else."""
    try:
        return _POSITIONS.validate_python(json.loads(text))
    except (ValueError, ValidationError, RecursionError) as error:
        raise InputError(
            "the kept reading positions cannot be used",
            remedy="remove them to read the files from their start",
        ) from error
