"""The files that were rotated from a log, and whether one of them is its copy."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from ldlm_monitor.base.chunk import rotated_from, uncompressed
from ldlm_monitor.logs.source.file_identity import COPY_BYTES
from ldlm_monitor.logs.source.file_system import Disk


def rotated_beside(disk: Disk, place: Path) -> dict[Path, os.stat_result]:
    """The files that by their names were rotated from the log at `place`; none compressed."""
    found: dict[Path, os.stat_result] = {}
    with contextlib.suppress(OSError):
        for name, kind in disk.listing(place.parent):
            if kind == "file" and name.startswith(place.name) and uncompressed(name) == name:
                log, added = rotated_from(name)
                if added and log == place.name:
                    found[place.with_name(name)] = disk.stat(place.with_name(name))
    return found


def was_copied(disk: Disk, place: Path, read: int, same_content: Callable[[int], bool]) -> bool:
    """Whether a rotation copied the file at `place`, of which `read` bytes were read, beside it.

    `same_content`: whether the file behind a descriptor begins with these bytes.
    """
    found = rotated_beside(disk, place) if read >= COPY_BYTES else {}
    for path in found:
        with contextlib.suppress(OSError):  # deleted by the rotation
            descriptor, _ = disk.open_regular(path)
            try:
                if same_content(descriptor):
                    return True
            finally:
                disk.close(descriptor)
    return False
