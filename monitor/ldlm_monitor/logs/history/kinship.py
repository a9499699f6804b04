"""Kinship: what shows that one launch wrote a log and a file near it (contract, "Companions").

Being near proves nothing: an older run's rows lie there too. Evidence is, in this order, a run
or process that the log names, losses that agree at the same steps, and times that overlap.
"""

import math
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Sample, SampleBlock
from ldlm_monitor.logs.history.file_head import (
    HEAD_BYTES,
    callback_header,
    facts_in,
    moments,
    part,
)
from ldlm_monitor.logs.history.row_moments import row_moments
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.patterns import compile_pattern
from ldlm_monitor.logs.parse.run_names import launch_time
from ldlm_monitor.logs.source.companions import Companion, LaunchFacts, Surroundings, companions
from ldlm_monitor.logs.source.file_system import Disk

SLACK_SECONDS = 120.0
"""How far apart two files of one launch may have been written last, where the log has no times. A
choice: checkpoints and buffers take less, and a run that ended before has ended for longer."""
ZONE_SECONDS = 14 * 3600.0  # the stamps of a copied log may be of any zone: UTC+14 is the farthest
CLOSED_SECONDS = 10.0
"""`SLACK_SECONDS` of a file whose process says that it ended: a choice; a log's buffer is empty
then, and only its launcher still prints."""
SHARED_STEPS = 3  # steps that compare two files. A choice: fewer agree by chance, more come late
PROOF_DIGITS = 6
"""Decimals that agree, less those that do not, over all steps, where one launch wrote both: three
steps of two decimals (zeros at the end do not count). A choice: fewer agree by chance where two
runs differ by a seed alone, more come late."""
EXACT = 1e-6  # relative difference of a loss in rows of double and in rows of single precision
FOREIGN = 0.2
"""Median of the relative differences above which losses are another run's. Below it, where they do
not agree, nothing is known: the log may print means over some steps, which are nearer than this."""
TINY = 1e-9  # a loss so small that no log prints it, and that may be divided by
LOOKS = (1024, 16 * 1024)
"""Bytes, where losses begin and at a log's end, that are compared with a file: the second if the
first share too few steps. A choice: the parser reads a megabyte a second, and logs are many."""
FEW_BYTES = 16 * 1024  # up to here, each row more is looked at; a choice, it takes 20 ms at most
FIRST_LOSS = compile_pattern(r"(?i)loss\D{1,16}\d")


@dataclass(frozen=True, slots=True)
class Losses:
    """Finite losses, each at its step, in the order of their rows."""

    steps: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class SharedLosses:
    """The losses of two files at the steps that both have.

    `apart`: the relative differences. `alike`: how many agree to the last of the `digits` that the
    log prints behind the point.
    """

    apart: Sequence[float] = ()
    alike: int = 0
    digits: int = 0

    @property
    def is_proof(self) -> bool:
        """Whether they agree at more steps than by chance."""
        more = 2 * self.alike - len(self.apart)
        return self.alike >= SHARED_STEPS and more * self.digits >= PROOF_DIGITS

    @property
    def is_foreign(self) -> bool:
        """Whether they are of two runs: nearer ones may be means over some steps."""
        return len(self.apart) >= SHARED_STEPS and median(self.apart) > FOREIGN


@dataclass(slots=True)
class Traits:
    """The facts in which launches differ. Times are Unix seconds; `start` is None if unknown.

    `path` and `inode` are of the file, whose first `size` bytes are looked at. `run` and `launch`:
    the names in a callback's first row, and that of the log that `ldlm-monitor run` made for it.
    `is_closed`: the callback's last row says that its process ended. `processes`: HOST:PID of the
    callback, or of NCCL's lines in a log.
    `facts`: what leads to the files of a log's launch.
    """

    path: Path
    inode: int
    size: int
    disk: Disk
    start: float | None
    end: float
    run: str | None = None
    launch: str | None = None
    is_closed: bool = False
    processes: frozenset[str] = frozenset()
    facts: LaunchFacts = field(default_factory=LaunchFacts)

    def losses(self, look: int) -> "Losses":
        """The finite losses, in `look` bytes from the first one on and `look` last ones."""
        return _losses(self.path, self.inode, self.size, look, self.disk)


