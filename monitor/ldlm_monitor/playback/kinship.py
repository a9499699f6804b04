"""Kinship: what shows that one launch wrote a log and a file near it (contract, "Companions").

Being near proves nothing: an older run's rows lie there too. Evidence is, in this order, a run
or process that the log names, losses that agree at the same steps, and times that overlap.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median

from ldlm_monitor.model.chunk import Chunk, Origin
from ldlm_monitor.model.records import Sample
from ldlm_monitor.parse import Parser
from ldlm_monitor.playback.content import HEAD_BYTES, callback_header, first_moment, part
from ldlm_monitor.run.run_names import RunNames, launch_time, own_run
from ldlm_monitor.source.companions import Companion, LaunchFacts, Surroundings, companions
from ldlm_monitor.source.file_system import DIRECT, Disk

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
TINY = 1e-9  # a loss so small that no log prints it, and that may be divided by
LISTED = 4  # files that a notice names; a choice: more lengthen it, fewer may omit the right one


@dataclass(slots=True)
class Traits:
    """The facts in which launches differ. Times are Unix seconds; `start` is None if unknown.

    `losses`: the finite losses at each step. `run`: the name in a callback's first row.
    `processes`: HOST:PID of the callback, and of the processes that NCCL names in a log.
    """

    start: float | None
    end: float
    losses: dict[int, list[float]]
    run: str | None = None
    processes: frozenset[str] = frozenset()


UNKNOWN = Traits(None, math.inf, {})  # of a file that cannot be read
_PROCESS = re.compile(rb"(?m)([\w.-]{1,253}:\d{1,10}):\d{1,10} \[\d{1,5}\] NCCL ")
"""NCCL's HOST:PID:THREAD [GPU]; 253 characters are the longest name of a host."""


def kin(
    log: Path, facts: LaunchFacts, around: Surroundings, known: Collection[Path] = ()
) -> tuple[list[Companion], list[Companion]]:
    """The companions of a log, and the files near it that are none, each with the reason.

    `known`: companions found before, which need no evidence. Raises `TimeoutError` as
    `companions` does.
    """
    near = companions(log, facts, around)
    named = {each.path: each.reason for each in near}
    found = [each for each in near if around.disk.realpath(each.path) in known]
    doubtful = [each for each in near if each not in found]
    traits = traits_of(log, around.disk) if doubtful else UNKNOWN
    count = len(doubtful) + 1
    while len(doubtful) < count:
        count = len(doubtful)
        strangers: list[Companion] = []
        for each in doubtful:
            other = traits_of(each.path, around.disk)
            why, is_kin = evidence(traits, other, facts, named[each.path])
            (found if is_kin else strangers).append(replace(each, reason=why))
            if is_kin:
                # What was written while a companion was is of that launch too.
                traits.start, traits.run = traits.start or other.start, other.run or traits.run
        doubtful = strangers
    return sorted(found, key=lambda each: each.path), doubtful


def set_apart(
    log: Path,
    strangers: Sequence[Companion],
    names: RunNames,
    inputs: Mapping[Path, Path],
    disk: Disk = DIRECT,
) -> Iterator[str]:
    """Give strangers that are followed anyway a run of their own; yields notices of all of them.

    `inputs`: the real paths of files that match a folder or glob of the user, and their names.
    Raises `TimeoutError`.
    """
    run = names.origin(str(log)).run
    by_reason: dict[str, list[str]] = {}
    for each in strangers:
        followed = inputs.get(disk.realpath(each.path))
        end = "name the file together with the log to follow it"
        if followed is not None:
            end = "it is followed as a run of its own"
            if names.origin(str(followed)).run == run:
                names.tie(str(followed), own_run(str(followed), run))
        by_reason.setdefault(f"because {each.reason}; {end}", []).append(str(each.path))
    for why, paths in by_reason.items():
        more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
        yield f"{', '.join(paths[:LISTED])}{more}: no companion of {log}, {why}"


