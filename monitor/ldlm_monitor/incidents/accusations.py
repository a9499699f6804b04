"""Ranks that somebody names (tier 3): who did not come, who called something else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ldlm_monitor.incidents.clues import Clue, Tier, named_ranks, rank_in, ranks_in
from ldlm_monitor.incidents.communication import Collective
from ldlm_monitor.incidents.evidence import Evidence
from ldlm_monitor.incidents.facts import Standing, Verdict, by_sources, compressed

_FEW: Final = 8
"""Of so many ranks one may be the odd one by a mark that in a common hang all of them bear."""
_NAMERS: Final = (
    (
        "monitored_barrier_failed",
        "barrier",
        "the barrier waited in vain for",
        "did not come to the barrier",
    ),
    ("ras_status", "ras", "NCCL's own status misses", "missing or dead by NCCL's status"),
    ("fr_dump", "flight recorder", "the flight record misses", "did not join the collective"),
    ("stack_dump", "stacks", "by the stacks, outside of the collective:", "not in the collective"),
)
"""Event kind, source, and the words for who is named and for what."""
_NEVER_JOINED: Final = ("never_joined", "finished_not_joined")


@dataclass(frozen=True, slots=True)
class Word:
    """One source's word on who is at fault; `message` says of what, without the rank."""

    source: str
    kind: str
    ranks: frozenset[int]
    why: str
    clue: Clue | None
    message: str


def named(
    evidence: Evidence, standing: Standing, collective: Collective | None, silent: set[int]
) -> Verdict | None:
    """The rank that the best word names; a second word for the same rank confirms it.

    `silent`: the ranks that did not tell of the collective, where that is known.
    """
    words = [word for word in _words(evidence, standing, collective) if word.ranks]
    if not words:
        return None
    first = words[0]
    agreeing = [word for word in words if word.ranks == first.ranks]
    why = list(dict.fromkeys(word.why for word in agreeing))
    sources = {word.source for word in agreeing}
    if silent and first.ranks == silent and first.kind not in ("collective_mismatch",):
        sources.add("silence")
        why.append(f"{_names_of(first.ranks)} told of no timeout, which all others did")
    against = {rank for word in words for rank in word.ranks} - first.ranks
    if against:
        why.append(f"but other lines name {compressed(against)}")
    return Verdict(
        tier=Tier.NAMED,
        kind=first.kind,
        message=first.message,
        confidence=by_sources(sources, doubtful=bool(against)),
        why=tuple(why),
        ranks=first.ranks,
        clue=first.clue,
    )


def _words(evidence: Evidence, standing: Standing, collective: Collective | None) -> Iterator[Word]:
    """Every word, the most direct first."""
    yield from _missing(evidence)
    yield from _fingerprints(evidence)
    yield from _parameters(evidence)
    yield from _different_calls(collective)
    yield from _desync(evidence, collective)
    yield from _hung(evidence)
    yield from _stuck(evidence, standing)


def _missing(evidence: Evidence) -> Iterator[Word]:
    """Who did not come to a barrier, is not in a flight record, or is dead by NCCL's own word."""
    for kind, source, who, what in _NAMERS:
        for fold in sorted(evidence.of_kind(kind), key=lambda each: each.first.order):
            ranks = frozenset(rank for clue in fold.clues for rank in named_ranks(clue))
            if ranks:
                yield Word(source, kind, ranks, f"{who} {_names_of(ranks)}", fold.first, what)


def _fingerprints(evidence: Evidence) -> Iterator[Word]:
    """Each rank tells its own call and one other's: that of the fewest is the odd one."""
    calls: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    clues: list[Clue] = []
    for fold in evidence.of_kind("collective_mismatch"):
        for clue in fold.clues:
            clues.append(clue)
            for end in ("a", "b"):
                rank = rank_in(clue.fields.get(f"rank_{end}"))
                if rank is not None:
                    call = (str(clue.fields.get(f"op_{end}")), str(clue.fields.get(f"shape_{end}")))
                    calls[rank][call] += 1
    odd = _minority({rank: votes.most_common(1)[0][0] for rank, votes in calls.items()})
    if odd:
        first = min(clues, key=lambda each: each.order)
        op, shape = calls[min(odd)].most_common(1)[0][0]
        yield Word(
            "fingerprints",
            "collective_mismatch",
            odd,
            f"{_names_of(odd)} called {op} of shape [{shape}]; "
            f"the other {len(calls) - len(odd)} ranks did not",
            first,
            f"another collective than the others: {op} of shape [{shape}]",
        )


