"""A process's own failure (tier 2): an error of the program, CUDA or a data loader, or a signal."""

import signal
from dataclasses import replace
from typing import Final

from ldlm_monitor.base.incident_view import Confidence
from ldlm_monitor.base.text.format import names_of
from ldlm_monitor.judge.incidents.clues import Clue, Tier, rank_in
from ldlm_monitor.judge.incidents.folded_evidence import EXCEPTION, NONFINITE, Evidence, Fold
from ldlm_monitor.judge.incidents.outside_causes import (
    LATE_SECONDS,
    Exit,
    by_exit,
    everywhere,
    exit_text,
    own_exits,
)
from ldlm_monitor.judge.incidents.roster import EXITS_BY_SIGNAL, RootCause, RunFacts, by_sources

_TOGETHER_SECONDS: Final = 2.0
"""The order of errors this close is undecided. A choice: buffers and clocks differ by less."""


def first_failure(evidence: Evidence, run: RunFacts) -> RootCause | None:
    """The earliest failure of a process that does not follow from another's; None without one."""
    exits = own_exits(evidence)
    fold, clue = _earliest(evidence)
    if clue is None or fold is None:
        return by_exit(evidence, exits, run)
    if clue.rank is None:
        return _after_numbers(evidence, _unranked(evidence, clue, exits, run))
    if better := _killed_instead(evidence, clue, exits):
        return by_exit(evidence, [better], run)
    same = _sharing(evidence, fold, clue)
    if (early := _first_nonfinite(evidence, same)) and clue.kind == NONFINITE:
        return _spread(evidence, early, same - early)
    # An error that at least half of the ranks log is no rank's own.
    if len(same) > 1 and 2 * len(same) >= evidence.roster.size(run):
        return _after_numbers(evidence, everywhere(clue, same, by=same))
    return _after_numbers(evidence, _on_rank(evidence, clue, exits))


def _after_numbers(evidence: Evidence, verdict: RootCause) -> RootCause:
    """The verdict; if it is an exception after non-finite numbers, these numbers as the cause."""
    folds = [fold for fold in evidence.of_kind(NONFINITE) if fold.tier is Tier.LOCAL]
    first = min((fold.first for fold in folds), key=lambda each: each.order, default=None)
    clue = verdict.clue
    if clue is None or first is None or clue.kind != EXCEPTION or first.seen > clue.seen:
        return verdict
    ranks = {rank for fold in folds for rank in fold.ranks}
    if early := _first_nonfinite(evidence, ranks):
        return _spread(evidence, early, ranks - early)
    return replace(
        verdict,
        kind=first.kind,
        message=first.message,
        confidence="probable",
        why=("no step was taken between these numbers and the exception", *verdict.why),
        clue=replace(first, rank=clue.rank),
    )


def _earliest(evidence: Evidence) -> tuple[Fold | None, Clue | None]:
    """The first clue of a process's own failure; errors after a timeout are its consequences."""
    late = evidence.first_timeout
    best: tuple[Fold | None, Clue | None] = (None, None)
    for fold in evidence.of_tier(Tier.LOCAL):
        for clue in map(_with_rank, fold.clues):
            if late is not None and clue.seen > late + LATE_SECONDS:
                continue
            if clue.rank is not None and _only_waited(evidence, clue):
                continue
            if best[1] is None or _rated(clue) < _rated(best[1]):
                best = fold, clue
    return best


def _rated(clue: Clue) -> tuple[object, ...]:
    """Sort key by time; errors without a rank, then of a table, then NaNs come after all others.

    That a process aborted comes last: it follows from most errors, and alone shows sys.exit().
    """
    repeated = clue.fields.get("reported_by") is not None
    least = ("abort" in clue.meaning.words, clue.kind == NONFINITE)
    return (*least, repeated, clue.rank is None, *clue.order)


def _only_waited(evidence: Evidence, clue: Clue) -> bool:
    """Whether the rank reported a lost peer before, so that its own error follows from that."""
    facts = evidence.roster.of(clue.rank or 0)
    if not facts.waited:
        return False
    lost = [fold for fold in evidence.folds.values() if fold.role == "victim"]
    waited = [each.seen for fold in lost for each in fold.clues if each.rank == clue.rank]
    return min(waited, default=float("inf")) < clue.seen


def _with_rank(clue: Clue) -> Clue:
    """The clue with the rank that its line is about, if another process printed it."""
    rank = rank_in(clue.fields.get("reported_rank"))
    return replace(clue, rank=rank) if rank is not None else clue


def _killed_instead(evidence: Evidence, clue: Clue, exits: list[Exit]) -> Exit | None:
    """The only process that died silently, if no launcher blames the rank of the exception."""
    if clue.kind != EXCEPTION:
        return None
    blamed = {claim.rank for claim in evidence.claims}
    blamed |= {each.rank for each in exits if each.rank is not None}
    if clue.rank in blamed:
        return None
    dead = [each for each in exits if each.deadly and each.silent]
    return dead[0] if len(dead) == 1 else None


