"""Files that were found and wait for what they hold to be judged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ldlm_monitor.run.run_names import RunNames
from ldlm_monitor.source.file_system import Disk

JOIN_BYTES = 8 * 1024 * 1024
"""Of files that join later, placed and judged together: whole runs, until they are so long."""


class JoinQueue:
    """`behind`: their bytes, which another thread may ask for."""

    def __init__(self, names: RunNames, disk: Disk) -> None:
        self._names = names
        self._disk = disk
        self._sizes: dict[Path, int] = {}
        self.behind = 0

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def add(self, paths: Iterable[Path]) -> None:
        """Wait for their turn."""
        self._sizes |= {path: self._size(path) for path in paths}
        self.behind = sum(self._sizes.values())

    def take(self, *, everything: bool) -> list[Path]:
        """Those that are judged next: all, or the first runs, whose files belong together."""
        runs: dict[str, list[Path]] = {}
        for path in sorted(self._sizes):
            runs.setdefault(self._names.origin(str(path)).run, []).append(path)
        chosen: list[Path] = []
        size = 0
        for paths in runs.values():
            if everything or size < JOIN_BYTES:
                chosen += paths
                size += sum(self._sizes.pop(path) for path in paths)
        self.behind -= size
        return sorted(chosen)

    def _size(self, path: Path) -> int:
        try:
            return self._disk.stat(path).st_size
        except OSError:  # placing it reports the error
            return 0
