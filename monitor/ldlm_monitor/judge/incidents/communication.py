"""Communication: which collective hangs, which link is broken (tier 4), who is silent (tier 5).

A sequence number counts the collectives of one process group; the status line that follows a
timeout has the group (from torch 2.3 on). `[Rank r]` in a message is the rank within the group
(taxonomy, section 3.1). Silence counts only if lines of the silent rank would have been read: it
logged earlier in the job, or its neighbours' lines are in one file (taxonomy, section 4.4).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ldlm_monitor.base.incident_view import Confidence
from ldlm_monitor.base.text.format import names_of
from ldlm_monitor.judge.incidents.clues import MAX_RANKS, Clue, Tier
from ldlm_monitor.judge.incidents.folded_evidence import Evidence
from ldlm_monitor.judge.incidents.roster import RootCause, RunFacts

_DEFAULT_GROUPS = ("", "0")  # torch's id of the default process group; older versions log none


@dataclass(slots=True)
class Collective:
    """One operation of one process group, with the ranks that reported a wait for it.

    `group` and `name`: the group's id and description, "" if not logged. `began`: when the first
    wait began (Unix seconds). `calls`: operation and size that each global rank called.
    `pg_ranks`: the rank within the group of each global rank.
    """

    seq: int
    group: str
    name: str
    began: float
    timeout_ms: int | None
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    pg_ranks: dict[int, int] = field(default_factory=dict)

    @property
    def op(self) -> str:
        """The operation that most ranks called."""
        return Counter(op for op, _ in self.calls.values()).most_common(1)[0][0]

    @property
    def is_of_all(self) -> bool:
        """Whether the group is the default one, of all ranks."""
        return self.name == "default_pg" or (not self.name and self.group in _DEFAULT_GROUPS)

    def members(self, everyone: set[int]) -> set[int]:
        """The global ranks of the group; empty if they cannot be derived."""
        if self.is_of_all:
            return everyone | set(self.calls)
        stride = self._stride()
        if stride is None:
            return set()
        start, step = stride
        last = min(max(self.pg_ranks.values()), (MAX_RANKS - start) // step)
        return {start + step * index for index in range(last + 1)} | set(self.calls)

    def global_rank(self, pg_rank: int) -> int:
        """The global rank of a rank of the group; the same number if it is unknown."""
        for rank, known in self.pg_ranks.items():
            if known == pg_rank:
                return rank
        stride = None if self.is_of_all else self._stride()
        return pg_rank if stride is None else stride[0] + stride[1] * pg_rank

    def _stride(self) -> tuple[int, int] | None:
        """First global rank and step of a group; None if its ranks are not evenly spaced."""
        pairs = sorted((pg_rank, rank) for rank, pg_rank in self.pg_ranks.items())
        if len(pairs) < 2 or pairs[0][0] == pairs[-1][0]:
            return None
        (low, first), (high, last) = pairs[0], pairs[-1]
        step, rest = divmod(last - first, high - low)
        start = first - step * low
        even = all(rank == start + step * pg_rank for pg_rank, rank in pairs)
        return (start, step) if even and not rest and step > 0 and start >= 0 else None


def first_collective(evidence: Evidence) -> Collective | None:
    """The collective whose wait began first, as others wait behind it; None without waits."""
    groups = _by_group(evidence)
    if not groups:
        return None
    # Ranks enqueue a collective at slightly different times, so starts are rounded to a second;
    # of equal ones, the collective with the most calls comes first.
    return min(groups, key=lambda each: (round(each.began), -len(each.calls), each.seq, each.group))


def _by_group(evidence: Evidence) -> list[Collective]:
    named: dict[int, set[tuple[str, str]]] = {}
    for (_, number), group_name in evidence.groups.items():
        named.setdefault(number, set()).add(group_name)
    found: dict[tuple[int, str], Collective] = {}
    for rank in sorted(evidence.waits):
        for wait in evidence.waits[rank]:
            alone = named.get(wait.seq, set())
            default = min(alone) if len(alone) == 1 else ("", "")
            group, name = evidence.groups.get((rank, wait.seq), default)
            known = found.setdefault(
                (wait.seq, group), Collective(wait.seq, group, name, wait.began, wait.timeout_ms)
            )
            known.began = min(known.began, wait.began)
            known.calls[rank] = (wait.op, wait.size)
            if wait.pg_rank is not None:
                known.pg_ranks[rank] = wait.pg_rank
    return list(found.values())


_HANG: Final = "rank_hang"  # the kind of a cause that no line reports
SHARE: Final = 4
"""At most one rank in 4 is named as the cause because it is silent or behind. A choice: more blames
ranks whose logs are not read, less misses several ranks that hang together."""


def silent_ranks(evidence: Evidence, run: RunFacts, collective: Collective | None) -> set[int]:
    """Ranks that should have reported a wait for the collective, and did not; empty if unclear."""
    facts = evidence.roster.facts
    everyone = set(facts) | set(run.logged_ranks) | set(range(min(run.world_size or 0, MAX_RANKS)))
    waiting = evidence.roster.waiting
    if collective is not None:
        between = range(min(waiting), max(waiting) + 1) if waiting else ()
        everyone = collective.members(everyone.union(between))
        reported = {rank for rank in waiting if facts[rank].timed_out} | set(collective.calls)
    else:
        reported = waiting
    silent = {
        rank
        for rank in everyone - reported
        if rank in run.logged_ranks or rank in facts or evidence.roster.is_collected(rank)
    }
    few = max(1, len(everyone) // SHARE)
    enough = len(waiting) >= min(2, max(len(everyone) - 1, 1))
    return silent if silent and enough and len(silent) <= few else set()


def silence(
    evidence: Evidence, run: RunFacts, collective: Collective | None, silent: set[int]
) -> RootCause | None:
    """The silent ranks as the cause, with other signs that they hung; None if `silent` is empty."""
    if not silent:
        return None
    waiting = evidence.roster.waiting
    rest = len(waiting - silent)
    why = [f"{names_of(silent)} logged no wait; {_others(rest)} did"]
    supporting = list(_signs(evidence, silent, waiting))
    why += supporting
    logged = all(rank in run.logged_ranks or rank in evidence.roster.facts for rank in silent)
    if not logged:
        why.append("it has no line in the files that have lines of its neighbours")
    if evidence.assumes_default_group:
        why.append("ranks are those of the process group: this version of torch logs no others")
    sure: Confidence = "probable" if supporting and len(silent) == 1 else "weak"
    message = _message(silent, collective)
    return RootCause(Tier.SILENCE, _HANG, message, sure, tuple(why), frozenset(silent))


def behind(run: RunFacts) -> RootCause | None:
    """The ranks of a stalled run whose last step is behind; None if none is, or many (`SHARE`)."""
    steps = run.rank_steps
    if len(steps) < 3:  # of two ranks, neither is the exception
        return None
    last = max(steps.values())
    late = {rank for rank, step in steps.items() if step < last}
    if not late or len(late) > max(1, len(steps) // SHARE):
        return None
    message = f"{names_of(late)} stopped before step {last}"
    why = f"{_others(len(steps) - len(late))} reached step {last}; {names_of(late)} did not"
    return RootCause(Tier.SILENCE, _HANG, message, "weak", (why,), frozenset(late))


def _signs(evidence: Evidence, silent: set[int], waiting: set[int]) -> Iterable[str]:
    """Signs beyond silence that a rank hung: it had to be killed, or wrote no flight record."""
    facts = [evidence.roster.of(rank) for rank in sorted(silent)]
    ended = [evidence.roster.of(rank).exitcode for rank in waiting - silent]
    by_themselves = any(code not in (None, -15, 0) for code in ended)
    if all(each.exitcode == -15 for each in facts) and by_themselves and ended:
        yield "its process was still alive and had to be terminated (exit by SIGTERM)"
    if any(evidence.roster.by_pid(pid, path) in silent for path, pid in evidence.forced):
        yield "its process ignored SIGTERM and had to be killed"
    dumped = [rank for rank in waiting if evidence.roster.of(rank).dumped]
    if len(dumped) > 1 and not any(each.dumped for each in facts):
        yield f"it wrote no flight record; {len(dumped)} others did"


def _message(silent: set[int], collective: Collective | None) -> str:
    if collective is None:
        return f"{names_of(silent)} did not respond"
    return f"{names_of(silent)} did not join {collective.op} #{collective.seq}"


def _others(count: int) -> str:
    return "the other rank" if count == 1 else f"the other {count} ranks"


def broken_link(evidence: Evidence) -> RootCause | None:
    """The machine at an end of most broken links; None if no line reports a broken link.

    A single link accuses neither of its ends: then the first line that reports it is the cause.
    """
    clues = [clue for fold in evidence.of_tier(Tier.NETWORK) for clue in fold.clues]
    if not clues:
        return None
    first = min(clues, key=lambda each: each.order)
    links = {(_near(clue), _far(clue)) for clue in clues}
    votes = Counter(end for link in links for end in link if end)
    top = sorted(votes.items(), key=lambda item: (-item[1], item[0]))[:2]
    clear = bool(top) and top[0][1] > 1 and (len(top) == 1 or top[0][1] > top[1][1])
    own = {clue.host or clue.node for clue in clues if clue.meaning.fault == "adapter"} - {None}
    if clear:
        host, why = top[0][0], f"{top[0][0]} is an end of {top[0][1]} of {len(links)} broken links"
    elif len(own) == 1:
        host = str(next(iter(own)))
        why = f"the network adapter of {host} reports a fault"
    else:
        host = first.host or first.node or ""
        why = "the first to report a broken link; the fault may be at either end"
    ranks = evidence.roster.on_host(host, None)
    sure: Confidence = "probable" if clear or len(own) == 1 else "weak"
    return RootCause.of_clue(Tier.NETWORK, first, sure, (why,), ranks, host=host or None)


def lost_peer(evidence: Evidence) -> RootCause | None:
    """The machine that most others lost as a peer, if it reports no loss itself; otherwise None."""
    folds = evidence.that_are("names peer")
    clues = [clue for fold in folds for clue in fold.clues if _far(clue)]
    links = {(clue.rank, _near(clue), _far(clue)) for clue in clues}
    votes = Counter(far for _, _, far in links)
    here = {near for _, near, _ in links}
    gone = sorted((-count, far) for far, count in votes.items() if far not in here)
    # One report is too few, and two machines with equally many are undecided.
    if not gone or gone[0][0] > -2 or (len(gone) > 1 and gone[1][0] == gone[0][0]):
        return None
    count, host = -gone[0][0], gone[0][1]
    first = min((clue for clue in clues if _far(clue) == host), key=lambda each: each.order)
    ranks = evidence.roster.on_host(host, None)
    why = f"{count} others lost {host} as their peer; it logged no lost peer itself"
    gone_away = f"{host} closed its connections, or cannot be reached"
    return RootCause.of_clue(
        Tier.NETWORK, first, "weak", (why,), ranks, message=gone_away, host=host
    )


def _near(clue: Clue) -> str:
    return clue.host or clue.node or ""


def _far(clue: Clue) -> str:
    """The address of a peer, logged as 10.4.0.11<41232>, without its port; "" if not logged."""
    peer = str(clue.fields.get("peer") or clue.fields.get("last_error") or "")
    head, bracket, _ = peer.partition("<")
    return head.rpartition(" ")[2] if bracket else ""
