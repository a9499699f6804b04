"""A process's own failure (tier 2): an error of the program, of CUDA, of a loader; a signal."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ldlm_monitor.incidents.clues import Clue, Tier, rank_in
from ldlm_monitor.incidents.evidence import Evidence, Fold
from ldlm_monitor.incidents.facts import Standing, Verdict, by_sources, compressed
from ldlm_monitor.incidents.outside import (
    Exit,
    by_exit,
    everywhere,
    named_all,
    own_exits,
    participants,
    said,
)
from ldlm_monitor.model.view import Confidence

_TOGETHER_SECONDS: Final = 2.0
"""Of two errors so near to each other none is known to be the first."""
_DIES_OF: Final = {
    "Segmentation fault": -11,
    "SIGSEGV": -11,
    "Bus error": -7,
    "SIGBUS": -7,
    "Floating point exception": -8,
    "Illegal instruction": -4,
}


def first_failure(evidence: Evidence, standing: Standing) -> Verdict | None:
    """The earliest failure of a process that is not a consequence of another's."""
    exits = own_exits(evidence)
    fold, clue = _earliest(evidence)
    if clue is None or fold is None:
        return by_exit(evidence, exits, standing)
    if clue.rank is None:
        return _after_numbers(evidence, _unranked(evidence, clue, exits, standing))
    if better := _killed_instead(evidence, clue, exits):
        return by_exit(evidence, [better], standing)
    same = _sharing(evidence, fold, clue)
    if len(same) > 1 and 2 * len(same) >= participants(evidence, standing):
        return _after_numbers(evidence, everywhere(clue, same))
    return _after_numbers(evidence, _on_rank(evidence, clue, exits))


def _after_numbers(evidence: Evidence, verdict: Verdict) -> Verdict:
    """An exception in the very step whose numbers were not finite comes of them."""
    folds = [fold for fold in evidence.of_kind("nonfinite_metric") if fold.tier is Tier.LOCAL]
    first = min((fold.first for fold in folds), key=lambda each: each.order, default=None)
    clue = verdict.clue
    if clue is None or first is None or clue.kind != "python_exception" or first.seen > clue.seen:
        return verdict
    return replace(
        verdict,
        kind=first.kind,
        message=first.message,
        confidence="weak" if verdict.confidence == "weak" else "probable",
        why=("no step was taken between it and the exception", *verdict.why),
        clue=replace(first, rank=clue.rank),
    )


def _earliest(evidence: Evidence) -> tuple[Fold | None, Clue | None]:
    """The first clue of a process's own failure; what came after a timeout is its consequence."""
    late = evidence.first_timeout
    best: tuple[Fold | None, Clue | None] = (None, None)
    for fold in evidence.of_tier(Tier.LOCAL):
        for clue in fold.clues:
            if late is not None and clue.seen > late + _TOGETHER_SECONDS / 2:
                continue
            clue = _with_rank(clue)  # noqa: PLW2901
            if clue.rank is not None and _only_waited(evidence, clue):
                continue
            if best[1] is None or _rated(clue) < _rated(best[1]):
                best = fold, clue
    return best


def _rated(clue: Clue) -> tuple[object, ...]:
    """By time; a table repeats what a process said, and numbers only matter alone."""
    told_again = clue.fields.get("told_by") is not None
    return (clue.kind == "nonfinite_metric", told_again, clue.rank is None, *clue.order)


def _only_waited(evidence: Evidence, clue: Clue) -> bool:
    """The rank had told of a lost peer before: its own error follows from that."""
    facts = evidence.roster.of(clue.rank or 0)
    if not facts.waited:
        return False
    waited = [
        other.seen
        for fold in evidence.folds.values()
        if fold.role == "victim"
        for other in fold.clues
        if other.rank == clue.rank
    ]
    return min(waited, default=float("inf")) < clue.seen


def _with_rank(clue: Clue) -> Clue:
    """A line that speaks of another rank than the one that prints it."""
    told = rank_in(clue.fields.get("reported_rank"))
    return replace(clue, rank=told) if told is not None else clue


