"""The comparison of checksums that ranks report of their parameters and optimizer state."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from ldlm_monitor.base.records import Event
from ldlm_monitor.base.text.format import compressed, counted

_WAITING = 16
"""Checks that may wait for ranks. A choice: files are read one after another, and a rank is few
checks ahead; more would delay the comparison where some ranks report none."""
_Group: TypeAlias = frozenset[int]


class Replicas:
    """Finds ranks whose checksums differ from those of their replicas, in one attempt of a run.

    Ranks are replicas if their checksums changed and were equal before and after the change: so
    shards, stages and experts, which are no replicas, are never compared, even if they began
    equal, and no layout of ranks has to be known. Of more than two, those that differ from most
    are named; of two, or without a majority, none is.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, Event]] = {}  # step -> rank -> its event
        self._last: dict[str, dict[int, str]] = {}  # quantity -> rank -> checksum
        self._groups: dict[str, list[_Group]] = {}  # of replicas, by quantity
        self._last_step = 0

    def observe(self, event: Event, ranks: int | None) -> Event | None:
        """An event for the first check at which replicas differ; `ranks`: of the run, if known.

        `event`: a rank's checksums, by quantity in its field `checksums`.
        """
        step = event.fields.get("step")
        if event.rank is None or not isinstance(step, int):
            return None
        reports = self._waiting.setdefault(step, {})
        reports[event.rank] = event
        if len(reports) != ranks:
            if len(self._waiting) <= _WAITING:
                return None
            step = min(self._waiting)
        reports = self._waiting[step]
        self._waiting = {each: kept for each, kept in self._waiting.items() if each > step}
        found = self._compare(step, reports)
        self._last_step = step
        return found

    def _compare(self, step: int, reports: Mapping[int, Event]) -> Event | None:
        differing: dict[str, list[_Group]] = {}
        for quantity, values in _by_quantity(reports).items():
            known = [_classes(group, values) for group in self._groups.get(quantity, [])]
            split = max(known, key=len, default=[])
            if len(split) > 1:
                differing[quantity] = split
            self._groups[quantity] = _largest([*chain(*known), *self._moved(quantity, values)])
            self._last[quantity] = values
        return _event(differing, step, self._last_step, reports) if differing else None

    def _moved(self, quantity: str, values: Mapping[int, str]) -> list[_Group]:
        """Groups of ranks that were equal at the last check, and are equal now but changed."""
        last = self._last.get(quantity, {})
        moves = {
            rank: f"{last[rank]} {value}"
            for rank, value in values.items()
            if rank in last and last[rank] != value
        }
        return _classes(moves, moves)


def _by_quantity(reports: Mapping[int, Event]) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for rank, event in sorted(reports.items()):
        checksums = event.fields.get("checksums")
        for quantity, value in checksums.items() if isinstance(checksums, dict) else ():
            found.setdefault(quantity, {})[rank] = str(value)
    return found


def _classes(ranks: Iterable[int], values: Mapping[int, str]) -> list[_Group]:
    """The ranks that have a value, by equal values; the largest group first."""
    found: dict[str, set[int]] = {}
    for rank in ranks:
        if rank in values:
            found.setdefault(values[rank], set()).add(rank)
    return sorted(map(frozenset, found.values()), key=lambda each: (-len(each), min(each)))


def _largest(groups: list[_Group]) -> list[_Group]:
    """The groups of two and more that are part of no other."""
    distinct = {group for group in groups if len(group) > 1}
    return sorted((g for g in distinct if not any(g < other for other in distinct)), key=min)


def _event(
    differing: Mapping[str, list[_Group]], step: int, before: int, reports: Mapping[int, Event]
) -> Event:
    what = " and ".join(differing)
    parts = max(differing.values(), key=len)
    everyone = frozenset().union(*parts)
    odd = everyone - parts[0] if 2 * len(parts[0]) > len(everyone) else frozenset[int]()
    rank = min(odd) if len(odd) == 1 else None
    since = f"at step {step}, but not at step {before}"
    if odd:
        whose = "" if rank is not None else f" of ranks {compressed(odd)}"
        others = counted(len(parts[0]), "replica")
        message = f"{what}{whose} differ from those of {others} (ranks {compressed(parts[0])})"
        message = f"{message} {since}"
    else:
        message = (
            f"{what} of ranks {compressed(everyone)} differ {since}: which is right is unknown"
        )
    last = max(reports.values(), key=lambda each: (each.time or 0.0, each.rank or 0))
    source = last if rank is None else reports[rank]
    return replace(
        source,
        kind="replica_mismatch",
        severity="critical",
        rank=rank,
        time=last.time,
        message=message,
        fields={
            "family": "numerics",
            "role": "root",
            "step": step,
            "quantity": what,
            "ranks": compressed(odd or everyone),
        },
    )
