"""Snapshots for the readers of the daemon: taken as often as a screen draws, and no oftener."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from ldlm_monitor.base.snapshot import InputView, RunView, Snapshot
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.source.file_identity import FilePosition
from ldlm_monitor.service.daemon.newest_lines import unjudged

SNAPSHOT_SECONDS = 0.25  # the screen draws four times a second
INPUTS_SECONDS = 5.0  # between lists of inputs without a run. A choice: fewer scans of all names
MOST_INPUTS = 100  # without a run that are listed. A choice: nobody reads more


class Pictures:
    """The last snapshot of `monitor`, which is replaced whole: other threads may read it.

    `preview` is the same for views; until all is read it has the runs that `newest` shows, and
    those that were read in part, not judged.
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self.newest: Mapping[str, RunView] = {}
        self._partial: set[str] = set()
        self.snapshot: Snapshot = monitor.snapshot()
        self.preview = self.snapshot.model_copy(update={"reading": 0.0})
        self.due = self._inputs_due = self._preview_due = -math.inf
        self._inputs: tuple[InputView, ...] = ()
        self._missing: list[str] | None = None

    @property
    def is_old(self) -> bool:
        """Whether the monitor or its inputs have changed since the last snapshot."""
        return (self._monitor.version, self._inputs) != (
            self.snapshot.version,
            self.snapshot.inputs,
        )

    def take(
        self,
        now: float,
        *,
        at_once: bool,
        partial: Collection[str] = (),
        reading: float | None = None,
        judged_to: float | None = None,
    ) -> bool:
        """Take a new snapshot if anything changed; uses at most a twentieth of the time.

        `partial`: the runs whose history is still being read; `reading`, `judged_to`: how far.
        """
        is_old = self.is_old or {*partial} != self._partial or reading != self.snapshot.reading
        if not is_old or not (at_once or now >= self.due):
            return False
        self._partial = {*partial}
        started = time.perf_counter()
        found, self.newest = self._monitor.snapshot(), {}
        runs = tuple(unjudged(run, judged_to) if run.name in partial else run for run in found.runs)
        shown = {"inputs": self._inputs, "runs": runs, "reading": reading, "judged_to": judged_to}
        self.snapshot = found.model_copy(update=shown)
        self.preview = self.snapshot
        self.due = now + max(SNAPSHOT_SECONDS, 20 * (time.perf_counter() - started))
        return True

    def show_reading(self, reading: float | None, judged_to: float | None) -> None:
        """Renew `preview` while the first content is read, as its alerts are not known yet."""
        if (now := time.monotonic()) < self._preview_due:
            return
        found = self._monitor.snapshot()
        runs = {run.name: unjudged(run, judged_to) for run in found.runs}
        for name, newest in self.newest.items():
            read = {"judged_to": judged_to or 0.0} if name in runs else {}
            runs[name] = newest.model_copy(update=read)
        empty = dict.fromkeys(("alerts", "incidents", "transitions", "points"), ())
        read_to = {"reading": reading, "judged_to": judged_to}
        self.preview = found.model_copy(update={**empty, "runs": tuple(runs.values()), **read_to})
        self._preview_due = now + max(SNAPSHOT_SECONDS, 20 * (time.monotonic() - now))

    def note_inputs(
        self,
        now: float,
        missing: Callable[[], Iterable[str]],
        unreadable: Collection[str],
        followed: Iterable[str],
        positions: Callable[[], Iterable[FilePosition]],
    ) -> None:
        """Note which inputs show no run, and why, if it is due."""
        if now < self._inputs_due:
            return
        self._inputs_due = now + INPUTS_SECONDS
        if self._missing is None or self._missing:  # a pattern is matched again while it waits
            self._missing = list(missing())
        shown = {path for run in self._monitor.runs for path in run.files} | set(unreadable)
        bare = [path for path in followed if path not in shown][:MOST_INPUTS]
        lines = {each.path: each.line - 1 for each in positions()} if bare else {}
        found = [InputView(name=name, state="waiting") for name in self._missing]
        found += [InputView(name=name, state="unreadable") for name in sorted(unreadable)]
        found += [_bare(path, lines.get(path)) for path in bare]
        self._inputs = tuple(found[:MOST_INPUTS])


def _bare(path: str, lines: int | None) -> InputView:
    if lines is None:
        return InputView(name=path, state="reading")
    return InputView(name=path, state="no training recognised", lines=lines)
