"""Files that were found, and wait until the bytes that they have are judged."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.run.run_names import RunNames
from ldlm_monitor.source.file_system import Disk

JOIN_BYTES = 8 * 1024 * 1024
"""New files of a running daemon are judged together, by whole runs, up to about so many bytes. A
choice: with more, there are fewer histories to play; with less, the first ends sooner."""


@dataclass(slots=True)
class JoinQueue:
    """The waiting files. `behind`: the sum of their sizes in bytes; any thread may read it."""

    names: RunNames
    disk: Disk
    behind: int = 0
    _sizes: dict[Path, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def add(self, paths: Iterable[Path]) -> None:
        """Add files that wait to be judged."""
        self._sizes |= {path: self._size(path) for path in paths}
        self.behind = sum(self._sizes.values())

    def take(self, *, everything: bool) -> list[Path]:
        """Remove and return the files to judge next: all (`everything`), or about `JOIN_BYTES`."""
        runs: dict[str, list[Path]] = {}
        for path in sorted(self._sizes):
            runs.setdefault(self.names.origin(str(path)).run, []).append(path)
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
            return self.disk.stat(path).st_size
        except OSError:  # the backfill reports the error
            return 0
