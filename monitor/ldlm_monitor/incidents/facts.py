"""What an incident asks about its run."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from ldlm_monitor.incidents.clues import Clue, Tier, rank_in
from ldlm_monitor.model.records import Position
from ldlm_monitor.model.view import Confidence


@dataclass(frozen=True, slots=True)
class Standing:
    """A run as it stands when its incident is looked at. Times are Unix seconds.

    `spoken`: ranks of which any record came, ever. `rank_steps`: the last step of each rank
    that tells its own. `step`: the last step of the run.
    """

    state: str = "running"
    ended_at: float | None = None
    last_progress_at: float = float("-inf")
    step: int | None = None
    world_size: int | None = None
    spoken: AbstractSet[int] = field(default_factory=frozenset)
    rank_steps: dict[int, int] = field(default_factory=dict)


_SPANS: Final = 400


def compressed(ranks: Iterable[int]) -> str:
    """Ranks as text: `0-36,38-63`; a very torn set ends with an ellipsis."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:_SPANS]]
    return ",".join([*shown, "…"] if len(spans) > _SPANS else shown)


@dataclass(slots=True)
class RankFacts:
    """What is known of one rank in one incident.

    `waited`: kinds by which it tells that it waited for, or lost, another rank. `told`: it
    printed any error. `exitcode` is negative for a signal. `failed`: its first own error.
    """

    waited: set[str] = field(default_factory=set)
    told: bool = False
    failed: Clue | None = None
    timed_out: bool = False
    dumped: bool = False
    stuck: bool = False
    exitcode: int | None = None
    pid: int | None = None
    host: str | None = None
    node: str | None = None
    local_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Death:
    """A launcher's word that a process ended. `exitcode` is negative for a signal."""

    clue: Clue
    exitcode: int | None
    local_rank: int | None
    pid: int | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A launcher's own "root cause": torchelastic prints one for each node."""

    rank: int
    exitcode: int | None
    host: str | None
    node: str | None
    position: Position


class Roster:
    """Ranks by what tells them: prefix, process id, local rank in the file of one launcher."""

    def __init__(self) -> None:
        self.facts: dict[int, RankFacts] = {}
        self._by_pid: dict[tuple[str, int], int] = {}
        self._by_local: dict[tuple[str, int], int] = {}
        self._heard: dict[str, tuple[int, int]] = {}

    def of(self, rank: int) -> RankFacts:
        """The facts of a rank."""
        known = self.facts.get(rank)
        if known is None:
            known = self.facts[rank] = RankFacts()
        return known

    def hear(self, rank: int, path: str) -> None:
        """A rank spoke in a file, so that what its neighbours say would be there too."""
        low, high = self._heard.get(path, (rank, rank))
        self._heard[path] = (min(low, rank), max(high, rank))

    def hears(self, path: str) -> bool:
        """Whether ranks speak in a file, and not only their launcher."""
        return path in self._heard

    def is_collected(self, rank: int) -> bool:
        """Whether a rank would have been heard: ranks on both sides of it were, in one file."""
        return any(low <= rank <= high for low, high in self._heard.values())

    def enter(self, path: str, rank: int, local_rank: int | None, pid: int | None) -> None:
        """A launcher's table says which process was which rank."""
        facts = self.of(rank)
        if pid is not None:
            self._by_pid[path, pid] = rank
            facts.pid = pid
        if local_rank is not None:
            self._by_local[path, local_rank] = rank
            facts.local_rank = local_rank

    def by_pid(self, pid: int | None, path: str | None = None) -> int | None:
        """The rank of a process, in the file of its launcher, or where one number is unique."""
        if pid is None:
            return None
        if path is not None and (path, pid) in self._by_pid:
            return self._by_pid[path, pid]
        found = {rank for (_, known), rank in self._by_pid.items() if known == pid}
        return found.pop() if len(found) == 1 else None

    def of_death(self, death: Death) -> int | None:
        """The rank that a launcher speaks of: on the first node local ranks are the global ones."""
        clue, path = death.clue, death.clue.position.path
        if clue.rank is not None:
            return clue.rank
        if (path, death.pid) in self._by_pid and death.pid is not None:
            return self._by_pid[path, death.pid]
        if death.local_rank is None:
            return None
        if (path, death.local_rank) in self._by_local:
            return self._by_local[path, death.local_rank]
        return rank_in(death.local_rank) if clue.node in (None, "0") else None

    def on_host(self, host: str | None, node: str | None) -> set[int]:
        """The ranks on a machine, by whichever name it goes."""
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
class Verdict:
    """The first cause. `ranks` are all that share it; `rank` is set where it is one.

    `why` are sentences for people, the best reason first.
    """

    tier: Tier
    kind: str
    message: str
    confidence: Confidence
    why: tuple[str, ...]
    ranks: frozenset[int] = frozenset()
    clue: Clue | None = None
    host: str | None = None

    @property
    def rank(self) -> int | None:
        """The one rank that is named."""
        return next(iter(self.ranks)) if len(self.ranks) == 1 else None


def by_sources(sources: Iterable[str], *, doubtful: bool) -> Confidence:
    """Two that do not know of each other confirm; one is probable, a doubtful one weak."""
    many = len(set(sources)) > 1
    if doubtful:
        return "probable" if many else "weak"
    return "confirmed" if many else "probable"
