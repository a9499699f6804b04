"""Decides when files are checked again: on an event of their folder, and by polling.

An event of the library watchdog only names a path to check; the check finds what happened. Every
file is checked without events too: each second, or in turn if thousands are watched (`Rota`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ldlm_monitor.source.file_system import MountTable, read_mounts, working_folder
from ldlm_monitor.source.notices import Journal
from ldlm_monitor.text.format import duration

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver, ObservedWatch

POLL_SECONDS = 0.25
"""Seconds between two checks of files whose folder has no events. A choice: a shorter time costs
a `stat` per file more often, a longer one delays the files."""
GATHER_SECONDS = 0.02
"""Events within so many seconds after the first are handled in one turn, so that many growing files
cost at most 50 turns a second. A choice: longer delays every record."""
WATCHED_FOLDERS = 64
"""The most folders that are watched; others are polled. A choice: each costs a thread."""
CHECKED_FILES = 500
"""Files in watched folders that are checked each second without an event. More cost more (these
half a percent of a core); fewer delay changes that cause no event (through a memory map, or beyond
the system's queue of 16,384 events). With 10,000 files such a change is seen within 20 s."""
QUEUED_EVENTS = 10_000
"""Events that wait to be handled; further ones are dropped, which delays their files by one poll.
A choice: more cost memory (these about a MiB), fewer delay more files."""


class Waker:
    """Wakes when the operating system reports a change in a watched folder.

    If some folder cannot be watched (on a network, or beyond the system's limits), waits end
    after `interval` seconds (polling); `journal` gets one notice of each reason. `mounts` returns
    the present mount table.
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
        self._paths: queue.SimpleQueue[bytes | str] = queue.SimpleQueue()
        self._watches: dict[Path, ObservedWatch] = {}
        self._polled: set[Path] = set()
        self._reported: set[str] = set()
        self._observer: BaseObserver | None = None
        self._start()

    @property
    def polling(self) -> bool:
        """Whether some folder cannot be watched, so that its files are polled."""
        return self._observer is None or bool(self._polled)

    def wait(self, timeout: float) -> set[Path] | None:
        """Wait for events and calls of `ring`, and return their paths; empty if none came.

        Waits at most `timeout` seconds; while `polling` at most `interval`, and then returns
        None if none came: any file may have changed.
        """
        if self.polling:
            timeout = min(timeout, self._interval)
        try:
            paths = {self._paths.get(timeout=max(0.0, timeout))}
        except queue.Empty:
            return None if self.polling else set()
        until = time.monotonic() + GATHER_SECONDS
        with contextlib.suppress(queue.Empty):
            while (left := until - time.monotonic()) > 0:
                paths.add(self._paths.get(timeout=left))
        return {Path(os.fsdecode(path)) for path in paths}

    def dispatch(self, event: FileSystemEvent) -> None:
        """Queue an event's paths, in a thread of the observer, which an exception would end."""
        if self._paths.qsize() < QUEUED_EVENTS:
            self._paths.put(event.src_path)
            if event.dest_path:
                self._paths.put(event.dest_path)

    def watches(self, folder: Path) -> bool:
        """Whether this folder is watched, so that a change in it ends the wait."""
        return self._observer is not None and folder in self._watches

    def watch(self, folders: Collection[Path]) -> None:
        """Watch exactly these folders, and again those that were deleted and came back."""
        wanted = set(folders)
        for folder in [*self._watches]:
            if folder not in wanted or not self._watched(folder):
                self._unschedule(folder)
                self._polled.clear()  # one of the polled folders may be watched instead
        self._polled &= wanted
        for folder in sorted(wanted - self._watches.keys() - self._polled):
            self._schedule(folder)

    def ring(self, path: Path) -> None:
        """End the wait, which then returns `path` too."""
        self._paths.put(str(path))

    def close(self) -> None:
        """Stop the observer and wait until its threads have ended."""
        observer, self._observer = self._observer, None
        if observer is not None and observer.is_alive():
            observer.stop()
            observer.join()

    def _start(self) -> None:
        try:
            from watchdog.observers import Observer

            observer = Observer()
            observer.start()
        except ImportError:  # musl has no wheel of it
            self._report("file events are not available (watchdog is not installed)")
        except OSError as error:
            self._report(_reason("file events are not available", error))
        else:
            self._observer = observer

    def _watched(self, folder: Path) -> bool:
        """Whether the folder's watch is active: watchdog ends it when the folder is deleted."""
        watch = self._watches[folder]
        return self._observer is not None and any(
            emitter.watch == watch and emitter.is_alive() for emitter in self._observer.emitters
        )

    def _schedule(self, folder: Path) -> None:
        if self._observer is None:
            return
        if (mount := self._mounts().of(folder)).remote:
            self._poll(folder, f"{mount} is a network file system")
        elif not folder.is_dir():
            return
        elif len(self._watches) >= WATCHED_FOLDERS:
            self._poll(folder, f"more than {WATCHED_FOLDERS} folders to watch")
        else:
            try:
                self._watches[folder] = self._observer.schedule(
                    self,  # type: ignore[arg-type]  # of its handler only `dispatch` is called
                    str(folder),
                    event_filter=_kinds(),
                )
            except OSError as error:
                self._poll(folder, _reason(f"{folder} cannot be watched", error))

    def _unschedule(self, folder: Path) -> None:
        watch = self._watches.pop(folder)
        if self._observer is not None and watch in {e.watch for e in self._observer.emitters}:
            self._observer.unschedule(watch)

    def _poll(self, folder: Path, reason: str) -> None:
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


def _kinds() -> list[type[FileSystemEvent]]:
    """The events that wake; not `opened` and `closed`, which the monitor's reads cause."""
    from watchdog import events

    return [
        events.FileCreatedEvent,
        events.FileDeletedEvent,
        events.FileModifiedEvent,
        events.FileMovedEvent,
    ]


def _reason(what: str, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EMFILE):  # inotify_add_watch(2), inotify_init(2)
        what = "not every folder can be watched"
        limits = "fs.inotify.max_user_watches or max_user_instances"
        return f"{what} ({error.strerror}; raise the sysctl {limits})"
    return f"{what} ({error.strerror})"