def _minority(calls: dict[int, tuple[str, str]]) -> frozenset[int]:
    """The ranks of the rarest call, where it is clearly the rarer one."""
    counts = Counter(calls.values())
    if len(counts) < 2:
        return frozenset()
    rare, fewest = min(counts.items(), key=lambda item: (item[1], item[0]))
    if 2 * fewest >= len(calls):
        return frozenset()
    return frozenset(rank for rank, call in calls.items() if call == rare)


def _parameters(evidence: Evidence) -> Iterator[Word]:
    """DDP compares with process 0: where most others differ from it, it is the odd one."""
    folds = list(evidence.of_kind("ddp_param_mismatch"))
    reporters = {rank for fold in folds for rank in fold.ranks}
    if not folds or not reporters:
        return
    first = min((fold.first for fold in folds), key=lambda each: each.order)
    other = rank_in(first.fields.get("other_rank")) or 0
    present = set(evidence.roster.facts) - {other}
    if len(reporters) > 1 and 2 * len(reporters) > len(present):
        yield Word(
            "parameters",
            first.kind,
            frozenset({other}),
            f"{len(reporters)} ranks differ from rank {other} in a parameter: it is the odd one",
            first,
            "other model parameters than the other ranks",
        )
    elif len(reporters) == 1 and len(present) > 2:
        yield Word(
            "parameters",
            first.kind,
            frozenset(reporters),
            f"only {_names_of(reporters)} differs from rank {other}",
            first,
            "other model parameters than the other ranks",
        )


def _different_calls(collective: Collective | None) -> Iterator[Word]:
    """Of one collective some ranks made another call: as fingerprints, but from the timeouts."""
    if collective is None:
        return
    odd = _minority(collective.calls)
    if odd:
        op, size = collective.calls[min(odd)]
        yield Word(
            "timeouts",
            "collective_mismatch",
            odd,
            f"{_names_of(odd)} called {op} of {size} elements at #{collective.seq}, the others not",
            None,
            f"another collective than the others at #{collective.seq}: {op} of {size} elements",
        )


def _desync(evidence: Evidence, collective: Collective | None) -> Iterator[Word]:
    """torch's desync report names ranks of the group."""
    for fold in sorted(evidence.of_kind("nccl_desync_report"), key=lambda each: each.first.order):
        told = fold.first.fields
        if told.get("class") not in _NEVER_JOINED:
            continue
        pg_ranks = ranks_in(told.get("ranks"))
        ranks = frozenset(collective.global_rank(rank) if collective else rank for rank in pg_ranks)
        yield Word(
            "desync report",
            fold.kind,
            ranks,
            f"torch's desync report: {_names_of(ranks)} never joined",
            fold.first,
            "never joined the collective",
        )


def _hung(evidence: Evidence) -> Iterator[Word]:
    """nvidia-resiliency-ext: of several ranks the one that was heard of first hung first."""
    folds = list(evidence.of_kind("nvrx_rank_hang"))
    clues = [clue for fold in folds for clue in fold.clues if clue.rank is not None]
    first = min(clues, key=lambda each: each.order, default=None)
    if first is not None and first.rank is not None:
        yield Word(
            "nvrx",
            first.kind,
            frozenset({first.rank}),
            f"rank {first.rank} sent no heartbeat, the earliest of {len(clues)}",
            first,
            first.message,
        )


def _stuck(evidence: Evidence, standing: Standing) -> Iterator[Word]:
    """A watchdog or the GIL that is stuck on few ranks is their own trouble; on many, all wait."""
    present = max(len(evidence.roster.facts), len(standing.spoken), standing.world_size or 1)
    for kind, what in (
        ("nccl_heartbeat_stuck", "its watchdog made no progress"),
        ("nccl_monitor_kill", "its watchdog hung"),
        ("gil_hang_suspected", "its Python lock was not to be had"),
    ):
        folds = [fold for fold in evidence.of_kind(kind) if fold.role == "root"]
        ranks = frozenset(rank for fold in folds for rank in fold.ranks)
        if ranks and len(ranks) <= max(1, present // _FEW) < present:
            first = min((fold.first for fold in folds), key=lambda each: each.order)
            yield Word(kind, kind, ranks, f"{_names_of(ranks)}: {what}", first, first.message)


def _names_of(ranks: frozenset[int] | set[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {compressed(ranks)}"