_END = re.compile(rb'"type": ?"end"')  # the callback's last row
_PROCESS = re.compile(rb"(?m)([\w.-]{1,253}:\d{1,10}):\d{1,10} \[\d{1,5}\] NCCL ")
"""NCCL's HOST:PID:THREAD [GPU]; 253 characters are the longest name of a host."""


def traits_of(path: Path, disk: Disk, *, exact: bool = False) -> Traits:
    """The traits of a file, by its first and last bytes; `exact`: also by bytes that came just now.

    Raises `TimeoutError`.
    """
    try:
        status = disk.stat(path)
    except TimeoutError:
        raise
    except OSError:  # the error is reported where the file is followed
        return Traits(path, 0, 0, disk, None, math.inf)
    size, end, is_closed = status.st_size, status.st_mtime, False
    if path.suffix == ".jsonl":
        end, is_closed = _last_row(path, size, end, disk)
    # In eighths of it or less: a file that grows is not looked at again for each row.
    step = 1 if exact or size < FEW_BYTES else 1 << (size.bit_length() - 4)
    seen = size - size % step
    start, names, processes, facts = _launch(path, status.st_ino, min(seen, HEAD_BYTES), disk)
    file = (path, status.st_ino, seen, disk)
    return Traits(*file, start, end, *names, is_closed, processes, facts)


@lru_cache(maxsize=1)
def _parser() -> Parser:
    """One for all files, since it is slow to make; a chunk that is `final` leaves nothing in it."""
    return Parser()


@lru_cache(maxsize=1024)  # files. A choice: more cost memory, fewer are read again at each search
def _last_row(path: Path, size: int, written_at: float, disk: Disk) -> tuple[float, bool]:
    """The time of the last row, and whether it is the callback's last of all."""
    tail = part(path, max(size - LOOKS[1], 0), disk)
    last = tail[tail.rfind(b"\n", 0, -1) + 1 :]
    end = max((when for _, when in row_moments(tail)), default=written_at)
    return end, _END.search(last) is not None


@lru_cache(maxsize=4096)  # logs and files; each takes 200 bytes
def _launch(
    path: Path, inode: int, size: int, disk: Disk
) -> tuple[float | None, tuple[str | None, str | None], frozenset[str], LaunchFacts]:
    """`start`, `run` and `launch`, `processes` and `facts` by a file's first `size` bytes."""
    del inode  # only a key, as another file may get the name
    head = part(path, 0, disk)[:size]
    found = _PROCESS.findall(head) if b"] NCCL " in head else ()
    named = {each.decode("ascii", "replace") for each in found}
    header = callback_header(head)
    start = next((when for _, when in row_moments(head)), None)
    start = start or launch_time(str(path)) or next(moments(head), None)
    if header is None:
        return start, (None, None), frozenset(named), facts_in(head)
    process = f"{header.get('host')}:{header.get('pid')}"
    launch = header.get("launch")
    names = (str(header["run"]), None if launch is None else str(launch))
    return start, names, frozenset({process}), LaunchFacts()


@lru_cache(maxsize=256)  # looks, of up to 100 kB. A choice: fewer are repeated at each search
def _losses(path: Path, inode: int, size: int, look: int, disk: Disk) -> Losses:
    del inode  # only a key, as in `_launch`
    return losses_in(path, *_looked_at(path, size, look, disk))[0]


