"""Which of the followed files one launch wrote, where each of its processes has a file of its own.

Names that differ in a rank or node alone make files one run, unless what they hold is of two
launches. Names that differ in any other number are those of many launches, unless what they hold
shows that one wrote them.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ldlm_monitor.base.chunk import rotated_from
from ldlm_monitor.base.text.format import duration
from ldlm_monitor.logs.history.file_head import moments
from ldlm_monitor.logs.history.kinship import FIRST_LOSS, SHARED_STEPS, Losses, compared, losses_in
from ldlm_monitor.logs.history.row_moments import row_moments
from ldlm_monitor.logs.parse.run_names import (
    SAME_LAUNCH_SECONDS,
    RunNames,
    names_a_launch,
    numbered,
    origin_of,
    root_of,
    shared_run,
)
from ldlm_monitor.logs.source.file_system import DIRECT, Disk

LOOK_BYTES = 16 * 1024
"""Bytes at a file's start and at its end that are looked at. A choice: a launch's first steps stand
in them, and the parser reads a megabyte a second."""
LINE_BYTES = 1024
"""Bytes up to the end of the first line with a loss, whose time is that of the last stamp there."""
COMPARED = 16
"""Files of one launch whose losses are compared; of more, times alone. A choice: 0.3 s."""
GAP_SECONDS = 3600.0
"""How long before the first line of one file another may have ended: a choice. Ranks that waited
for one that died print after their timeout, which is ten to thirty minutes by default."""
LATE_SECONDS = 600.0
"""How far apart the ranks of one launch may show the same first step: a choice; they take it
together, and the clocks of nodes differ by less."""

_SWEEP = "ranks count from 0, and nothing shows that these are of one launch"
_OWN_RANK = re.compile(rb"\[rank(\d+)\]|\b(?:process|global)[_ ]?(?:rank|index)\W{1,3}(\d+)", re.I)
_WORLD = re.compile(rb"\b(?:world[_ ]?size|num[_ ]processes|nranks)\W{1,3}(\d+)", re.IGNORECASE)
_COMMUNICATOR = re.compile(rb"\bcommId (0x[0-9a-f]{4,16}) ")
"""NCCL's number of a communicator, which all ranks of it print."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What a file holds of its launch. Times are Unix seconds, None where no line has one.

    `stepped` is that of the first loss. `ranks`, `worlds`: what its lines call their own rank and
    the number of all.
    """

    start: float | None = None
    end: float | None = None
    stepped: float | None = None
    losses: Losses = field(default_factory=lambda: Losses((), ()))
    total: float | None = None
    ranks: frozenset[int] = frozenset()
    worlds: frozenset[int] = frozenset()
    communicators: frozenset[bytes] = frozenset()


def join_launches(
    fresh: Collection[Path],
    followed: Iterable[Path],
    names: RunNames,
    *,
    joins: bool = True,
    disk: Disk = DIRECT,
) -> Iterator[str]:
    """Give `fresh` files, of which nothing was read yet, the runs of their launches; says which.

    `followed`: all files, in any order. Without `joins`, every file that its path gives to a run of
    several is a run of its own. Raises `TimeoutError` for a file system that does not answer.
    """
    if names.is_given:
        return
    new = {*map(str, fresh)}
    roots = {*map(root_of, new)}
    named: dict[tuple[str, str], list[str]] = {}
    alike: dict[str, list[tuple[int, str]]] = {}
    for path in map(str, sorted(followed)):
        if (root := root_of(path)) not in roots:
            continue
        origin = origin_of(path)
        if origin.rank is not None or origin.node is not None:
            named.setdefault((origin.run, root), []).append(path)
        elif (found := numbered(path)) is not None:
            alike.setdefault(found[0], []).append((found[1], path))
    for paths in named.values():
        if len(paths) > 1 and not new.isdisjoint(paths):
            yield from _join_named(paths, new, names, disk, joins=joins)
    for numbers in alike.values():
        if joins and len(numbers) > 1 and not new.isdisjoint(path for _, path in numbers):
            yield from _join_alike(sorted(numbers), new, names, disk)


def _join_named(
    paths: Sequence[str], new: Collection[str], names: RunNames, disk: Disk, *, joins: bool
) -> Iterator[str]:
    """Files whose names give ranks or nodes of one run: those of another launch become another."""
    rest = sorted(paths, key=lambda path: (path in new, *_order(path)))
    is_sweep = _is_sweep([origin_of(path).rank for path in paths])
    named = names.origin(rest[0]).run
    while rest:
        first, *others = rest
        joined: list[str] = []
        rest = []
        run, shown = names.origin(first).run, _Evidence()
        for at, path in enumerate(others):
            if path not in new or names.is_tied(path):
                continue
            if not joins:
                names.tie(path, _own_run(path, run))
                continue
            why = ""
            if rotated_from(path)[0] == path and not names_a_launch(path):
                mine = _glance(first, disk, losses=at < COMPARED)
                other = _glance(path, disk, losses=at < COMPARED)
                why = _of_two_launches(mine, other)
                if not why and is_sweep:
                    ranks = _order(first)[0], _order(path)[0]
                    why = "" if _proof(mine, other, *ranks) else _SWEEP
                if not why:
                    shown.add(mine, other)
            (rest if why else joined).append(path)
            if why and run == named:
                yield f"{path}: not of the run of {first}, because {why}; --run NAME joins them"
            elif not why and names.origin(path).run != run:
                names.tie(path, run)
        if joined:
            differ = " and ".join(_differing([first, *joined]))
            yield f"{_listed(first, joined)} are one run: names differ in the {differ} alone{shown}"
        if rest:
            names.tie(rest[0], _own_run(rest[0], named))


def _join_alike(
    numbers: Sequence[tuple[int, str]], new: Collection[str], names: RunNames, disk: Disk
) -> Iterator[str]:
    """Files whose names differ in some number: those that one launch shows to be its own."""
    (number, first), *others = sorted(numbers, key=lambda each: (each[1] in new, each[0]))
    mine, joined, why = _glance(first, disk), [], ""
    for at, path in others:
        if path not in new or names.is_tied(path):
            continue
        other = _glance(path, disk)
        if _of_two_launches(mine, other):
            continue
        if found := _proof(mine, other, number, at):
            joined.append((at, path))
            why = why or found
    if not joined:
        return
    run = names.origin(first).run
    if first in new and not names.is_tied(first):
        run = shared_run(first)
        names.tie(first, run, number)
    for at, path in joined:
        names.tie(path, run, at)
    yield f"{_listed(first, [path for _, path in joined])} are one run: {why}"


def _of_two_launches(first: Glance, other: Glance) -> str:
    """What shows that two launches wrote the files; "" if nothing does."""
    if first.total and other.total and abs(first.total - other.total) > 1:
        return f"one has {first.total:.0f} steps and the other {other.total:.0f}"
    if first.start is not None and other.start is not None:
        early, later = sorted((first, other), key=lambda each: each.start or 0.0)
        gap = (later.start or 0.0) - (early.end or math.inf)
        if gap > GAP_SECONDS:
            return f"one ended {duration(gap)} before the other began"
    if first.stepped is not None and other.stepped is not None:
        late = abs(first.stepped - other.stepped)
        begins = [each.losses.steps[0] for each in (first, other) if each.losses.steps]
        if late > LATE_SECONDS and len(begins) == 2 and begins[0] == begins[1]:
            return f"both begin at step {begins[0]}, {duration(late)} apart"
    return ""


def _proof(first: Glance, other: Glance, number: int, at: int) -> str:
    """What shows that one launch wrote files of these numbers; "" if nothing does."""
    if first.communicators & other.communicators:
        return "their NCCL communicator is the same"
    together = (
        first.start is not None
        and other.start is not None
        and abs(first.start - other.start) <= SAME_LAUNCH_SECONDS
    )
    is_world = first.worlds == other.worlds and len(first.worlds) == 1
    if is_world and first.ranks == {number} and other.ranks == {at} and together:
        return f"each calls itself the rank of its name, of {max(first.worlds)}"
    same = compared(first.losses, other.losses)
    if together and same.is_proof:
        return f"they begin together and have the same losses at {same.alike} steps"
    return ""


@dataclass(slots=True)
class _Evidence:
    """What files whose names make them one run have in common, as a notice says it."""

    same_losses: bool = True
    same_steps: bool = True
    apart: float = 0.0

    def add(self, first: Glance, other: Glance) -> None:
        steps, others = {*first.losses.steps}, {*other.losses.steps}
        self.same_steps &= len(steps & others) >= SHARED_STEPS
        self.same_losses &= compared(first.losses, other.losses).is_proof
        known = first.start is not None and other.start is not None
        late = abs((first.start or 0.0) - (other.start or 0.0)) if known else math.inf
        self.apart = max(self.apart, late)

    def __str__(self) -> str:
        found = ["equal steps and losses" if self.same_losses else "equal steps"]
        found = found if self.same_steps else []
        if self.apart <= LATE_SECONDS:
            found.append(f"begun within {duration(max(self.apart, 1.0))}")
        return "".join(f", {each}" for each in found)


def _own_run(path: str, run: str) -> str:
    origin = origin_of(path)
    parts = (("node", origin.node), ("rank", origin.rank))
    return f"{run}/{'-'.join(f'{name}{each}' for name, each in parts if each is not None)}"


def _order(path: str) -> tuple[int, str, bool, str]:
    origin, is_error = origin_of(path), Path(path).stem == "stderr"
    return (-1 if origin.rank is None else origin.rank, origin.node or "", is_error, path)


def _is_sweep(ranks: Collection[int | None]) -> bool:
    """Whether numbers are rather the ranks of matrices than of processes, which count from 0."""
    known = {rank for rank in ranks if rank is not None}
    powers = all(rank > 0 and not rank & (rank - 1) for rank in known)
    return len(known) > 1 and powers and max(known) > 2


def _differing(paths: Sequence[str]) -> list[str]:
    origins = [origin_of(path) for path in paths]
    return [
        part for part in ("rank", "node") if len({getattr(each, part) for each in origins}) > 1
    ] or ["stream"]


def _listed(first: str, others: Sequence[str]) -> str:
    return f"{first} and {others[0] if len(others) == 1 else f'{len(others)} more'}"


def _glance(path: str, disk: Disk, *, losses: bool = True) -> Glance:
    try:
        status = disk.stat(Path(path))
    except TimeoutError:
        raise
    except OSError:  # the error is reported where the file is followed
        return Glance()
    return _looked_at(path, status.st_ino, status.st_size, losses, disk)


@lru_cache(maxsize=1024)  # files. A choice: more cost memory, fewer are looked at again
def _looked_at(path: str, inode: int, size: int, losses: bool, disk: Disk) -> Glance:
    del inode  # only a key, as another file may get the name
    try:
        head = disk.part(Path(path), 0, LOOK_BYTES)
        tail = disk.part(Path(path), max(size - LOOK_BYTES, 0), LOOK_BYTES)
    except TimeoutError:
        raise
    except OSError:
        return Glance()
    start = next((when for _, when in row_moments(head)), None) or next(moments(head), None)
    end = max((when for _, when in row_moments(tail)), default=None) or max(
        moments(tail), default=None
    )
    loss = FIRST_LOSS.search(head)
    line = b"" if loss is None else head[: head.find(b"\n", loss.span()[0]) + 1]
    found, total = losses_in(Path(path), head) if losses else (Losses((), ()), None)
    return Glance(
        start,
        end,
        max(moments(line[-LINE_BYTES:]), default=None),
        found,
        total,
        frozenset(int(one or other) for one, other in _OWN_RANK.findall(head)),
        frozenset(map(int, _WORLD.findall(head))),
        frozenset(_COMMUNICATOR.findall(head)),
    )