def _sharing(evidence: Evidence, fold: Fold, clue: Clue) -> set[int]:
    same = set(fold.ranks)
    for other in evidence.of_tier(Tier.LOCAL):
        if other.kind == clue.kind and other.first.message == clue.message:
            same |= other.ranks
    return same


def _first_nonfinite(evidence: Evidence, ranks: set[int]) -> set[int]:
    """Of ranks with non-finite numbers, those whose first step is the earliest, if not all are.

    One step apart is enough: a reduction passes the numbers on in the step after, to all ranks at
    once. Losses are compared where each rank logs its own: gradients are reduced in the same step.
    A rank without a step leaves it undecided, and so do several first ranks.
    """
    found = {rank: evidence.roster.of(rank).nonfinite_steps for rank in ranks}
    if not all(found.values()):
        return set()
    by_loss = all(True in steps for steps in found.values())
    firsts = {
        rank: steps[True] if by_loss else min(steps.values()) for rank, steps in found.items()
    }
    early = {rank for rank, step in firsts.items() if step == min(firsts.values())}
    return early if len(early) == 1 and early < ranks else set()


def _spread(evidence: Evidence, early: set[int], later: set[int]) -> RootCause:
    """The rank whose numbers were non-finite first, and from which the others took them over."""
    rank = min(early)
    folds = [*evidence.of_kind(NONFINITE)]
    own = (clue for fold in folds for clue in fold.clues if clue.rank == rank)
    clue = min(own, key=lambda each: each.order, default=replace(folds[0].first, rank=rank))
    step = min(evidence.roster.of(rank).nonfinite_steps.values())
    why = [f"rank {rank} logged it at step {step}, {names_of(later)} at a later one"]
    sources = {f"rank {each}" for each in (rank, *later)}
    return RootCause.of_clue(Tier.LOCAL, clue, by_sources(sources, doubtful=False), why, (rank,))


def _on_rank(evidence: Evidence, clue: Clue, exits: list[Exit]) -> RootCause:
    rank = clue.rank
    why = [f"rank {rank} logged an error of its own"]
    sources = {"its own error"}
    for each in exits:
        if each.rank == rank:
            why.append(f"its process {exit_text(each.code)}")
            sources.add("the launcher")
    if any(claim.rank == rank for claim in evidence.claims):
        why.append("torchelastic names this rank, too")
        sources.add("the launcher")
    others = evidence.roster.waiting - {rank}
    if others:
        why.append(f"{names_of(others)} only waited for, or lost, another rank")
        sources.add("its peers")
    rivals = _rivals(evidence, clue)
    if rivals:
        why.append(f"but {names_of(rivals)} failed at about the same time")
    sure: Confidence = by_sources(sources, doubtful=False)
    if rivals or clue.fields.get("reported_by"):
        sure = "probable"
    return RootCause.of_clue(Tier.LOCAL, clue, sure, why, (rank,))


def _rivals(evidence: Evidence, clue: Clue) -> set[int]:
    """Other ranks with an error of their own that may be as early."""
    return {
        rank
        for rank, facts in evidence.roster.facts.items()
        if rank != clue.rank
        and facts.failed is not None
        and facts.failed.kind != NONFINITE
        and facts.failed.seen <= clue.seen + _TOGETHER_SECONDS
        and not facts.waited
    }


def _unranked(evidence: Evidence, clue: Clue, exits: list[Exit], run: RunFacts) -> RootCause:
    """An error without a rank, which belongs to the only process whose exit code fits."""
    code = EXITS_BY_SIGNAL.get(str(clue.fields.get("what")))
    if "abort" in clue.meaning.words:
        code = -signal.SIGABRT  # as uncaught C++ exceptions end
    elif code == -signal.SIGABRT:
        code = None  # any library may abort, so that the code shows nothing
    fits = [
        each
        for each in exits
        if each.rank is not None
        and (each.code == code if code is not None else each.code > 0)
        and each.silent
    ]
    if len(fits) > 1 and 2 * len(fits) >= evidence.roster.size(run) and code is not None:
        return everywhere(clue, {each.rank for each in fits if each.rank is not None})
    if len(fits) == 1:
        doubtful = code is None and any(
            None in {other.rank for other in fold.clues} and fold.role == "victim"
            for fold in evidence.folds.values()
            if "sigterm" not in fold.meaning.words
        )
        if not doubtful:
            return _on_rank(evidence, replace(clue, rank=fits[0].rank), exits)
    alone = evidence.roster.size(run) < 2 and not evidence.roster.facts
    why = ["the first error in the log" + ("" if alone else "; the line has no rank")]
    sources = {"its own error"}
    if alone and evidence.has_launchers_word():
        why.append("its launcher reports that it failed")
        sources.add("the launcher")
    return RootCause.of_clue(Tier.LOCAL, clue, by_sources(sources, doubtful=False), why)
