"""Which of the followed files one launch wrote, where each of its processes has a file of its own.

Names that differ in a rank or node alone make files one run, unless what they hold is of two
launches. Names that differ in any other number are those of many launches, unless what they hold
shows that one wrote them.
"""

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from ldlm_monitor.base.chunk import rotated_from
from ldlm_monitor.base.text.format import duration
from ldlm_monitor.logs.history.kinship import SHARED_STEPS, Losses, compared
from ldlm_monitor.logs.history.launch_glance import Glance, glance
from ldlm_monitor.logs.parse.run_names import (
    RunNames,
    names_a_launch,
    numbered,
    origin_of,
    place_of,
    root_of,
    shared_run,
)
from ldlm_monitor.logs.source.file_system import DIRECT, Disk

EQUAL_STEPS = 10
"""Steps of different losses, all printed alike, that show one launch. A choice: folds and seeds
agree by chance at a few of two decimals, and a loss that stands still at many."""
COMPARED = 16
"""Files of one launch whose losses are compared; of more, times alone. As many that differ end the
comparisons of a file with others. A choice: 0.6 s."""
GAP_SECONDS = 3600.0
"""How long before the first line of one file another may have ended: a choice. Ranks that waited
for one that died print after their timeout, which is ten to thirty minutes by default."""
CLOCKS_SECONDS = 10.0
"""How far apart the clocks of nodes are: a choice. A file whose rows span no more may end before
another of its launch begins."""
LATE_SECONDS = 600.0
"""How far apart the ranks of one launch may show the same first step: a choice; they take it
together, and the clocks of nodes differ by less."""

log = logging.getLogger(__name__)

_SAME_PLACE = "both are of the same rank and node"
_SWEEP = "ranks count from 0, and nothing shows that these are of one launch"


def join_launches(
    fresh: Collection[Path],
    followed: Iterable[Path],
    names: RunNames,
    *,
    joins: bool = True,
    disk: Disk = DIRECT,
) -> Iterator[str]:
    """Give `fresh` files, of which nothing was read yet, the runs of their launches; says which.

    `followed`: all files, in any order. Without `joins`, every file of a rank or node that its path
    gives to a run of several is a run of its own. Raises `TimeoutError` for a file system that does
    not answer. For any other, a bug of ours, the names stand that the paths give.
    """
    if names.is_given:
        return
    try:
        yield from _joined(fresh, followed, names, joins=joins, disk=disk)
    except TimeoutError:
        raise
    except Exception as fault:  # files are followed and judged all the same
        log.debug("cannot compare files", exc_info=fault)
        yield f"cannot compare files, and follows them by name: {type(fault).__name__}: {fault}"


def _joined(
    fresh: Collection[Path],
    followed: Iterable[Path],
    names: RunNames,
    *,
    joins: bool,
    disk: Disk,
) -> Iterator[str]:
    new, paths = {*map(str, fresh)}, [*map(str, sorted(followed))]
    of_processes = [path for path in paths if _is_of_a_process(path)]
    if not joins:
        _part(of_processes, new, names)
        return
    named: dict[str, dict[str, list[str]]] = {}
    for path in of_processes:
        named.setdefault(origin_of(path).run, {}).setdefault(root_of(path), []).append(path)
    alike: dict[str, list[tuple[int, str]]] = {}
    for path in paths:
        if not _is_of_a_process(path) and (found := numbered(path)) is not None:
            alike.setdefault(found[0], []).append((found[1], path))
    mains = {(origin_of(each).run, root_of(each)) for each in paths if not _is_of_a_process(each)}
    for run, roots in named.items():
        _keep_folders_apart(run, roots, new, names)
        for root, each in roots.items():
            if len(each) > 1 and not new.isdisjoint(each):
                ranks = [origin_of(path).rank for path in each]
                is_sweep = _is_sweep([*ranks, *([None] if (run, root) in mains else [])])
                yield from _join_named(each, new, names, disk, is_sweep=is_sweep)
    for numbers in alike.values():
        if len(numbers) > 1 and not new.isdisjoint(path for _, path in numbers):
            yield from _join_alike(numbers, new, names, disk)


def _is_of_a_process(path: str) -> bool:
    origin = origin_of(path)
    return origin.rank is not None or origin.node is not None


def _part(paths: Iterable[str], new: Collection[str], names: RunNames) -> None:
    """Give each process of several that their paths make one run a run of its own."""
    runs: dict[str, dict[tuple[str | None, int | None, str], str]] = {}
    for path in sorted(paths, key=lambda path: (path in new, path)):
        run = names.origin(path).run
        known = runs.setdefault(origin_of(path).run if names.is_tied(path) else run, {})
        process = (*place_of(path)[:2], root_of(path))
        if process not in known and path in new and known:
            own = _own_run(path, run)
            folder = PurePath(path).parent
            known[process] = f"{own}/{folder.name}" if own in known.values() else own
        run = known.setdefault(process, run)
        if run != names.origin(path).run and path in new:
            names.tie(path, run)


