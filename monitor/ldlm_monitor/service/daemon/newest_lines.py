"""What the newest lines of files say by themselves, shown until their history was judged."""

import math
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

from ldlm_monitor.base.chunk import Chunk, uncompressed
from ldlm_monitor.base.records import Event
from ldlm_monitor.base.snapshot import GuessView, ReasonView, RunView
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.run.stall import Phase, Stall
from ldlm_monitor.logs.history.file_head import name_by_content
from ldlm_monitor.logs.parse import Parser, framing_of, is_rows
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.file_system import Disk
from ldlm_promrules.alerting import RuleSet
from ldlm_promrules.promql import Expression

TAIL_BYTES = 8 * 1024
"""Bytes at a file's end that are looked at. A choice: some 50 lines, which hold a traceback."""
LEAST_BYTES, ALL_BYTES = 1024, 384 * 1024
"""Of so many files that all their ends are more, each has less: a line costs a fifth of a
millisecond, and a thousand files are to be shown within `FIRST_SECONDS`."""
FIRST_SECONDS, MORE_SECONDS = 2.0, 0.1
"""Seconds until the screen shows runs, whatever was not looked at by then; the rest is looked at
for so long after each piece of the history: a choice, half of the time."""
NEVER = Stall(limit_seconds=dict.fromkeys(get_args(Phase), 1e9))  # no silence is a stall
_REPAINTS = 3  # of a bar, of which only the last is shown; the last may be empty
_HEAD_BYTES = 64  # by which a file of binary frames is recognised
_FAILS = ("error", "critical")  # severities of events that are shown as a reason


class NewestLines:
    """The runs by the ends of their files: last step and values, and failures that stand there.

    Nothing is judged: no silence counts, no alert fires, and their health is `READING`.
    """

    def __init__(
        self, formats: Sequence[Path], names: RunNames, disk: Disk, paths: Collection[Path]
    ) -> None:
        none: RuleSet[Expression] = RuleSet(())
        self._monitor = Monitor(rules=none, parser=Parser(formats), names=names, stall=NEVER)
        self._names = names
        self._disk = disk
        self._size = min(max(ALL_BYTES // max(len(paths), 1), LEAST_BYTES), TAIL_BYTES)
        by_run: dict[str, list[tuple[float, Path]]] = {}
        for path in paths:
            with suppress(OSError):  # reading the whole file reports it
                written = self._disk.stat(path).st_mtime
                by_run.setdefault(names.origin(str(path)).run, []).append((written, path))
        newest_first = sorted(by_run.values(), key=max, reverse=True)
        self._waiting = deque(each for files in newest_first for each in sorted(files))

    @property
    def has_more(self) -> bool:
        """Whether files are left that were not looked at."""
        return bool(self._waiting)

    def read(self, seconds: float) -> Mapping[str, RunView]:
        """Look at files for so long, the runs that were written last first; the runs by now.

        Of one run, the newest file comes last, so that its lines are those that are shown.
        """
        until = time.monotonic() + seconds
        while self._waiting and time.monotonic() < until:
            written, path = self._waiting.popleft()
            with suppress(OSError):
                if (chunk := self._end(path, self._size)) is not None:
                    self._monitor.feed(chunk, written, counted=False)
        found = self._monitor.snapshot()
        return {run.name: self._as_said(run, found.events) for run in found.runs}

    def _end(self, path: Path, size: int) -> Chunk | None:
        """The whole records in a file's last `size` bytes, of repaints the last ones.

        None for files that are not plain lines.
        """
        if uncompressed(str(path)) != str(path):
            return None
        if is_rows(str(path)):
            name_by_content(path, self._names, self._disk)
        elif framing_of(self._disk.part(path, 0, _HEAD_BYTES)) is not None:
            return None
        start = max(self._disk.stat(path).st_size - size, 0)
        data = self._disk.part(path, start, size)
        if start:  # a record that begins before is no whole one
            ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
            cut = min(ends, default=len(data)) + 1
            start, data = start + cut, data[cut:]
        rest = data.rpartition(b"\n")[2]
        if rest.count(b"\r") > _REPAINTS:
            shown = b"\r".join(rest.rsplit(b"\r", _REPAINTS)[1:])
            start, data = start + len(data) - len(shown), shown
        if not data:
            return None
        return Chunk(str(path), (0, 0, 0), start, 1, data, final=True, timed=False)

    def _as_said(self, run: RunView, events: Sequence[Event]) -> RunView:
        """The run with the failure behind which it takes no step, if there is one."""
        failures = [each for each in events if each.run == run.name and each.severity in _FAILS]
        said = [
            (each.severity, each.message, each.time)
            for each in failures[-1:]
            if not self._was_survived(each)
        ]
        said += [
            ("critical", f"{mark.quantity} is NaN or infinite at step {mark.step}", None)
            for mark in run.nonfinite[-1:]
            if mark.quantity in run.statistics
            and not math.isfinite(run.statistics[mark.quantity].current)
        ]
        reasons = tuple(
            ReasonView(kind="finding", severity=severity, text=text, since=since)
            for severity, text, since in said
        )
        unknown = dict.fromkeys(("stall_limit_seconds", "goodput", "verdict"))
        to = max(run.last_progress_at or 0.0, run.ended_at or 0.0)
        guess = GuessView(to=to, why="its history is not read: this is its file's last write")
        shown = {"reasons": reasons, "guess": guess, **unknown}
        return unjudged(run, None).model_copy(update=shown)

    def _was_survived(self, event: Event) -> bool:
        """Whether the run took a step after an event: further down, or by the times of both."""
        run = self._monitor.runs.get(event.run)
        if run is None or run.life.progress_step is None:
            return False
        step, at = run.life.progress_position, run.life.last_progress_at
        if step.path == event.position.path:
            return step.offset > event.position.offset
        return event.time is not None and at is not None and event.time < at


def unjudged(run: RunView, to: float | None) -> RunView:
    """The run without what a verdict says: its history was judged up to `to` (Unix seconds)."""
    shown = {"health": "READING", "reasons": (), "decision": None, "judged_to": to or 0.0}
    return run.model_copy(update=shown)
