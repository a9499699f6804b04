"""Which collective a job hangs in, by the timeouts of its ranks.

A sequence number counts within one process group, so that the same number in two groups
means nothing; the group is told by the status line that follows the timeout (torch 2.3 on).
`[Rank r]` in a message is the rank within the group (taxonomy, section 3.1).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ldlm_monitor.incidents.clues import MAX_RANKS
from ldlm_monitor.incidents.evidence import Evidence, Wait

_DEFAULT_GROUPS = ("", "0")


@dataclass(slots=True)
class Collective:
    """One operation of one group. `calls`: by rank what it called (operation, size)."""

    seq: int
    group: str
    name: str
    began: float
    timeout_ms: int | None
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    pg_ranks: dict[int, int] = field(default_factory=dict)

    @property
    def op(self) -> str:
        """What most ranks called."""
        return Counter(op for op, _ in self.calls.values()).most_common(1)[0][0]

    @property
    def is_of_all(self) -> bool:
        """Whether the group is the default one, of all ranks."""
        return self.name == "default_pg" or (not self.name and self.group in _DEFAULT_GROUPS)

    def members(self, everyone: set[int]) -> set[int]:
        """The global ranks of the group as far as they can be told; empty: they cannot."""
        if self.is_of_all:
            return everyone | set(self.calls)
        stride = self._stride()
        if stride is None:
            return set()
        start, step = stride
        last = min(max(self.pg_ranks.values()), (MAX_RANKS - start) // step)
        return {start + step * index for index in range(last + 1)} | set(self.calls)

    def global_rank(self, pg_rank: int) -> int:
        """The global rank of a rank of the group; the same number where that is unknown."""
        for rank, known in self.pg_ranks.items():
            if known == pg_rank:
                return rank
        stride = None if self.is_of_all else self._stride()
        return pg_rank if stride is None else stride[0] + stride[1] * pg_rank

    def _stride(self) -> tuple[int, int] | None:
        """First global rank and step of a group whose ranks are evenly spaced."""
        pairs = sorted((pg_rank, rank) for rank, pg_rank in self.pg_ranks.items())
        if len(pairs) < 2 or pairs[0][0] == pairs[-1][0]:
            return None
        (low, first), (high, last) = pairs[0], pairs[-1]
        step, rest = divmod(last - first, high - low)
        start = first - step * low
        even = all(rank == start + step * pg_rank for pg_rank, rank in pairs)
        return (start, step) if even and not rest and step > 0 and start >= 0 else None


def first_collective(evidence: Evidence) -> Collective | None:
    """The collective whose wait began first; others time out behind it."""
    groups = _by_group(evidence)
    if not groups:
        return None
    return min(groups, key=lambda each: (round(each.began), -len(each.calls), each.seq, each.group))


def _by_group(evidence: Evidence) -> list[Collective]:
    named: dict[int, set[tuple[str, str]]] = {}
    for (_, number), told in evidence.groups.items():
        named.setdefault(number, set()).add(told)
    found: dict[tuple[int, str], Collective] = {}
    for rank in sorted(evidence.waits):
        for wait in evidence.waits[rank]:
            alone = named.get(wait.seq, set())
            default = min(alone) if len(alone) == 1 else ("", "")
            group, name = evidence.groups.get((rank, wait.seq), default)
            known = found.setdefault(
                (wait.seq, group), Collective(wait.seq, group, name, wait.began, wait.timeout_ms)
            )
            _join(known, rank, wait)
    return list(found.values())


def _join(known: Collective, rank: int, wait: Wait) -> None:
    known.began = min(known.began, wait.began)
    known.calls[rank] = (wait.op, wait.size)
    if wait.pg_rank is not None:
        known.pg_ranks[rank] = wait.pg_rank