def _keep_folders_apart(
    run: str, roots: dict[str, list[str]], new: Collection[str], names: RunNames
) -> None:
    """Give the files of each folder that has a file of the same process a run of its own.

    Launchers that name the launch have a folder of another name for each attempt.
    """
    places: set[tuple[str | None, int | None, str]] = set()
    first = ""

    def order(root: str) -> tuple[bool, str]:
        has_run = any(names.origin(path).run == run for path in roots[root] if path not in new)
        return not has_run, root

    for root in sorted(roots, key=order):
        paths = roots[root]
        first = first if places else root
        own = {place_of(path) for path in paths if not names_a_launch(path)}
        if places.isdisjoint(own):
            places |= own
            continue
        parts, others = PurePath(root).parts, PurePath(first).parts
        pairs = zip(parts, others, strict=False)
        same = next((at for at, (a, b) in enumerate(pairs) if a != b), len(others))
        folder = "/".join(part for part in parts[same:] if part != "#") or parts[-1]
        for path in paths:
            if path in new and not names.is_tied(path):
                names.tie(path, f"{run}/{folder}")


def _join_named(
    paths: Sequence[str], new: Collection[str], names: RunNames, disk: Disk, *, is_sweep: bool
) -> Iterator[str]:
    """Files whose names give ranks or nodes of one run: those of another launch become another."""
    rest = sorted(paths, key=lambda path: (path in new, *_order(path)))
    named = names.origin(rest[0]).run
    while rest:
        first, *others = rest
        joined: list[str] = []
        rest = []
        run, shown = names.origin(first).run, _Evidence()
        places = {place_of(first)}
        is_known = False
        for at, path in enumerate(others):
            if path not in new:
                is_known |= names.origin(path).run == run
                places |= {place_of(path)} if names.origin(path).run == run else set()
                continue
            if names.is_tied(path) and names.origin(path).run != named:
                continue
            why = ""
            if rotated_from(path)[0] == path and not names_a_launch(path):
                mine, other = glance(first, disk), glance(path, disk)
                why = _SAME_PLACE if place_of(path) in places else ""
                why = why or _of_two_launches(mine, other, reads=at < COMPARED)
                if not why and is_sweep:
                    ranks = _order(first)[0], _order(path)[0]
                    why = "" if _proof(mine, other, *ranks) else _SWEEP
                if not why and at < COMPARED:
                    shown.add(mine, other)
            (rest if why else joined).append(path)
            if why and run == named:
                yield f"{path}: not of the run of {first}, because {why}; --run NAME joins them"
            elif not why:
                places.add(place_of(path))
                if names.origin(path).run != run:
                    names.tie(path, run)
        if joined and not is_known:
            differ = " and ".join(_differing([first, *joined]))
            yield f"{_listed(first, joined)} are one run: names differ in the {differ} alone{shown}"
        if rest:
            names.tie(rest[0], _own_run(rest[0], named))


def _join_alike(
    numbers: Sequence[tuple[int, str]], new: Collection[str], names: RunNames, disk: Disk
) -> Iterator[str]:
    """Files whose names differ in some number: those that one launch shows to be its own."""
    rest = sorted(numbers, key=lambda each: (each[1] in new, each[0]))
    glances = {path: glance(path, disk) for _, path in rest}
    before = Counter(names.origin(path).run for _, path in rest if path not in new)
    free = {path: at for at, path in rest if path in new and not names.is_tied(path)}
    alike: dict[object, list[str]] = {}
    for path, at in free.items():
        for trait in _traits(glances[path], at):
            alike.setdefault(trait, []).append(path)
    runs: set[str] = set()
    for number, first in rest:
        run = names.origin(first).run
        if run in runs:  # compared by another file of it
            continue
        runs.add(run)
        free.pop(first, None)
        near = {path for trait in _traits(glances[first], number) for path in alike.get(trait, ())}
        known = {path: free[path] for path in near if path in free}
        joined, why = _of_one_launch(first, number, known, glances)
        if not joined:
            continue
        is_known = before[run] > 1
        if first in new and not names.is_tied(first):
            run = shared_run(first)
            if run in runs:  # another launch of the same numbers has it
                run = names.origin(first).run
            names.tie(first, run, number)
        runs.add(run)
        for at, path in joined:
            del free[path]
            names.tie(path, run, at)
        if not is_known:
            yield f"{_listed(first, [path for _, path in joined])} are one run: {why}"


