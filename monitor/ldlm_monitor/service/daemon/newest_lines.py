"""What the newest lines of files say by themselves, shown until their history was judged."""

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ldlm_monitor.base.chunk import Chunk, uncompressed
from ldlm_monitor.base.records import Event
from ldlm_monitor.base.snapshot import ReasonView, RunView
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.history.file_head import name_by_content
from ldlm_monitor.logs.parse import Parser, framing_of, is_rows
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.file_system import Disk
from ldlm_promrules.alerting import RuleSet

TAIL_BYTES = 8 * 1024
"""Bytes at a file's end that are looked at. A choice: some 50 lines, and a screen of bars."""
MOST_SECONDS = 2.0
"""Seconds after which the files written longest ago are left out: so soon the screen shows runs."""
_HEAD_BYTES = 64  # by which a file of binary frames is recognised
_FAILS = ("error", "critical")  # severities of events that are shown as a reason


class NewestLines:
    """The runs by the ends of their files: last step and values, and failures that stand there.

    Nothing is judged: no silence counts, no alert fires, and their health is `READING`.
    """

    def __init__(self, formats: Sequence[Path], names: RunNames, disk: Disk) -> None:
        self._monitor = Monitor(rules=RuleSet(()), parser=Parser(formats), names=names)
        self._names = names
        self._disk = disk

    def read(self, paths: Iterable[Path]) -> tuple[RunView, ...]:
        """Look at these files, those written last first, for at most `MOST_SECONDS`."""
        until = time.monotonic() + MOST_SECONDS
        for written, path in sorted(self._written(paths), reverse=True):
            if time.monotonic() >= until:
                break
            try:
                chunk = self._end(path)
            except OSError:  # reading the whole file reports it
                continue
            if chunk is not None:
                self._monitor.feed(chunk, written, counted=False)
        found = self._monitor.snapshot()
        return tuple(_unjudged(run, found.events) for run in found.runs)

    def _written(self, paths: Iterable[Path]) -> Iterable[tuple[float, Path]]:
        for path in paths:
            try:
                yield self._disk.stat(path).st_mtime, path
            except OSError:
                continue

    def _end(self, path: Path) -> Chunk | None:
        """The whole records in a file's last bytes; None for files that are not plain lines."""
        if uncompressed(str(path)) != str(path):
            return None
        if is_rows(str(path)):
            name_by_content(path, self._names, self._disk)
        elif framing_of(self._disk.part(path, 0, _HEAD_BYTES)) is not None:
            return None
        start = max(self._disk.stat(path).st_size - TAIL_BYTES, 0)
        data = self._disk.part(path, start, TAIL_BYTES)
        if start:  # a record that begins before is no whole one
            ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
            cut = min(ends, default=len(data)) + 1
            start, data = start + cut, data[cut:]
        if not data:
            return None
        return Chunk(str(path), (0, 0, 0), start, 1, data, final=True, timed=False)


def _unjudged(run: RunView, events: Sequence[Event]) -> RunView:
    failures = [each for each in events if each.run == run.name and each.severity in _FAILS]
    said = [(each.severity, each.message, each.time) for each in failures[-1:]]
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
    unknown = {"stall_limit_seconds": None, "goodput": None, "decision": None, "verdict": None}
    return run.model_copy(update={"health": "READING", "reasons": reasons, **unknown})
