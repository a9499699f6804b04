"""The ends of several logs as one, in the order of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ldlm_monitor.model.queries import LogLine, LogQuery, Source

_EACH = 1000
"""Records of all files together, about."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A record and its file."""

    path: str
    line: LogLine


def merged(source: Source, paths: Sequence[str], ask: Callable[..., LogQuery]) -> list[Placed]:
    """The last records of each file, by time.

    A record without a time belongs to the one before it in its file; where none tells one,
    files stand one after the other. Raises as `Source.log` does.
    """
    found: list[tuple[float, int, int, Placed]] = []
    each = max(_EACH // max(len(paths), 1), 20)
    for number, path in enumerate(paths):
        query = replace(ask(before=each), path=path, at=None, at_line=None)
        time = -math.inf
        for index, line in enumerate(source.log(query).lines):
            time = line.time if line.time is not None else time
            found.append((time, number, index, Placed(path, line)))
    found.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in found]