def _of_one_launch(
    first: str, number: int, others: Mapping[str, int], glances: Mapping[str, Glance]
) -> tuple[list[tuple[int, str]], str]:
    """Which of other files, and with which numbers, the launch of the first one wrote; and why."""
    mine, joined, why, differing = glances[first], list[tuple[int, str]](), "", 0
    for path in sorted(others, key=others.__getitem__):
        other, at = glances[path], others[path]
        if differing >= COMPARED or not _may_be_of_one_launch(mine, other):
            continue
        found = _proof(mine, other, number, at)
        if found and not _of_two_launches(mine, other):
            joined.append((at, path))
            why = why or found
        else:
            differing += 1
    return joined, why


def _of_two_launches(first: Glance, other: Glance, *, reads: bool = True) -> str:
    """What shows that two launches wrote the files; "" if nothing does. `reads`: also losses."""
    late = lasted = 0.0
    if first.start is not None and other.start is not None:
        early, later = sorted((first, other), key=lambda each: each.start or 0.0)
        late = (later.start or 0.0) - (early.end or math.inf)
        lasted = (early.end or 0.0) - (early.start or 0.0)
        if late > GAP_SECONDS:
            return f"one ended {duration(late)} before the other began"
    if not reads:
        return ""
    if first.total and other.total and abs(first.total - other.total) > 1:
        return f"one has {first.total:.0f} steps and the other {other.total:.0f}"
    begins = [each.losses.steps[0] for each in (first, other) if each.losses.steps]
    if len(begins) == 2 and begins[0] == begins[1]:
        if late > 0 and lasted > CLOCKS_SECONDS:
            return f"both begin at step {begins[0]}, and one ended before the other began"
        apart = abs((first.stepped or 0.0) - (other.stepped or 0.0))
        if None not in (first.stepped, other.stepped) and apart > LATE_SECONDS:
            return f"both begin at step {begins[0]}, {duration(apart)} apart"
    return ""


def _traits(file: Glance, number: int) -> Iterator[object]:
    """What a file of this number has, of which one must be equal for `_proof`."""
    yield from file.communicators
    if len(file.worlds) == 1 and file.ranks == {number}:
        yield file.worlds
    if len(file.printed) == SHARED_STEPS:
        yield file.printed


def _may_be_of_one_launch(first: Glance, other: Glance) -> bool:
    """Whether `_proof` may hold by what is known without their losses."""
    return first.begins_with(other) or not first.communicators.isdisjoint(other.communicators)


def _proof(first: Glance, other: Glance, number: int, at: int) -> str:
    """What shows that one launch wrote files of these numbers; "" if nothing does."""
    if first.communicators & other.communicators:
        return "their NCCL communicator is the same"
    if not first.begins_with(other):
        return ""
    is_world = first.worlds == other.worlds and len(first.worlds) == 1
    if is_world and first.ranks == {number} and other.ranks == {at}:
        return f"each calls itself the rank of its name, of {max(first.worlds)}"
    # Their first losses first, as to parse a file takes twenty milliseconds.
    if len(first.printed) == SHARED_STEPS and first.printed == other.printed:
        same = _equal_steps(first.losses, other.losses)
        if same >= EQUAL_STEPS:
            return f"they begin together and have the same losses at {same} steps"
    return ""


def _equal_steps(first: Losses, other: Losses) -> int:
    """Steps whose losses are printed alike, of different losses; 0 if one differs in any."""
    ours: dict[int, set[float]] = {}
    for step, loss in zip(first.steps, first.values, strict=True):
        ours.setdefault(step, set()).add(loss)
    theirs: dict[int, set[float]] = {}
    for step, loss in zip(other.steps, other.values, strict=True):
        theirs.setdefault(step, set()).add(loss)
    shared = [ours[step] & theirs[step] for step in ours.keys() & theirs.keys()]
    return 0 if not all(shared) else min(len(shared), len(set().union(*shared)))


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
    """Whether numbers may be the ranks of matrices: those of processes are 0, 1, 2, and so on."""
    known = {rank for rank in ranks if rank is not None}
    known |= {0} if None in ranks else set()
    return len(known) > 1 and known != {*range(len(known))}


def _differing(paths: Sequence[str]) -> list[str]:
    origins = [origin_of(path) for path in paths]
    return [
        part for part in ("rank", "node") if len({getattr(each, part) for each in origins}) > 1
    ] or ["stream"]


def _listed(first: str, others: Sequence[str]) -> str:
    return f"{first} and {others[0] if len(others) == 1 else f'{len(others)} more'}"