def _killed_instead(evidence: Evidence, clue: Clue, exits: list[Exit]) -> Exit | None:
    """A rank that died without a word, which the launcher saw first: others may tell of it."""
    if clue.kind != "python_exception":
        return None
    blamed = {claim.rank for claim in evidence.claims}
    blamed |= {each.rank for each in exits if each.rank is not None}
    if clue.rank in blamed:
        return None
    dead = [each for each in exits if each.deadly and each.silent]
    return dead[0] if len(dead) == 1 else None


def _sharing(evidence: Evidence, fold: Fold, clue: Clue) -> set[int]:
    """The ranks that tell the very same, within any fold of that text."""
    same = set(fold.ranks)
    for other in evidence.of_tier(Tier.LOCAL):
        if other.kind == clue.kind and other.first.message == clue.message:
            same |= other.ranks
    return same


def _on_rank(evidence: Evidence, clue: Clue, exits: list[Exit]) -> Verdict:
    rank = clue.rank
    why = [f"rank {rank} tells of an error of its own"]
    sources = {"its own word"}
    for each in exits:
        if each.rank == rank:
            why.append(f"its process {said(each.code)}")
            sources.add("its exit code")
    if any(claim.rank == rank for claim in evidence.claims):
        why.append("torchelastic names it too")
        sources.add("the launcher")
    others = [r for r, facts in evidence.roster.facts.items() if facts.waited and r != rank]
    if others:
        why.append(f"{named_all(others)} only waited for, or lost, another rank")
        sources.add("its peers")
    rivals = _rivals(evidence, clue)
    if rivals:
        why.append(f"but rank {compressed(rivals)} failed at about the same time")
    sure: Confidence = by_sources(sources, doubtful=False)
    if rivals or clue.fields.get("told_by"):
        sure = "probable"
    return Verdict(
        tier=Tier.LOCAL,
        kind=clue.kind,
        message=clue.message,
        confidence=sure,
        why=tuple(why),
        ranks=frozenset() if rank is None else frozenset({rank}),
        clue=clue,
    )


def _rivals(evidence: Evidence, clue: Clue) -> set[int]:
    """Other ranks with an error of their own that is not known to be a later one."""
    return {
        rank
        for rank, facts in evidence.roster.facts.items()
        if rank != clue.rank
        and facts.failed is not None
        and facts.failed.kind != "nonfinite_metric"
        and facts.failed.seen <= clue.seen + _TOGETHER_SECONDS
        and not facts.waited
    }


def _unranked(evidence: Evidence, clue: Clue, exits: list[Exit], standing: Standing) -> Verdict:
    """An error without a rank: whose process ended in the way that such an error ends one?"""
    code = _DIES_OF.get(str(clue.fields.get("what")), -6 if clue.kind == "cxx_terminate" else None)
    fits = [
        each
        for each in exits
        if each.rank is not None
        and (each.code == code if code is not None else each.code > 0)
        and each.silent
    ]
    if len(fits) > 1 and 2 * len(fits) >= participants(evidence, standing) and code is not None:
        return everywhere(clue, {each.rank for each in fits if each.rank is not None})
    if len(fits) == 1:
        rank = fits[0].rank
        doubtful = code is None and any(
            None in {other.rank for other in fold.clues} and fold.role == "victim"
            for fold in evidence.folds.values()
            if fold.kind != "elastic_sigterm_peer"
        )
        if not doubtful:
            return replace(
                _on_rank(evidence, replace(clue, rank=rank), exits), clue=replace(clue, rank=rank)
            )
    alone = participants(evidence, standing) < 2 and not evidence.roster.facts
    return Verdict(
        tier=Tier.LOCAL,
        kind=clue.kind,
        message=clue.message,
        confidence="confirmed" if alone else "probable",
        why=(
            "the first error in the log"
            if alone
            else "the first error in the log; the line does not tell its rank",
        ),
        clue=clue,
    )
