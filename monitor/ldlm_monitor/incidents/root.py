"""The first cause: the best tier that has one wins (taxonomy, section 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ldlm_monitor.incidents.accusations import named
from ldlm_monitor.incidents.clues import Clue, Tier
from ldlm_monitor.incidents.communication import (
    Collective,
    behind,
    broken_link,
    first_collective,
    lost_peer,
    silence,
    silent_ranks,
)
from ldlm_monitor.incidents.evidence import Evidence, Fold
from ldlm_monitor.incidents.facts import Claim, Standing, Verdict, compressed
from ldlm_monitor.incidents.local import first_failure
from ldlm_monitor.incidents.outside import external, hardware, said

_TELL_LEAST: Final = ("elastic_failure_table", "elastic_sigterm_peer", "nccl_watchdog_teardown")
_DIES_WITH: Final = frozenset({"python_exception", "elastic_worker_failed", "cxx_terminate"})


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A launcher's claim beside the verdict: whether they agree, and why not."""

    claim: Claim
    agrees: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, the collective that hangs, and what the launchers claim."""

    verdict: Verdict
    collective: Collective | None
    silent: frozenset[int]
    claims: tuple[Contradiction, ...]


def judge(
    evidence: Evidence, standing: Standing, stall: Clue | None, *, settled: bool
) -> Judgement:
    """Choose the first cause. `settled`: who has not spoken by now will not.

    `stall`: the run was found to stand still.
    """
    collective = first_collective(evidence)
    silent = silent_ranks(evidence, standing, collective) if settled else set()
    verdict = (
        external(evidence)
        or _local_or_hardware(evidence, standing)
        or named(evidence, standing, collective, silent)
        or broken_link(evidence)
        or silence(evidence, standing, collective, silent)
        or lost_peer(evidence)
        or (behind(standing) if stall is not None and not evidence.folds else None)
        or _unattributed(evidence, standing, collective, stall, settled=settled)
    )
    claims = tuple(
        _compare(evidence, claim, verdict)
        for claim in sorted(evidence.claims, key=lambda each: (each.rank, each.position.path))
    )
    return Judgement(verdict, collective, frozenset(silent), claims)


def _local_or_hardware(evidence: Evidence, standing: Standing) -> Verdict | None:
    local = first_failure(evidence, standing)
    return hardware(evidence, local.clue if local is not None else None) or local


def _unattributed(
    evidence: Evidence,
    standing: Standing,
    collective: Collective | None,
    stall: Clue | None,
    *,
    settled: bool,
) -> Verdict:
    """No line tells the cause: what most ranks tell, and what is not known."""
    fold = _loudest(evidence)
    clue = fold.first if fold is not None else stall
    return Verdict(
        tier=Tier.UNATTRIBUTED,
        kind=fold.kind if fold is not None else stall.kind if stall is not None else "unknown",
        message=clue.message if clue is not None else "",
        confidence="none",
        why=_doubts(evidence, standing, collective, settled=settled),
        clue=clue,
    )


def _doubts(
    evidence: Evidence, standing: Standing, collective: Collective | None, *, settled: bool
) -> tuple[str, ...]:
    if not evidence.folds:
        return ("the run stands still and no line tells why",)
    waiting = [rank for rank, facts in evidence.roster.facts.items() if facts.waited]
    known = set(evidence.roster.facts) | set(standing.spoken)
    if collective is not None and not settled:
        return ("other ranks may still tell of the collective",)
    unheard = set(range(max(known, default=-1) + 1)) - known
    if collective is not None and collective.is_of_all and unheard:
        they = f"rank{'' if len(unheard) == 1 else 's'} {compressed(unheard)}"
        return (f"nothing of {they} is heard: they are gone, or their log is not followed",)
    if collective is not None and collective.is_of_all and known and known <= set(collective.calls):
        joined = f"all {len(collective.calls)} ranks that are known joined the collective"
        return (f"{joined}: GPUs or network are likelier than one rank's code",)
    if waiting:
        lost = (
            f"every rank that speaks here ({compressed(waiting)}) waited for, or lost, another one"
        )
        return (f"{lost}: where it began is in a log that is not followed, or in none",)
    return ("no line tells the cause",)


def _loudest(evidence: Evidence) -> Fold | None:
    """What most ranks tell, of what tells most."""
    folds = [fold for fold in evidence.folds.values() if fold.role in ("victim", "death", "root")]
    folds = folds or list(evidence.folds.values())

    def rated(fold: Fold) -> tuple[object, ...]:
        plain = fold.kind in _TELL_LEAST or fold.first.severity in ("info", "warning")
        return (plain, fold.kind in _DIES_WITH, -len(fold.ranks), -fold.count, *fold.first.order)

    return min(folds, key=rated, default=None)


def _compare(evidence: Evidence, claim: Claim, verdict: Verdict) -> Contradiction:
    if claim.rank in verdict.ranks:
        agrees = "it agrees" if verdict.rank is not None else "it is one of these ranks"
        return Contradiction(claim, True, agrees)
    facts = evidence.roster.of(claim.rank)
    if facts.waited:
        kinds = ", ".join(sorted(facts.waited)[:3])
        told = f"rank {claim.rank} itself tells that it waited for, or lost, another rank ({kinds})"
    elif claim.exitcode == -15:
        told = f"rank {claim.rank} was terminated by its launcher"
    elif verdict.kind in ("ddp_param_mismatch", "collective_mismatch"):
        told = f"rank {claim.rank} is one of those that agree with each other"
    elif facts.failed is not None and verdict.clue is not None:
        told = f"rank {claim.rank} failed later, or together with others"
    elif facts.told:
        told = f"rank {claim.rank} only reports it"
    else:
        told = f"rank {claim.rank} {said(claim.exitcode)}; nothing else speaks for it"
    if not verdict.ranks:
        return Contradiction(claim, None if not facts.waited else False, told)
    return Contradiction(claim, False, told)
