"""Accused ranks (tier 3): other lines report them as missing, or as making a different call."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ldlm_monitor.base.meaning import AccusingKind, How
from ldlm_monitor.base.text.format import names_of
from ldlm_monitor.judge.incidents.clues import Clue, Tier, named_ranks, rank_in, ranks_in
from ldlm_monitor.judge.incidents.communication import Collective
from ldlm_monitor.judge.incidents.folded_evidence import Evidence, Fold
from ldlm_monitor.judge.incidents.roster import RootCause, RunFacts, by_sources

_FEW: Final = 8
"""At most one rank in 8 is accused by a sign that all ranks show in a common hang. With 8, one rank
of a node of 8 GPUs can still be accused."""
MISMATCH: Final = "collective_mismatch"
"""Kind of ranks that call different collectives, as their timeouts show it, too."""
_NEVER_JOINED: Final = ("never_joined", "finished_not_joined")
"""Values of `class` in torch's desync report that accuse the listed ranks."""


@dataclass(frozen=True, slots=True)
class Accusation:
    """The ranks that one source accuses: `why` is its reason, `message` the fault without rank."""

    kind: str
    ranks: frozenset[int]
    why: str
    clue: Clue | None  # the source's first line; None for a comparison of several ranks' lines
    message: str

    @property
    def writer(self) -> str:
        """Who accuses: a rank by its own line, several by what they compare, or a tool."""
        rank = None if self.clue is None else self.clue.rank
        return self.kind if rank is None else f"rank {rank}"


def accused(
    evidence: Evidence, run: RunFacts, collective: Collective | None, silent: set[int]
) -> RootCause | None:
    """The cause by the most direct accusation, which other sources may confirm; None without one.

    `silent`: the ranks that did not report the collective; empty if unknown.
    """
    found = [each for each in _accusations(evidence, run, collective) if each.ranks]
    if not found:
        return None
    first = found[0]
    why = list(dict.fromkeys(each.why for each in found if each.ranks == first.ranks))
    sources = {each.writer for each in found if each.ranks == first.ranks}
    if silent and first.ranks == silent and first.kind != MISMATCH:
        why.append(f"{names_of(first.ranks)} logged no timeout; all other ranks did")
        sources.add("its peers")
    against = {rank for each in found for rank in each.ranks} - first.ranks
    if against:
        why.append(f"but other lines accuse {names_of(against)}")
    sure = by_sources(sources, doubtful=bool(against))
    return RootCause(
        Tier.NAMED, first.kind, first.message, sure, tuple(why), first.ranks, first.clue
    )


def _accusations(
    evidence: Evidence, run: RunFacts, collective: Collective | None
) -> Iterator[Accusation]:
    yield from _missing(evidence)
    yield from _fingerprints(evidence)
    yield from _parameters(evidence)
    yield from _different_calls(collective)
    yield from _desync(evidence, collective)
    yield from _hung(evidence)
    yield from _stuck(evidence, run)


def _missing(evidence: Evidence) -> Iterator[Accusation]:
    """Ranks missing at a barrier, in a flight record or in stacks, or dead by NCCL's status."""
    for fold, own in _by_order(evidence, "missing"):
        ranks = frozenset(rank for clue in fold.clues for rank in named_ranks(clue))
        if ranks:
            fault = str(fold.first.fields.get("what") or own.what or fold.first.message)
            yield Accusation(
                fold.kind,
                ranks,
                f"{own.who or 'a line accuses'} {names_of(ranks)}",
                fold.first,
                fault,
            )


def _by_order(evidence: Evidence, how: How) -> Iterator[tuple[Fold, AccusingKind]]:
    """The folds that accuse ranks in this way, the most believed kinds first, then the earliest."""
    found = [(fold, own) for fold in evidence.accusing(how) if (own := fold.meaning.accuses)]
    yield from sorted(found, key=lambda each: (each[1].order, each[0].first.order))


def _fingerprints(evidence: Evidence) -> Iterator[Accusation]:
    """Each rank logs its own call and that of another rank: the rarest call is the odd one."""
    calls: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    clues: list[Clue] = []
    for fold in evidence.accusing("fingerprints"):
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
        called = f"{op} of shape [{shape}]"
        why = f"{names_of(odd)} called {called}; the other {len(calls) - len(odd)} ranks did not"
        fault = f"another collective than the others: {called}"
        yield Accusation(MISMATCH, odd, why, first, fault)