def evidence(log: Traits, other: Traits, facts: LaunchFacts, named: str) -> tuple[str, bool]:
    """Why a file is a log's companion, and True; or why it is none, and False.

    `named`: how the log names the file or its folder; "" if it names neither.
    """
    if why := _is_older(log, other):
        return why, False
    if named := named or _named(log, other, facts):
        return named, True
    apart = differences(log.losses, other.losses)
    typical = median(apart) if len(apart) >= SHARED_STEPS else None
    if typical is not None and typical <= ALIKE:
        return f"its losses are those of the log at {len(apart)} steps", True
    if typical is not None and typical > FOREIGN:
        return "the losses at the log's steps are others", False
    if _overlap(log, other):
        return "it was written while its log was", True
    return "nothing shows that one launch wrote both", False


def _named(log: Traits, other: Traits, facts: LaunchFacts) -> str:
    """How the log, or a companion that was found before, names a callback's file; "" if none."""
    if other.run in facts.names():
        return f"its log names the run {other.run}"
    for process in log.processes & other.processes:
        return f"its log names the process {process}"
    if other.run is not None and other.run == log.run and _overlap(log, other):
        return f"it is of the run {other.run}, as another companion is"
    return ""


def _is_older(log: Traits, other: Traits) -> str:
    """What shows that a file ended before the log's launch; "" if nothing does."""
    if log.start is not None and other.end < log.start - ZONE_SECONDS:
        return "the last write was before the log began"
    if other.start is None or other.end >= log.end - SLACK_SECONDS or len(log.losses) < 2:
        return ""
    # A run of the same seed begins with the same losses, but the log never came so far.
    first, last = min(log.losses), max(log.losses)
    stride = (last - first) / (len(log.losses) - 1)
    ahead = max(other.losses, default=0) > last + stride
    return "the last row, of a later step, was before the log's last line" if ahead else ""


def _overlap(log: Traits, other: Traits) -> bool:
    """Whether a file with times was written while the log was."""
    begun = log.end - SLACK_SECONDS if log.start is None else log.start
    late = log.end + SLACK_SECONDS
    return other.start is not None and other.start <= late and other.end >= begun


def differences(log: dict[int, list[float]], other: dict[int, list[float]]) -> list[float]:
    """The relative differences of losses at the steps that both have.

    Rows of the callback and of trainers number steps from 0, many logs from 1: the nearer counts.
    """
    pairs = (
        [(a, b) for a in values for each in (step, step - 1) for b in other.get(each, ())]
        for step, values in log.items()
    )
    return [min(abs(a - b) / max(abs(a), abs(b), TINY) for a, b in each) for each in pairs if each]


def traits_of(path: Path, disk: Disk) -> Traits:
    """The traits of a file, by its first and last bytes. Raises `TimeoutError`."""
    try:
        status = disk.stat(path)
    except TimeoutError:
        raise
    except OSError:  # the error is reported where the file is followed
        return replace(UNKNOWN)
    return replace(_read(path, status.st_size, status.st_mtime, disk))


@lru_cache(maxsize=1)
def _parser() -> Parser:
    """One for all files, since it is slow to make; a chunk that is `final` leaves nothing in it."""
    return Parser()


@lru_cache(maxsize=256)  # files. A choice: more cost memory, fewer are read again at each search
def _read(path: Path, size: int, written_at: float, disk: Disk) -> Traits:
    head = part(path, 0, disk)
    tail = part(path, max(size - HEAD_BYTES, HEAD_BYTES), disk)
    samples: list[Sample] = []
    times: list[float] = []
    for data in (head, tail[tail.find(b"\n") + 1 :]):
        chunk = Chunk(str(path), (0, 0, 0), 0, 1, data, final=True)
        records = _parser().feed(chunk, Origin(""), written_at)
        samples += (each for each in records if isinstance(each, Sample))
        times += (each.time for each in records if each.time is not None)
    losses: dict[int, list[float]] = {}
    for sample in samples:
        if sample.step is not None and math.isfinite(loss := sample.values.get("loss", math.nan)):
            losses.setdefault(sample.step, []).append(loss)
    start = min(times, default=launch_time(str(path)) or first_moment(head))
    end = max(times) if times and path.suffix == ".jsonl" else written_at
    header = callback_header(head) or {}
    run = str(header["run"]) if header else None
    processes = {each.decode("ascii", "replace") for each in _PROCESS.findall(head)}
    processes |= {f"{header.get('host')}:{header.get('pid')}"} if header else set()
    return Traits(start, end, losses, run, frozenset(processes))
