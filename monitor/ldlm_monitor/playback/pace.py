"""Logs whose bytes a replay takes at once are spread over time, so that one can watch them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import re2

from ldlm_monitor.playback.content import Content
from ldlm_monitor.playback.history import History, PlacedFile
from ldlm_monitor.run.timeline import Timeline, from_rows
from ldlm_monitor.source import DIRECT

_STAMP = re2.compile(
    rb"(?m)^[^\n\r]{0,80}?([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})"
)


def paced(history: History) -> None:
    """In place: lines come when they say, or, where none does, in their order a second apart."""
    for file in history.files:
        if isinstance(file, PlacedFile) and file.timeline.is_at_once and Path(file.path).is_file():
            content = Content(Path(file.path), None, DIRECT)
            if content.form == "text":
                stamped = _stamped(content)
                rows = [0, *list(content.row_offsets())[1:]]
                file.timeline = stamped or from_rows(rows, content.written_at)


def _stamped(content: Content) -> Timeline | None:
    """By the dates and times in front of lines, taken for this machine's; they never fall."""
    offsets, times = [0], [-1.0]
    for start, block in content.blocks():
        for found in _STAMP.finditer(block):
            try:
                moment = datetime.fromisoformat(f"{found[1].decode()}T{found[2].decode()}")
                when = moment.astimezone().timestamp()
            except (ValueError, OverflowError, OSError):
                continue
            if when > times[-1]:
                offsets.append(start + found.start())
                times.append(when)
    if len(times) < 2:
        return None
    if offsets[1] == 0:
        return Timeline(offsets[1:], times[1:], timed=False)
    return Timeline(offsets, [times[1], *times[1:]], timed=False)