def _minority(calls: dict[int, tuple[str, str]]) -> frozenset[int]:
    """The ranks of the rarest call, if they are fewer than half; otherwise none."""
    counts = Counter(calls.values())
    if len(counts) < 2:
        return frozenset()
    rare, fewest = min(counts.items(), key=lambda item: (item[1], item[0]))
    if 2 * fewest >= len(calls):
        return frozenset()
    return frozenset(rank for rank, call in calls.items() if call == rare)


def _parameters(evidence: Evidence) -> Iterator[Accusation]:
    """DDP compares with process 0; if most others differ from it, process 0 is at fault."""
    folds = list(evidence.accusing("parameters"))
    reporters = {rank for fold in folds for rank in fold.ranks}
    if not folds or not reporters:
        return
    first = min((fold.first for fold in folds), key=lambda each: each.order)
    other = rank_in(first.fields.get("other_rank")) or 0
    present = set(evidence.roster.facts) - {other}
    count = len(reporters)
    if count > 1 and 2 * count > len(present):
        odd = frozenset({other})
        why = f"{count} ranks differ from rank {other} in a parameter, so it is the odd one"
    elif count == 1 and len(present) > 2:
        odd = frozenset(reporters)
        why = f"only {names_of(reporters)} differs from rank {other}"
    else:
        return
    fault = "other model parameters than the other ranks"
    yield Accusation(first.kind, odd, why, first, fault)


def _different_calls(collective: Collective | None) -> Iterator[Accusation]:
    """Ranks whose timeout reports another call than most, for the same collective."""
    if collective is None:
        return
    odd = _minority(collective.calls)
    if odd:
        op, size = collective.calls[min(odd)]
        why = f"only {names_of(odd)} called {op} of {size} elements at #{collective.seq}"
        fault = f"another collective than the others at #{collective.seq}: {op} of {size} elements"
        yield Accusation(MISMATCH, odd, why, None, fault)


def _desync(evidence: Evidence, collective: Collective | None) -> Iterator[Accusation]:
    """Ranks that did not join, which torch's desync report lists by their rank in the group."""
    for fold, _ in _by_order(evidence, "desync"):
        fields = fold.first.fields
        if fields.get("class") not in _NEVER_JOINED:
            continue
        pg_ranks = ranks_in(fields.get("ranks"))
        ranks = frozenset(collective.global_rank(rank) if collective else rank for rank in pg_ranks)
        why = f"torch's desync report: {names_of(ranks)} never joined"
        fault = "never joined the collective"
        yield Accusation(fold.kind, ranks, why, fold.first, fault)


def _hung(evidence: Evidence) -> Iterator[Accusation]:
    """The rank that nvidia-resiliency-ext reports first as hanging: others hang because of it."""
    found = [clue for fold in evidence.accusing("hung") for clue in fold.clues]
    clues = [clue for clue in found if clue.rank is not None]
    first = min(clues, key=lambda each: each.order, default=None)
    if first is not None and first.rank is not None:
        why = f"rank {first.rank} sent no heartbeat, by the earliest of {len(clues)} such reports"
        odd = frozenset({first.rank})
        yield Accusation(first.kind, odd, why, first, first.message)


def _stuck(evidence: Evidence, run: RunFacts) -> Iterator[Accusation]:
    """A watchdog or GIL stuck on few ranks is these ranks' own fault; if on many, all only wait."""
    present = evidence.roster.size(run)
    by_kind: dict[str, list[tuple[Fold, AccusingKind]]] = {}
    for fold, own in _by_order(evidence, "stuck"):
        if fold.role == "root":
            by_kind.setdefault(fold.kind, []).append((fold, own))
    for kind, found in by_kind.items():
        ranks = frozenset(rank for fold, _ in found for rank in fold.ranks)
        if ranks and len(ranks) <= max(1, present // _FEW) < present:
            fold, own = found[0]
            why = f"{names_of(ranks)}: {own.what}"
            yield Accusation(kind, ranks, why, fold.first, fold.first.message)
