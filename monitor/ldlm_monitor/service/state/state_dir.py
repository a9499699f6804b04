"""The folder of files that survive a restart: one per set of inputs, one daemon at a time."""

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.text.state_home import state_home

LOCK = "daemon.json"
"""The file that a running daemon holds locked; it contains the daemon's process id and URL."""
OWN_FILES = frozenset({"daemon", "ledger", "outbox", "silences", "arrivals"})
"""File names, up to the first dot, that one or more versions of the monitor write there."""


def default_state_dir(files: Sequence[str], base: Path) -> Path:
    """`$XDG_STATE_HOME/ldlm-monitor/HASH`; the hash is that of the paths of `files` in `base`."""
    inputs = sorted(str(base / file) if file != "-" else file for file in files)
    digest = hashlib.sha256(os.fsencode("\0".join(inputs))).hexdigest()
    return state_home() / digest[:12]  # 48 bits: short, and far from a collision


def announced(folder: Path) -> str | None:
    """The URL of the daemon that holds a state folder; None if none does."""
    try:
        with (folder / LOCK).open(encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return str(json.load(lock)["url"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


class StateDir:
    """The state folder, locked against a second daemon; only its owner may enter.

    `notice`: one line for the user about the folder, or None. If the folder cannot be written,
    `path` is a temporary one, nothing is locked, and nothing survives a restart. Raises
    `UsageError` if a daemon uses the folder already, or if another user than root owns it or may
    write to it, who could change the messages that are sent. `free`: as `look` returned last.
    """

    def __init__(self, wanted: Path) -> None:
        self.path = wanted
        self.notice: str | None = None
        self.free: int | None = None
        self._lock: IO[str] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        try:
            wanted.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.notice = _restrict(wanted)
            self._lock = os.fdopen(_for_the_owner(wanted / LOCK), "a+", encoding="utf-8")
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
        """Write the daemon's URL into the lock file, for a second daemon's error message."""
        if self._lock is not None:
            text = json.dumps({"pid": os.getpid(), "url": url})
            with contextlib.suppress(OSError):  # a full disk: the message then has no URL
                os.truncate(self._lock.fileno(), 0)
                os.write(self._lock.fileno(), text.encode())

    def look(self) -> int | None:
        """The free bytes of the folder's disk, without those reserved for root; None if unknown.

        Changes below 1 % do not change the result: other processes write to the disk all
        the time, and each change costs an evaluation of the rules.
        """
        try:
            disk = os.statvfs(self.path)
        except OSError:
            self.free = None
            return None
        free = disk.f_bavail * disk.f_frsize
        if self.free is None or abs(free - self.free) * 100 >= max(free, self.free):
            self.free = free
        return self.free

    def close(self) -> None:
        """Unlock the folder; if it is a temporary one, delete it."""
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
            what = "another ldlm-monitor follows these inputs already"
            raise UsageError(what, where=str(self.path), remedy=_how_to_see(text)) from error


def _restrict(folder: Path) -> str | None:
    """Close the folder to other users; return a notice, or None if it was closed already."""
    status = folder.stat()
    # A container's volume belongs to root; its users may write to it by their group.
    if status.st_uid not in (os.geteuid(), 0):
        remedy = "name a folder of your own with --state-dir"
        raise UsageError("belongs to another user", where=str(folder), remedy=remedy)
    if not status.st_mode & 0o077:
        return None
    # A folder with other files is the user's own, and may be shared on purpose: no chmod.
    is_ours = all(path.name.partition(".")[0] in OWN_FILES for path in folder.iterdir())
    if is_ours and status.st_uid == os.geteuid():
        folder.chmod(0o700)
        return f"{folder}: was open to other users, and has mode 0700 now"
    if status.st_mode & 0o002:
        remedy = "name a folder of your own with --state-dir"
        raise UsageError("every user may write to it", where=str(folder), remedy=remedy)
    return f"{folder}: other users may enter it; choose a folder of its own with --state-dir"


def _for_the_owner(path: Path) -> int:
    # O_NOFOLLOW: a link planted before the folder was closed would let us write to its target.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _how_to_see(text: str) -> str:
    try:
        url = json.loads(text)["url"]
    except (ValueError, KeyError, TypeError):
        return "stop it first, or name another folder with --state-dir"
    return f"see it with `ldlm-monitor attach {url}`, or name another folder with --state-dir"
