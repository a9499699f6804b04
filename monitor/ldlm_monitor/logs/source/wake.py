"""Decides when files are checked again: on an event of their folder, and by polling.

An event only names a path to check; the check finds what happened. Every file is checked without
events too: each second, or in turn if thousands are watched (`Rota`).
"""

import contextlib
import errno
import os
import queue
import select
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ldlm_monitor.base.text.format import duration
from ldlm_monitor.logs.source.file_system import MountTable, read_mounts, working_folder
from ldlm_monitor.logs.source.inotify import FileEvents
from ldlm_monitor.logs.source.notices import Journal

if TYPE_CHECKING:
    from ldlm_monitor.logs.source.watchdog_events import WatchdogEvents

POLL_SECONDS = 0.25
"""Seconds between two checks of files whose folder has no events. A choice: a shorter time costs
a `stat` per file more often, a longer one delays the files."""
GATHER_SECONDS = 0.02
"""Events within so many seconds after the first are handled in one turn, so that many growing files
cost at most 50 turns a second. A choice: longer delays every record."""
CHECKED_FILES = 500
"""Files in watched folders that are checked each second without an event. More cost more (these
half a percent of a core); fewer delay changes that cause no event (through a memory map, or beyond
the system's queue of 16,384 events). With 10,000 files such a change is seen within 20 s."""


def file_events() -> "FileEvents | WatchdogEvents":
    """The system's file events. Raises `OSError` where they cannot be had."""
    if sys.platform == "linux":
        return FileEvents()
    from ldlm_monitor.logs.source.watchdog_events import WatchdogEvents

    return WatchdogEvents()


class Waker:
    """Wakes when the operating system reports a change in a watched folder.

    If some folder cannot be watched (on a network, beyond the system's limits), waits end
    after `interval` seconds (polling); `journal` gets one notice of each reason. `mounts` returns
    the present mount table. Only `ring` may be called by other threads and by signal handlers.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        interval: float = POLL_SECONDS,
        mounts: Callable[[], MountTable] = read_mounts,
    ) -> None:
        self._journal = journal
        self._mounts = mounts
        self._interval = interval
        self._paths: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._polled: set[Path] = set()
        self._reported: set[str] = set()
        self._bell, self._woken = socket.socketpair()
        self._bell.setblocking(False)
        self._woken.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        self._events: FileEvents | WatchdogEvents | None = None
        try:
            self._events = file_events()
        except OSError as error:
            self._report(_reason("file events are not available", error))
        else:
            self._poll.register(self._events.descriptor, select.POLLIN)

    @property
    def polling(self) -> bool:
        """Whether some folder cannot be watched, so that its files are polled."""
        return self._events is None or bool(self._polled)

    def wait(self, timeout: float) -> set[Path] | None:
        """Wait for events and calls of `ring`, and return their paths; empty if none came.

        Waits at most `timeout` seconds; while `polling` at most `interval`, and then returns None
        if none came: any file may have changed. So it may where the system lost events.
        """
        if self.polling:
            timeout = min(timeout, self._interval)
        if not self._poll.poll(max(timeout, 0.0) * 1000):
            return None if self.polling else set()
        if timeout > 0:  # else a backlog is read, and the events wait in the kernel
            time.sleep(GATHER_SECONDS)
        paths: set[Path] = set()
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        with contextlib.suppress(queue.Empty):
            while True:
                paths.add(self._paths.get_nowait())
        changed = set() if self._events is None else self._events.read()
        return None if changed is None else paths | changed

    def watches(self, folder: Path) -> bool:
        """Whether this folder is watched, so that a change in it ends the wait."""
        return self._events is not None and folder in self._events.folders

    def watch(self, folders: Collection[Path]) -> None:
        """Watch exactly these folders, and again those that were deleted and came back."""
        if self._events is None:
            return
        wanted, watched = set(folders), self._events.folders
        for folder in watched - wanted:
            self._events.unwatch(folder)
            self._polled.clear()  # one of the polled folders may be watched instead
        self._polled &= wanted
        for folder in sorted(wanted - watched - self._polled):
            self._schedule(self._events, folder)

    def ring(self, path: Path) -> None:
        """End the wait, which then returns `path` too."""
        self._paths.put(path)
        with contextlib.suppress(OSError):  # closed, or so many bytes wait that it will wake anyway
            self._bell.send(b"!")

    def close(self) -> None:
        """Watch nothing any more."""
        self._bell.close()
        self._woken.close()
        if self._events is not None:
            self._events.close()

    def _schedule(self, events: "FileEvents | WatchdogEvents", folder: Path) -> None:
        if (mount := self._mounts().of(folder)).remote:
            self._no_events(folder, f"{mount} is a network file system")
        elif folder.is_dir():
            try:
                events.watch(folder)
            except OSError as error:
                self._no_events(folder, _reason(f"{folder} cannot be watched", error))

    def _no_events(self, folder: Path, reason: str) -> None:
        self._polled.add(folder)
        self._report(reason)

    def _report(self, reason: str) -> None:
        if reason not in self._reported:
            self._reported.add(reason)
            every = duration(self._interval)
            self._journal.note("watching", "", f"{reason}; polling every {every}")


class Rota:
    """Chooses the names to check without an event: of very many, a part in each turn.

    `watches` returns whether a folder is watched. A name in another folder is checked in each
    turn, and so is a symbolic link, since the folder of its target may have no watch.
    """

    def __init__(self, watches: Callable[[Path], bool]) -> None:
        self._watches = watches
        self._always: set[Path] = set()
        self._left: list[Path] = []

    def turn(self, followed: Mapping[Path, Path]) -> set[Path] | None:
        """The names to check in this turn; None means all of `followed` (real path to name)."""
        if len(followed) <= CHECKED_FILES:
            return None
        if not self._left:
            self._always.clear()
            here = working_folder()
            for real, name in followed.items():
                is_link = os.path.join(here, name) != os.fspath(real)
                watched = not is_link and self._watches(name.parent)
                (self._left.append if watched else self._always.add)(name)
        part = self._left[-CHECKED_FILES:]
        del self._left[-CHECKED_FILES:]
        return self._always.union(part)


def _reason(what: str, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EMFILE):  # inotify_add_watch(2), inotify_init(2)
        limits = "fs.inotify.max_user_watches or max_user_instances"
        return f"not every folder can be watched (raise the sysctl {limits})"
    return f"{what} ({error.strerror})"