def losses_in(path: Path, *parts: bytes) -> tuple[Losses, float | None]:
    """The finite losses in parts of a file, and the number of all steps beside the last of them.

    None: no line has it.
    """
    steps, losses, total = array("q"), array("d"), None
    for data in parts:
        chunk = Chunk(str(path), (0, 0, 0), 0, 1, data, final=True)
        for each in _parser().feed_blocks(chunk, Origin(""), 0.0):
            if isinstance(each, SampleBlock):
                cells = each.sparse.get("loss", {})
                rows = range(len(each)) if "loss" in each.values else cells
                steps.extend(each.steps[row] for row in rows)
                losses.extend(each.values.get("loss", cells.values()))
                if len(rows):
                    total = next(reversed(each.values.get("total_steps", ())), total)
            elif isinstance(each, Sample) and each.step is not None:
                loss = each.values.get("loss", math.nan)
                total = each.values.get("total_steps", total) if "loss" in each.values else total
                if math.isfinite(loss):
                    steps.append(each.step)
                    losses.append(loss)
    return Losses(steps, losses), total


def _looked_at(path: Path, size: int, look: int, disk: Disk) -> Iterator[bytes]:
    """`look` bytes from the first loss on, and the last ones, of the first `size` bytes."""
    head = part(path, 0, disk)[:size]
    first = FIRST_LOSS.search(head)
    start = 0 if first is None else max(head.rfind(b"\n", 0, first.span()[0]), 0)
    if first is not None:
        yield head[start : start + look]
    after = max(size - look, min(start + look, HEAD_BYTES))
    if after < size:
        tail = part(path, after, disk)[: size - after]
        yield tail[tail.find(b"\n") + 1 :]


def kin(
    log: Path,
    around: Surroundings,
    known: Collection[Path] = (),
    given: Iterable[Path] = (),
) -> tuple[list[Companion], list[Companion]]:
    """The companions of a log, and the files near it that are none, each with the reason.

    `known`: companions found before, which need no evidence. `given`: rows that the user names
    beside the log, and that may lie anywhere. Raises `TimeoutError` as `companions` does.
    """
    traits = traits_of(log, around.disk)
    found: list[Companion] = []
    doubtful = companions(log, traits.facts, around)
    near = {around.disk.realpath(each.path) for each in doubtful}
    for path in given:
        if path != log and around.disk.realpath(path) not in near and _is_proven(traits, path):
            found.append(Companion(path, "its losses are those of the log"))
    named = {each.path: each.reason for each in doubtful}
    sure = {each.path for each in doubtful if around.disk.realpath(each.path) in known}
    if len(sure) == len(doubtful):
        return found + doubtful, []
    count = len(doubtful) + 1
    while len(doubtful) < count:
        count = len(doubtful)
        strangers: list[Companion] = []
        for each in doubtful:
            other = traits_of(each.path, around.disk)
            is_sure = each.path in sure
            why, is_kin = ("", True) if is_sure else evidence(traits, other, named[each.path])
            (found if is_kin else strangers).append(replace(each, reason=why))
            if is_kin:
                # What was written while a companion was is of that launch too.
                traits.start, traits.run = traits.start or other.start, other.run or traits.run
        doubtful = strangers
    return sorted(found, key=lambda each: each.path), doubtful


def _is_proven(log: Traits, path: Path) -> bool:
    other = traits_of(path, log.disk)
    return not _is_older(log, other) and _compared(log, other).is_proof


def evidence(log: Traits, other: Traits, named: str) -> tuple[str, bool]:
    """Why a file is a log's companion, and True; or why it is none, and False.

    `named`: how the log names the file or its folder; "" if it names neither.
    """
    if why := _is_older(log, other):
        return why, False
    if named := named or _named(log, other):
        return named, True
    found = _compared(log, other)
    if found.is_proof:
        return f"its losses are those of the log at {found.alike} steps", True
    if found.is_foreign:
        return "the losses at the log's steps are others", False
    if _overlap(log, other):
        return "it was written while its log was", True
    return "nothing shows that one launch wrote both", False


