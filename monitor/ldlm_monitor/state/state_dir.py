"""The folder of what must survive a restart: one per set of inputs, one daemon at a time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ldlm_monitor.model.errors import UsageError


def default_state_dir(files: Sequence[str], base: Path) -> Path:
    """Under `$XDG_STATE_HOME/ldlm-monitor/`, named after the inputs (their order aside)."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    inputs = sorted(str(base / file) if file != "-" else file for file in files)
    digest = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:12]
    return Path(home) / "ldlm-monitor" / digest


class Room:
    """The free bytes of the disk that a folder is on, `free`; None where it does not tell.

    They are told anew once they differ by a hundredth: others write to the disk all the time, and
    each change is an evaluation of the rules.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.free: int | None = None

    def look(self) -> int | None:
        """The free bytes, those for root alone left out."""
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            self.free = None
            return None
        free = disk.f_bavail * disk.f_frsize
        if self.free is None or abs(free - self.free) * 100 >= max(free, self.free):
            self.free = free
        return self.free


class StateDir:
    """The folder, locked against a second daemon on the same inputs.

    `notice` is one line where the folder cannot be written: then `path` is a
    temporary one, nothing is locked, and nothing survives a restart.
    """

    def __init__(self, wanted: Path) -> None:
        self.path = wanted
        self.notice: str | None = None
        self._lock: IO[str] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        try:
            wanted.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = (wanted / "daemon.json").open("a+", encoding="utf-8")
        except OSError as error:
            self._temporary = tempfile.TemporaryDirectory(prefix="ldlm-monitor-")
            self.path = Path(self._temporary.name)
            self.notice = (
                f"{wanted}: cannot be written ({error.strerror}); monitoring goes on, but "
                "nothing will survive a restart: name another folder with --state-dir"
            )
            return
        self._take()

    def announce(self, url: str) -> None:
        """Leave the address where the next daemon on these inputs finds it."""
        if self._lock is not None:
            self._lock.seek(0)
            self._lock.truncate()
            self._lock.write(json.dumps({"pid": os.getpid(), "url": url}))
            self._lock.flush()

    def close(self) -> None:
        """Unlock; what is in the folder stays, unless it is a temporary one."""
        if self._lock is not None:
            self._lock.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _take(self) -> None:
        assert self._lock is not None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            text = self._lock.read()
            self._lock.close()
            raise UsageError(
                "another ldlm-monitor follows these inputs already",
                where=str(self.path),
                remedy=_how_to_see(text),
            ) from error


def _how_to_see(text: str) -> str:
    try:
        url = json.loads(text)["url"]
    except (ValueError, KeyError, TypeError):
        return "stop it first, or name another folder with --state-dir"
    return f"see it with `ldlm-monitor attach {url}`, or name another folder with --state-dir"
