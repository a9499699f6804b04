"""The data of an incident's analysis: ranks, processes, machines, the run, the root cause."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from ldlm_monitor.base.incident_view import Confidence
from ldlm_monitor.judge.incidents.clues import Clue, Tier, rank_in, whole


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run when its incident is analysed. Times are Unix seconds; -inf or None: unknown.
    `logged_ranks`: ranks that ever logged a record. `rank_steps`: the last step of each rank
    that logs its own. `attempt`: the number of the present attempt, from 1; `step`: its last step.
    `meshes`: coordinates of ranks in the dimensions of parallelism.
    `epoch`: its last epoch, if steps begin again with each. `refuted_ends`: how many ends turned
    out to be none by the steps of a log without times. `timed`: its records have times.
    """

    state: str = "running"
    ended_at: float | None = None
    last_progress_at: float = float("-inf")
    attempt: int = 1
    refuted_ends: int = 0
    timed: bool = True
    step: int | None = None
    epoch: float | None = None
    world_size: int | None = None
    logged_ranks: AbstractSet[int] = field(default_factory=frozenset)
    rank_steps: dict[int, int] = field(default_factory=dict)
    meshes: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class RankFacts:
    """One rank in one incident; None is unknown.
    `waited`: event kinds by which it reported waiting for, or losing, another rank.
    `has_error`: it printed an error. `failed`: its first own error. `dumped`: it wrote a flight
    record. `timed_out`: it logged a timeout. `exitcode` is negative for a signal.
    `nonfinite_steps`: the first step at which a loss (True) or another number was non-finite.
    """

    waited: set[str] = field(default_factory=set)
    has_error: bool = False
    failed: Clue | None = None
    timed_out: bool = False
    dumped: bool = False
    exitcode: int | None = None
    pid: int | None = None
    host: str | None = None
    node: str | None = None
    local_rank: int | None = None
    nonfinite_steps: dict[bool, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Death:
    """A launcher's report of a process's end. `exitcode`: None if unknown, below 0 for a signal."""

    clue: Clue
    exitcode: int | None
    local_rank: int | None


def death_of(clue: Clue) -> Death:
    """The end of a process that a launcher reports."""
    code = whole(clue.fields.get("exitcode"))
    if code is not None and 128 < code < 160:
        code = 128 - code  # a shell reports a signal, 1 to 31, as 128 more
    if code is None:
        code = EXITS_BY_SIGNAL.get(str(clue.fields.get("signal")))
    return Death(clue, code, whole(clue.fields.get("local_rank")))


EXITS_BY_SIGNAL: Final = {
    name: -number for number in signal.Signals for name in (number.name, signal.strsignal(number))
}
"""Exit codes by the names and descriptions (`Killed`) with which launchers print signals."""


class Roster:
    """The ranks of an incident; finds them by process id, local rank, host or node."""

    def __init__(self) -> None:
        self.facts: dict[int, RankFacts] = {}
        self._by_pid: dict[tuple[str, int], int] = {}
        self._by_local: dict[tuple[str, int], int] = {}
        self._rank_span: dict[str, tuple[int, int]] = {}

    @property
    def waiting(self) -> set[int]:
        """The ranks that reported waiting for, or losing, another one."""
        return {rank for rank, facts in self.facts.items() if facts.waited}

    def size(self, run: RunFacts) -> int:
        """Number of known ranks of the job, at least 1."""
        return max(len(self.facts), len(run.logged_ranks), run.world_size or 1)

    def of(self, rank: int) -> RankFacts:
        """The facts of a rank; new ones, which are not stored, if no line is about it."""
        return self.facts.get(rank) or RankFacts()

    def entry(self, rank: int) -> RankFacts:
        """The stored facts of a rank that a line is about, for changes."""
        return self.facts.setdefault(rank, RankFacts())

    def note_line(self, rank: int, path: str) -> None:
        """Store that a file has a line of a rank, for `is_collected`."""
        low, high = self._rank_span.get(path, (rank, rank))
        self._rank_span[path] = (min(low, rank), max(high, rank))

    def has_rank_lines(self, path: str) -> bool:
        """Whether a file has lines of ranks, and not only of their launcher."""
        return path in self._rank_span

    def is_collected(self, rank: int) -> bool:
        """Whether a file has lines of lower and higher ranks, so that it would have this one's."""
        return any(low <= rank <= high for low, high in self._rank_span.values())

    def enter(self, path: str, rank: int, local_rank: int | None, pid: int | None) -> None:
        """Store a rank's process and local rank from a launcher's table in the file `path`."""
        facts = self.entry(rank)
        if pid is not None:
            self._by_pid[path, pid] = rank
            facts.pid = pid
        if local_rank is not None:
            self._by_local[path, local_rank] = rank
            facts.local_rank = local_rank

    def by_pid(self, pid: int | None, path: str | None = None) -> int | None:
        """The rank of a process by its launcher's file, else by its pid; None if not unique."""
        if pid is None:
            return None
        if path is not None and (path, pid) in self._by_pid:
            return self._by_pid[path, pid]
        found = {rank for (_, known), rank in self._by_pid.items() if known == pid}
        return found.pop() if len(found) == 1 else None

    def of_death(self, death: Death) -> int | None:
        """The global rank of a death; None if neither its pid nor its local rank shows it.

        On the first node local ranks equal the global ones.
        """
        clue, path = death.clue, death.clue.position.path
        if clue.rank is not None:
            return clue.rank
        if clue.pid is not None and (path, clue.pid) in self._by_pid:
            return self._by_pid[path, clue.pid]
        if death.local_rank is None:
            return None
        if (path, death.local_rank) in self._by_local:
            return self._by_local[path, death.local_rank]
        return rank_in(death.local_rank) if clue.node in (None, "0") else None

    def on_host(self, host: str | None, node: str | None) -> set[int]:
        """The ranks on a machine, by its host name or node; empty if both are None."""
        names = {_short(name) for name in (host, node) if name}
        if not names:
            return set()
        return {
            rank
            for rank, facts in self.facts.items()
            if names & {_short(name) for name in (facts.host, facts.node) if name}
        }


def _short(host: str) -> str:
    """A host without its domain; an address stays whole."""
    return host if host.replace(".", "").isdigit() else host.partition(".")[0].lower()


@dataclass(frozen=True, slots=True)
class RootCause:
    """The root cause: `ranks` share it, `why` has its reasons, the best first; `clue` shows it."""

    tier: Tier
    kind: str
    message: str
    confidence: Confidence
    why: tuple[str, ...]
    ranks: frozenset[int] = frozenset()
    clue: Clue | None = None
    host: str | None = None

    @classmethod
    def of_clue(
        cls,
        tier: Tier,
        clue: Clue,
        confidence: Confidence,
        why: Iterable[str],
        ranks: Iterable[int | None] = (),
        *,
        message: str = "",
        host: str | None = None,
    ) -> RootCause:
        """The cause that a clue shows; ranks that are None are left out."""
        known = frozenset(rank for rank in ranks if rank is not None)
        text = message or clue.message
        return cls(tier, clue.kind, text, confidence, tuple(why), known, clue, host)

    @property
    def rank(self) -> int | None:
        """The rank, if it is a single one; otherwise None."""
        return next(iter(self.ranks)) if len(self.ranks) == 1 else None


def by_sources(sources: Iterable[str], *, doubtful: bool) -> Confidence:
    """Two sources confirm a cause, one makes it probable; `doubtful` lowers either by one level.

    A source is a writer: a rank, the launcher, the kernel, the scheduler. Two lines of one process
    are one source, and so is a launcher's copy of a rank's traceback.
    """
    many = len(set(sources)) > 1
    if doubtful:
        return "probable" if many else "weak"
    return "confirmed" if many else "probable"