def _named(log: Traits, other: Traits) -> str:
    """How the log, or a companion that was found before, names a callback's file; "" if none."""
    if other.launch is not None and other.launch == log.path.stem:
        return f"its callback names the launch {other.launch}"
    if other.run in log.facts.names():
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
    if other.launch is not None and _ended_before(log, other):
        return f"its callback names the launch {other.launch}, before the log's"
    # A run of the same seed begins with the same losses, but the log never came so far.
    slack = CLOSED_SECONDS if other.is_closed else SLACK_SECONDS
    is_before = other.start is not None and other.end < log.end - slack
    if not is_before or not _is_ahead(log, other):
        return ""
    # The log may have grown since it was looked at.
    is_ahead = _is_ahead(traits_of(log.path, log.disk, exact=True), other)
    return "the last row, of a later step, was before the log's last line" if is_ahead else ""


def _ended_before(log: Traits, other: Traits) -> bool:
    """Whether a callback's rows, also those of a resumed run, end before the log's launch.

    Both launches have their times in their names, in one unknown zone: the first row shows it.
    """
    named, began = launch_time(f"{other.launch}.log"), launch_time(str(log.path))
    if other.launch == log.path.stem or None in (named, began, other.start):
        return False
    return other.end < (other.start or 0.0) + (began or 0.0) - (named or 0.0)


def _is_ahead(log: Traits, other: Traits) -> bool:
    steps = sorted({*log.losses(LOOKS[0]).steps})
    if len(steps) < 2:
        return False
    stride = median(after - before for before, after in pairwise(steps))
    return max(other.losses(HEAD_BYTES).steps, default=0) > steps[-1] + stride


def _compared(log: Traits, other: Traits) -> "SharedLosses":
    """The losses of both, by the shortest look at the log that decides."""
    found = SharedLosses()
    for look in LOOKS:
        ours = log.losses(look)
        # A log without losses agrees with no file, which then need not be read.
        found = compared(ours, other.losses(HEAD_BYTES)) if ours.steps else found
        if len(found.apart) >= SHARED_STEPS:
            break
    return found


def _overlap(log: Traits, other: Traits) -> bool:
    """Whether a file with times was written while the log was."""
    begun = log.end - SLACK_SECONDS if log.start is None else log.start
    late = log.end + SLACK_SECONDS
    return other.start is not None and other.start <= late and other.end >= begun


def compared(log: Losses, other: Losses) -> SharedLosses:
    """The losses at the steps that both have.

    A bar repeats a loss until the next is known, so that only the first of equal ones stands at its
    step. Rows of the callback and of trainers number steps from 0, many logs from 1: the nearer
    counts.
    """
    ours: dict[int, list[float]] = {}
    last = math.nan
    for step, loss in zip(log.steps, log.values, strict=True):
        if loss != last:
            ours.setdefault(step, []).append(loss)
        last = loss
    digits = max((_decimals(loss) for losses in ours.values() for loss in losses), default=0)
    nearest: dict[int, tuple[float, bool]] = {}
    for step, loss in zip(other.steps, other.values, strict=True):
        for shown in (step, step + 1):
            for each in ours.get(shown, ()):
                apart, size = abs(each - loss), max(abs(each), abs(loss), TINY)
                # Half of the last digit if it is rounded, all of it if it is cut.
                alike = apart <= max(10.0**-digits, EXACT * size)
                found = (apart / size, alike)
                nearest[shown] = min(found, nearest.get(shown, (math.inf, False)))
    count = sum(alike for _, alike in nearest.values())
    return SharedLosses([apart for apart, _ in nearest.values()], count, digits)


def _decimals(value: float) -> int:
    """The digits behind the point with which a value was printed, without zeros at its end."""
    digits, _, power = repr(value).partition("e")
    return max(len(digits.partition(".")[2]) - int(power or 0), 0)


def has_losses(path: Path, disk: Disk) -> bool:
    """Whether a file's first or last bytes have a loss at a step. Raises `TimeoutError`."""
    traits = traits_of(path, disk, exact=True)
    return any(traits.losses(look).steps for look in LOOKS)
