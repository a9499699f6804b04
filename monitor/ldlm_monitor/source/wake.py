"""When to look again.

watchdog is a doorbell: it says where to look first, never what happened. The
caller looks at everything at least once a second whatever rings.
"""

import errno
import os
import queue
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from watchdog.events import (
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from ldlm_monitor.source.file_system import MountTable, read_mounts
from ldlm_monitor.source.journal import Journal

POLL_SECONDS = 0.25
GATHER_SECONDS = 0.02
"""Rings so close to the first are one: 200 files that grow cost 50 turns a second at most."""
WATCHED_FOLDERS = 64
"""watchdog spends a thread on each."""
QUEUED_RINGS = 10_000

EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]
"""Not opened or closed: our own reading would ring."""


class Waker(Protocol):
    """Says when to look, and where first."""

    def wait(self, timeout: float) -> set[Path]:
        """Paths that something happened to; empty after `timeout`: look at everything."""
        ...

    def watch(self, folders: Collection[Path]) -> None:
        """Mind these folders from now on, and no others."""
        ...

    def ring(self, path: Path) -> None:
        """Wake the one who waits; from any thread."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


class PollingWaker:
    """Wakes every `interval` seconds."""

    def __init__(self, *, interval: float = POLL_SECONDS) -> None:
        self._interval = interval
        self._bell = _Bell()

    def wait(self, timeout: float) -> set[Path]:
        """Only what was rung by hand."""
        return self._bell.wait(min(timeout, self._interval), GATHER_SECONDS)

    def watch(self, folders: Collection[Path]) -> None:
        """All folders are looked at anyway."""

    def ring(self, path: Path) -> None:
        """Wake the one who waits."""
        self._bell.ring(path)

    def close(self) -> None:
        """Nothing was started."""


class WatchdogWaker:
    """Wakes when the operating system says that a file in a watched folder changed.

    Folders that cannot be watched (on a network, or beyond the system's limits)
    make it poll too; `journal` gets a line for each reason. An observer that died
    is started anew once.
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
        self._bell = _Bell()
        self._watches: dict[Path, ObservedWatch] = {}
        self._polled: set[Path] = set()
        self._said: set[str] = set()
        self._restarted = False
        self._observer: BaseObserver | None = None
        self._start()

    @property
    def polling(self) -> bool:
        """Whether some folder is minded by looking at it only."""
        return self._observer is None or bool(self._polled)

    def wait(self, timeout: float) -> set[Path]:
        """What the system or `ring` told of; where it must poll, empty after `interval`."""
        if self._observer is not None and not self._observer.is_alive():
            self._revive()
        if self.polling:
            timeout = min(timeout, self._interval)
        return self._bell.wait(timeout, GATHER_SECONDS)

    def watch(self, folders: Collection[Path]) -> None:
        """Watch these folders, again also those that were deleted and came back."""
        wanted = set(folders)
        self._polled &= wanted
        for folder in [*self._watches]:
            if folder not in wanted or not self._watched(folder):
                self._unschedule(folder)
        for folder in sorted(wanted - self._watches.keys() - self._polled):
            self._schedule(folder)

    def ring(self, path: Path) -> None:
        """Wake the one who waits."""
        self._bell.ring(path)

    def close(self) -> None:
        """End the observer and wait for its threads."""
        observer, self._observer = self._observer, None
        if observer is not None and observer.is_alive():
            observer.stop()
            observer.join()

    def _start(self) -> None:
        try:
            observer = Observer()
            observer.start()
        except OSError as error:
            self._say(_reason("file events are not to be had", error))
        else:
            self._observer = observer

    def _revive(self) -> None:
        """The dispatcher's thread ended: whatever happened rang nothing any more."""
        folders = [*self._watches, *self._polled]
        if self._observer is not None:
            self._observer.stop()
        self._observer = None
        self._watches.clear()
        if self._restarted:
            self._say("the watcher of file events died twice")
            return
        self._restarted = True
        self._start()
        self.watch(folders)

    def _watched(self, folder: Path) -> bool:
        """watchdog ends a watch when its folder is deleted, also if it comes back."""
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
                    self._bell, str(folder), event_filter=EVENTS
                )
            except OSError as error:
                self._poll(folder, _reason(f"{folder} cannot be watched", error))

    def _unschedule(self, folder: Path) -> None:
        watch = self._watches.pop(folder)
        if self._observer is not None and watch in {e.watch for e in self._observer.emitters}:
            self._observer.unschedule(watch)

    def _poll(self, folder: Path, reason: str) -> None:
        self._polled.add(folder)
        self._say(reason)

    def _say(self, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            self._journal.note(
                "watching", "", f"{reason}; looking every {self._interval:g} s instead"
            )


class _Bell(FileSystemEventHandler):
    """A queue of paths. An exception in a handler would end all watching, without a word."""

    def __init__(self) -> None:
        self._rung: queue.SimpleQueue[bytes | str] = queue.SimpleQueue()

    def dispatch(self, event: FileSystemEvent) -> None:
        """Called by the observer's thread; must not raise."""
        # When nobody takes the rings any more, more of them say nothing new.
        if self._rung.qsize() < QUEUED_RINGS:
            self._rung.put(event.src_path)
            if event.dest_path:
                self._rung.put(event.dest_path)

    def ring(self, path: Path) -> None:
        self._rung.put(str(path))

    def wait(self, timeout: float, gather: float) -> set[Path]:
        """What rings within `timeout`, and within `gather` seconds of the first."""
        try:
            rung = {self._rung.get(timeout=max(0.0, timeout))}
        except queue.Empty:
            return set()
        until = time.monotonic() + gather
        while (left := until - time.monotonic()) > 0:
            try:
                rung.add(self._rung.get(timeout=left))
            except queue.Empty:
                break
        return {Path(os.fsdecode(path)) for path in rung}


def _reason(what: str, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EMFILE):  # inotify_add_watch(2), inotify_init(2)
        what = "not every folder can be watched"
        return f"{what} ({error.strerror}; see fs.inotify.max_user_watches and max_user_instances)"
    return f"{what} ({error.strerror})"
