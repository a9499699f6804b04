"""The waker of a pump whose turns a test calls itself."""

from collections.abc import Collection
from pathlib import Path


class PollingWaker:
    """Waits for nothing and watches nothing: each turn looks at every file."""

    def watches(self, folder: Path) -> bool:
        del folder
        return False

    def watch(self, folders: Collection[Path]) -> None:
        del folders

    def ring(self, path: Path) -> None:
        del path
