"""What is new of many files, exactly once, whichever of their file systems answer."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from ldlm_monitor.model.chunk import Chunk, FileId
from ldlm_monitor.source.disk import Disk
from ldlm_monitor.source.entry import Entry
from ldlm_monitor.source.journal import Journal, Notice
from ldlm_monitor.source.lane import Lane
from ldlm_monitor.source.mounts import MOUNT_SECONDS, Mount, MountTable, read_mounts
from ldlm_monitor.source.position import Position

TURN_BYTES = 8 * 1024 * 1024
OPEN_FILES = 256
PATIENCE_SECONDS = 0.1
"""So long a turn waits for all file systems on a network together."""


class Follower:
    """Reads what is new of many files, in chunks of whole records.

    Files on local file systems are read where `read` is called. Each network file
    system is read by a thread of its own that is waited for briefly: what it gives
    later comes with a later `read`. `open_files` bounds the descriptors held for
    files at rest of one file system. `journal` counts what went wrong. `disk`,
    `mounts` and `clock` (monotonic seconds) are what the system offers.
    """

    def __init__(
        self,
        *,
        open_files: int = OPEN_FILES,
        disk: Disk | None = None,
        mounts: Callable[[], MountTable] = read_mounts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.journal = Journal()
        self._open_files = open_files
        self._disk = Disk() if disk is None else disk
        self._read_mounts = mounts
        self._clock = clock
        self._table = mounts()
        self._table_at = -math.inf
        self._local = self._lane(Mount(point="the local disks"))
        self._remote: dict[str, Lane] = {}
        self._lanes: dict[Path, Lane] = {}

    @property
    def paths(self) -> Collection[Path]:
        """The followed names, as they were added."""
        return self._lanes.keys()

    @property
    def notices(self) -> list[Notice]:
        """What happened and was not drained yet (`journal.drain`)."""
        return self.journal.notices

    def add(
        self,
        path: Path,
        *,
        offset: int = 0,
        line: int | None = None,
        resume: Iterable[Position] = (),
    ) -> None:
        """Follow a name, whether or not it exists yet; nothing changes if it is followed.

        `offset`: what stands before it in the present file counts as read; `line` is that
        of `offset`, and the lines are counted if it is not given. `resume`: what
        `positions` told of this name before a restart, which counts for more than
        `offset`. Add all resumed names before the first `read`: one of their files may
        be under another's name now.
        """
        if path not in self._lanes:
            lane = self._lanes[path] = self._lane_of(path)
            lane.add(Entry(path, start=offset, line=line, kept=list(resume)))

    def read(
        self, paths: Collection[Path] | None, now: float, budget: int = TURN_BYTES
    ) -> Iterator[Chunk]:
        """What is new under `paths` (None: all), as read at `now` (Unix seconds).

        Files that fell behind before are served too. Files take turns of one slice,
        until `budget` bytes are read; the next call goes on with those whose turn
        did not come.
        """
        self._route(paths, now)
        threaded = [lane for lane in self._all() if lane.threaded]
        for lane in threaded:
            lane.ask(self._share(lane, paths), now, budget)
        until = self._clock() + PATIENCE_SECONDS
        if not self._local.threaded:
            yield from self._local.read(self._share(self._local, paths), now, budget, self._clock)
        for lane in threaded:
            yield from lane.answer(now, max(0.0, until - self._clock()))

    def nameless(self) -> set[FileId]:
        """Files that lost the name under which they are read: they may be gone at any time."""
        return {file for lane in self._all() for file in lane.nameless()}

    def behind(self) -> int:
        """Bytes written, as far as was seen, and not read. May be called from any thread."""
        return sum(lane.behind() for lane in self._all())

    def next_peek(self) -> float | None:
        """When (Unix seconds) the next unfinished record is to be shown as it stands."""
        times = (lane.next_peek() for lane in self._all())
        return min((time for time in times if time is not None), default=None)

    def positions(self) -> list[Position]:
        """How far each file was read, to be kept with what its chunks led to.

        Call it when `read` is exhausted: all chunks that it gave lie before these
        positions, and none that it did not give. Several of one `path`: older files
        that lost this name.
        """
        return [position for lane in self._all() for position in lane.positions()]

    def finish(self) -> Iterator[Chunk]:
        """The last chunk of every file, for a reader that will not come back."""
        for lane in self._all():
            yield from lane.finish(PATIENCE_SECONDS)

    def close(self) -> None:
        """Give all descriptors back."""
        for lane in self._all():
            lane.close(PATIENCE_SECONDS)

    def _all(self) -> list[Lane]:
        return [self._local, *self._remote.values()]

    def _lane(self, mount: Mount) -> Lane:
        return Lane(mount, self.journal, self._disk, self._open_files)

    def _lane_of(self, path: Path) -> Lane:
        mount = self._table.of(path) if self._table.has_remote else Mount()
        if not mount.remote:
            return self._local
        if mount.device not in self._remote:
            self._remote[mount.device] = self._lane(mount)
        return self._remote[mount.device]

    def _share(self, lane: Lane, paths: Collection[Path] | None) -> Collection[Path] | None:
        """Those of `paths` that are read in `lane`; what is nobody's name may be a local place."""
        if paths is None or not self._remote:
            return paths
        return [path for path in paths if self._lanes.get(path, self._local) is lane]

    def _route(self, paths: Collection[Path] | None, now: float) -> None:
        """See to it that each name is looked at in the lane of the files it leads to now."""
        if now - self._table_at >= MOUNT_SECONDS:
            self._table_at = now
            self._table = self._read_mounts()
        if not (self._table.has_remote or self._remote):
            return
        for path in self._lanes.keys() if paths is None else self._lanes.keys() & set(paths):
            before, lane = self._lanes[path], self._lane_of(path)
            if lane is not before:
                before.leave(path)
                lane.add(Entry(path))
                self._lanes[path] = lane
