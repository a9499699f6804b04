"""Processes that ended by themselves, as launchers tell it: what speaks where a rank cannot."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Final

from ldlm_monitor.incidents.clues import Clue, Tier
from ldlm_monitor.incidents.evidence import Evidence
from ldlm_monitor.incidents.ranks import compressed
from ldlm_monitor.incidents.standing import Standing
from ldlm_monitor.incidents.verdict import Verdict, by_sources
from ldlm_monitor.model.view import Confidence

_LATE_SECONDS: Final = 1.0
_UNCATCHABLE: Final = frozenset({-9, -11, -7, -4, -8})
_COLLATERAL: Final = frozenset({None, 0, -15, -2})


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended by itself: neither its launcher nor a lost peer ended it.

    `silent`: it printed no error. `heard`: had it printed one, it would stand in this file.
    """

    rank: int | None
    code: int
    clue: Clue
    silent: bool
    heard: bool

    @property
    def deadly(self) -> bool:
        """A signal that no program sends itself by mistake of another rank."""
        return self.code in _UNCATCHABLE


def own_exits(evidence: Evidence) -> list[Exit]:
    """Processes that died by themselves, one for each rank, the earliest first."""
    found: dict[int | None, Exit] = {}
    for death in sorted(evidence.deaths, key=lambda each: each.clue.order):
        rank = evidence.roster.of_death(death)
        if _is_own(evidence, rank, death.exitcode, death.pid, death.clue):
            ended = death.exitcode if death.exitcode is not None else 1
            clue = replace(death.clue, rank=rank)
            found.setdefault(rank, _exit(evidence, rank, ended, clue))
    tables = [fold.first for fold in evidence.of_kind("elastic_failure_table")]
    for rank, facts in sorted(evidence.roster.facts.items()):
        code = facts.exitcode
        if not tables or rank in found or not _is_own(evidence, rank, code, facts.pid, tables[0]):
            continue
        clue = replace(tables[0], kind="elastic_worker_failed", rank=rank, message=said(code))
        found[rank] = _exit(evidence, rank, code or 1, clue)
    return list(found.values())


def _exit(evidence: Evidence, rank: int | None, code: int, clue: Clue) -> Exit:
    silent = rank is not None and not evidence.roster.of(rank).told
    return Exit(rank, code, clue, silent, evidence.roster.hears(clue.position.path))


def _is_own(
    evidence: Evidence, rank: int | None, code: int | None, pid: int | None, clue: Clue
) -> bool:
    """Whether a process ended by itself, and before anyone had waited for too long."""
    if code in _COLLATERAL or (clue.position.path, pid) in evidence.forced:
        return False
    late = evidence.first_timeout
    if late is not None and clue.seen > late + _LATE_SECONDS:
        return False
    return rank is None or not evidence.roster.of(rank).waited


def said(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "ended"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"left with exit code {code}"


def by_exit(evidence: Evidence, exits: list[Exit], standing: Standing) -> Verdict | None:
    """Only exit codes tell of it: a process that was killed prints nothing."""
    deadly = [each for each in exits if each.deadly]
    chosen = deadly or [each for each in exits if each.silent or each.rank is None]
    if not chosen:
        return None
    ranks = {each.rank for each in chosen if each.rank is not None}
    first = min(chosen, key=lambda each: (each.rank is None, *each.clue.order))
    if len(ranks) > 1 and 2 * len(ranks) >= participants(evidence, standing):
        return everywhere(first.clue, ranks)
    if not deadly and (len(chosen) > 1 or first.rank is None):
        return None
    return _of_exit(evidence, first, rivals=ranks - {first.rank})


def _of_exit(evidence: Evidence, first: Exit, *, rivals: set[int]) -> Verdict:
    rank = first.rank
    whose = "a process" if rank is None else f"rank {rank}"
    why = [f"{whose} {said(first.code)}" + (" and printed no error" if first.silent else "")]
    sources = {"its exit code"}
    others = [r for r, facts in evidence.roster.facts.items() if facts.waited and r != rank]
    if others:
        why.append(f"{named_all(others)} only waited for, or lost, another rank")
        sources.add("its peers")
    if any(claim.rank == rank for claim in evidence.claims):
        why.append("torchelastic names it too")
    if rivals:
        why.append(f"but rank {compressed(rivals)} died by itself as well")
    sure: Confidence = by_sources(sources, doubtful=bool(rivals) or rank is None)
    if not first.deadly and not (first.heard and others):
        sure = "weak"  # a launcher alone often blames the first that lost its peer
        why.append("only the launcher tells so: what this process printed is not collected")
    elif first.code == 1 and sure == "confirmed":
        sure = "probable"  # an exception would have left a traceback
    return Verdict(
        tier=Tier.LOCAL,
        kind=first.clue.kind,
        message=f"process {said(first.code).removeprefix('was ')}",
        confidence=sure,
        why=tuple(why),
        ranks=frozenset() if rank is None else frozenset({rank}),
        clue=replace(first.clue, fields={**first.clue.fields, "exitcode": first.code}),
    )


def everywhere(clue: Clue, ranks: set[int]) -> Verdict:
    """The same failure on most ranks: no single one is to blame."""
    same = f"the same on {len(ranks)} ranks ({compressed(ranks)})"
    return Verdict(
        tier=Tier.LOCAL,
        kind=clue.kind,
        message=clue.message,
        confidence="probable",
        why=(f"{same}: a fault of program, data or configuration rather than of one rank",),
        ranks=frozenset(ranks),
        clue=clue,
    )


def participants(evidence: Evidence, standing: Standing) -> int:
    """How many ranks the job has, as far as is known."""
    return max(len(evidence.roster.facts), len(standing.spoken), standing.world_size or 1)


def named_all(ranks: list[int]) -> str:
    """`rank 3`, `ranks 0-2,5`."""
    listed = compressed(ranks)
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"
