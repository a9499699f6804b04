"""Kinship: what shows that one launch wrote a log and a file near it (contract, "Companions").

Being near proves nothing: an older run's rows lie there too. Evidence is, in this order, a run
or process that the log names, losses that agree at the same steps, and times that overlap.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from ldlm_monitor.model.chunk import Chunk, Origin
from ldlm_monitor.model.records import Sample
from ldlm_monitor.parse import Parser
from ldlm_monitor.playback.content import HEAD_BYTES, callback_header, first_moment
from ldlm_monitor.run.run_names import launch_time
from ldlm_monitor.source.companions import Companion, LaunchFacts, Surroundings, companions
from ldlm_monitor.source.file_system import Disk

SLACK_SECONDS = 120.0
"""How far apart two files of one launch may have been written last, where the log has no times. A
choice: checkpoints and buffers take less, and a run that ended before has ended for longer."""
ZONE_SECONDS = 14 * 3600.0  # the stamps of a copied log may be of any zone: UTC+14 is the farthest
SHARED_STEPS = 3  # steps that compare two files. A choice: fewer agree by chance, more come late
ALIKE = 0.005
"""Relative difference of a loss as printed and as it is: logs print three digits or more."""
FOREIGN = 0.2
"""Median of the relative differences above which losses are another run's. Between it and `ALIKE`
nothing is known: the log may print means over some steps, which are nearer than this."""
LISTED = 4  # files that a notice names; a choice: more lengthen it, fewer may omit the right one


@dataclass(frozen=True, slots=True)
class Traits:
    """The facts in which launches differ. Times are Unix seconds; `start` is None if unknown.

    `losses`: the finite losses at each step. `head`: the first bytes. `run` and `process`: the
    name and HOST:PID of a callback's first row.
    """

    start: float | None
    end: float
    losses: dict[int, list[float]]
    head: bytes
    run: str | None = None
    process: bytes | None = None


def kin(
    log: Path, facts: LaunchFacts, around: Surroundings, known: Collection[Path] = ()
) -> tuple[list[Companion], str | None]:
    """The companions of a log, and a notice of the files near it that are none; None without one.

    `known`: companions found before, which need no evidence. Raises `TimeoutError` as
    `companions` does.
    """
    near = companions(log, facts, around)
    found = [each for each in near if around.disk.realpath(each.path) in known]
    doubtful = [each for each in near if each not in found]
    why = ""
    traits = traits_of(log, around.disk) if doubtful else None
    while traits is not None and doubtful:
        proven = []
        for each in doubtful:
            other = traits_of(each.path, around.disk)
            reason, is_kin = evidence(traits, other, facts, each.reason)
            if is_kin:
                proven.append(replace(each, reason=reason))
                # What was written while a proven companion was is of that launch too.
                start = traits.start if traits.start is not None else other.start
                end = max(traits.end, other.end)
                traits = replace(traits, start=start, end=end, run=other.run or traits.run)
            why = reason
        found += proven
        doubtful = [each for each in doubtful if each.path not in {one.path for one in found}]
        if not proven:
            break
    listed = ", ".join(str(each.path) for each in doubtful[:LISTED])
    more = f" and {len(doubtful) - LISTED} more" if len(doubtful) > LISTED else ""
    notice = f"{listed}{more}: not followed with {log}, because {why}; "
    remedy = "name the file together with the log to follow it"
    return sorted(found, key=lambda each: each.path), notice + remedy if doubtful else None


def evidence(log: Traits, other: Traits, facts: LaunchFacts, named: str) -> tuple[str, bool]:
    """Why a file is a log's companion, and True; or why it is none, and False.

    `named`: how the log names the file or its folder; "" if it names neither.
    """
    if log.start is not None and other.end < log.start - ZONE_SECONDS:
        return "it was last written before the log began", False
    if named := named or _named(log, other, facts):
        return named, True
    apart = differences(log.losses, other.losses)
    typical = median(apart) if len(apart) >= SHARED_STEPS else None
    if typical is not None and typical <= ALIKE:
        return f"its losses are those of the log at {len(apart)} steps", True
    if typical is not None and typical > FOREIGN:
        return "its losses at the log's steps are others", False
    if _overlap(log, other):
        return "it was written while its log was", True
    return "nothing shows that one launch wrote both", False


def _named(log: Traits, other: Traits, facts: LaunchFacts) -> str:
    """How the log, or a companion that was found before, names a callback's file; "" if none."""
    if other.run in facts.names():
        return f"its log names the run {other.run}"
    if other.process is not None and other.process + b":" in log.head:
        return f"its log names the process {other.process.decode()}"
    if other.run is not None and other.run == log.run and _overlap(log, other):
        return f"it is of the run {other.run}, as another companion is"
    return ""


def _overlap(log: Traits, other: Traits) -> bool:
    """Whether a file with times was written while the log was."""
    begun = log.end - SLACK_SECONDS if log.start is None else log.start
    late = log.end + SLACK_SECONDS
    return other.start is not None and other.start <= late and other.end >= begun


def differences(log: dict[int, list[float]], other: dict[int, list[float]]) -> list[float]:
    """The relative differences of losses at the steps that both have, the nearer numbering of two.

    Rows of the callback and of trainers number steps from 0, many logs from 1.
    """
    found = [
        [
            min(abs(a - b) / max(abs(a), abs(b), 1e-9) for a in values for b in other[step - shift])
            for step, values in log.items()
            if step - shift in other
        ]
        for shift in (0, 1)
    ]
    return min(found, key=lambda each: (len(each) < SHARED_STEPS, median(each or [math.inf])))


def traits_of(path: Path, disk: Disk) -> Traits:
    """The traits of a file; read again once it changed. Raises `TimeoutError`."""
    try:
        status = disk.stat(path)
    except TimeoutError:
        raise
    except OSError:  # the error is reported where the file is followed
        return Traits(None, math.inf, {}, b"")
    return _read(path, status.st_size, status.st_mtime, disk)


@lru_cache(maxsize=256)  # files. A choice: more cost memory, fewer are read again at each search
def _read(path: Path, size: int, written_at: float, disk: Disk) -> Traits:
    head = _part(path, 0, disk)
    rest = _part(path, max(size - HEAD_BYTES, HEAD_BYTES), disk)
    parts = (head, rest[rest.find(b"\n") + 1 :])
    records = [
        record
        for data in parts
        for record in Parser().feed(
            Chunk(str(path), (0, 0, 0), 0, 1, data, final=True), Origin(""), written_at
        )
    ]
    losses: dict[int, list[float]] = {}
    for record in records:
        loss = record.values.get("loss", math.nan) if isinstance(record, Sample) else math.nan
        if isinstance(record, Sample) and record.step is not None and math.isfinite(loss):
            losses.setdefault(record.step, []).append(loss)
    times = [record.time for record in records if record.time is not None]
    start = min(times, default=launch_time(str(path)) or first_moment(head))
    end = max(times) if times and path.suffix == ".jsonl" else written_at
    header: dict[str, Any] = callback_header(head) or {}
    process = f"{header.get('host')}:{header.get('pid')}".encode() if header else None
    return Traits(start, end, losses, head, header.get("run"), process)


def _part(path: Path, start: int, disk: Disk) -> bytes:
    try:
        return disk.part(path, start, HEAD_BYTES)
    except TimeoutError:
        raise
    except OSError:  # as in `traits_of`
        return b""
