"""File events of systems without inotify (macOS, BSD), by the library watchdog."""

import contextlib
import os
import queue
import socket
from pathlib import Path

from watchdog.events import FileSystemEvent
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch

_QUEUED = 10_000
"""Events that wait to be read; with more, any file may have changed. A choice: these take a MiB."""


class WatchdogEvents:
    """Events in watched folders, as `inotify.FileEvents` has them.

    `descriptor` is readable while events wait. Raises `OSError` where the system has none.
    """

    def __init__(self) -> None:
        self._paths: queue.SimpleQueue[bytes | str] = queue.SimpleQueue()
        self._bell, self._woken = socket.socketpair()
        for end in (self._bell, self._woken):
            end.setblocking(False)
        self.descriptor = self._woken.fileno()
        self._watches: dict[Path, ObservedWatch] = {}
        self._observer = Observer()
        self._observer.start()

    @property
    def folders(self) -> set[Path]:
        """The watched folders; one that was deleted is not."""
        alive = {each.watch for each in self._observer.emitters if each.is_alive()}
        return {folder for folder, watch in self._watches.items() if watch in alive}

    def watch(self, folder: Path) -> None:
        """Watch a folder, not those in it. Raises `OSError`, as beyond the system's limit."""
        self.unwatch(folder)  # one of this name may have been deleted
        # Of a handler only `dispatch` is called.
        self._watches[folder] = self._observer.schedule(self, str(folder))  # type: ignore[arg-type]

    def unwatch(self, folder: Path) -> None:
        """Watch a folder no more."""
        watch = self._watches.pop(folder, None)
        if watch in {each.watch for each in self._observer.emitters}:
            self._observer.unschedule(watch)

    def dispatch(self, event: FileSystemEvent) -> None:
        """Queue an event's paths, in a thread of the observer, which an exception would end."""
        if event.event_type in ("opened", "closed_no_write"):  # the monitor's own reads
            return
        self._paths.put(event.src_path)
        if event.dest_path:
            self._paths.put(event.dest_path)
        with contextlib.suppress(OSError):  # so many bytes wait that the reader wakes anyway
            self._bell.send(b"!")

    def read(self) -> set[Path] | None:
        """The paths of the events since the last call; None if too many came."""
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        found: set[Path] = set()
        with contextlib.suppress(queue.Empty):
            for _ in range(_QUEUED):
                found.add(Path(os.fsdecode(self._paths.get_nowait())))
            return None
        return found

    def close(self) -> None:
        """Watch nothing any more, once the observer's threads have ended."""
        self._observer.stop()
        self._observer.join()
        self._bell.close()
        self._woken.close()
