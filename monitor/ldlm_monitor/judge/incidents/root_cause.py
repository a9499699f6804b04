"""Chooses the root cause: the best tier that has one decides (taxonomy, section 4.4)."""

from dataclasses import dataclass, replace
from typing import Final

from ldlm_monitor.base.incident_view import ClaimView
from ldlm_monitor.base.text.format import compressed, names_of
from ldlm_monitor.judge.incidents.accusations import accused
from ldlm_monitor.judge.incidents.clues import Clue, Tier
from ldlm_monitor.judge.incidents.communication import (
    Collective,
    behind,
    broken_link,
    first_collective,
    lost_peer,
    silence,
    silent_ranks,
)
from ldlm_monitor.judge.incidents.folded_evidence import (
    NONFINITE,
    STACKS,
    STALL,
    Evidence,
    Fold,
)
from ldlm_monitor.judge.incidents.local_causes import first_failure
from ldlm_monitor.judge.incidents.outside_causes import exit_text, external, hardware
from ldlm_monitor.judge.incidents.roster import RankFacts, RootCause, RunFacts
from ldlm_monitor.logs.parse.meanings import meaning_of_kind

_SHOWN_STACKS: Final = 2  # of processes of a run that stands. A choice: most repeat these


@dataclass(frozen=True, slots=True, eq=False)  # views are cached for one object, not for its value
class Judgement:
    """The root cause, the collective that hangs, its silent ranks, and the launchers' claims."""

    verdict: RootCause
    collective: Collective | None
    silent: frozenset[int]
    claims: tuple[ClaimView, ...]  # compared with the root cause


def judge(evidence: Evidence, run: RunFacts, stall: Clue | None, *, settled: bool) -> Judgement:
    """Choose the root cause. `settled`: no further rank is expected to report.

    `stall`: the alert that the run takes no step, as a clue; None if it has not fired.
    """
    if stall is None:  # the alert was of the monitor that ended the run for it
        stall = next((fold.first for fold in evidence.of_kind(STALL)), None)
    collective = first_collective(evidence)
    silent = silent_ranks(evidence, run, collective) if settled else set()
    verdict = (
        external(evidence)
        or _local_or_hardware(evidence, run, settled=settled)
        or accused(evidence, run, collective, silent)
        or broken_link(evidence)
        or silence(evidence, run, collective, silent)
        or lost_peer(evidence)
        or (behind(run) if stall is not None and evidence.is_silent else None)
        or _unattributed(evidence, run, collective, stall, settled=settled)
    )
    if verdict.confidence == "confirmed" and not evidence.is_ordered(timed=run.timed):
        verdict = replace(verdict, confidence="probable")
    claims = tuple(
        _compare(evidence, claim, verdict)
        for claim in sorted(evidence.claims, key=lambda each: (each.rank, each.position.path))
    )
    return Judgement(verdict, collective, frozenset(silent), claims)


def _local_or_hardware(evidence: Evidence, run: RunFacts, *, settled: bool) -> RootCause | None:
    local = first_failure(evidence, run)
    if fault := hardware(evidence, local.clue if local is not None else None):
        return fault
    # An error of all ranks is first read of one. Of numbers, their steps decide.
    early = not settled and local is not None and local.confidence != "confirmed"
    if local is None or not early or local.rank is None or local.kind == NONFINITE:
        return local
    if max(evidence.roster.size(run), local.rank + 1) < 2:
        return local
    why = (*local.why, "other ranks may still report the same")
    return replace(local, ranks=frozenset(), why=why)


def _unattributed(
    evidence: Evidence,
    run: RunFacts,
    collective: Collective | None,
    stall: Clue | None,
    *,
    settled: bool,
) -> RootCause:
    """The verdict without a cause: the event that most ranks logged, and the open questions."""
    fold = _loudest(evidence, stall)
    clue = fold.first if fold is not None else stall or evidence.deed
    why = _doubts(evidence, run, collective, settled=settled)
    if clue is None:
        return RootCause(Tier.UNATTRIBUTED, "unknown", "", "none", why)
    return RootCause.of_clue(Tier.UNATTRIBUTED, clue, "none", why)


def _doubts(
    evidence: Evidence, run: RunFacts, collective: Collective | None, *, settled: bool
) -> tuple[str, ...]:
    if evidence.is_silent:
        places = [fold.first.message for fold in evidence.of_kind(STACKS)][:_SHOWN_STACKS]
        return ("the run takes no step, and no line says why", *places)
    waiting = evidence.roster.waiting
    known = set(evidence.roster.facts) | set(run.logged_ranks)
    if collective is not None and not settled:
        return ("other ranks may still report the collective",)
    missing = set(range(max(known, default=-1) + 1)) - known
    if collective is not None and collective.is_of_all and missing:
        return (f"no line of {names_of(missing)} was read: it is gone, or its log is not followed",)
    if collective is not None and collective.is_of_all and known and known <= set(collective.calls):
        joined = f"all {len(collective.calls)} known ranks joined the collective"
        return (f"{joined}: GPUs or network are likelier than one rank's code",)
    if waiting:
        shown = compressed(waiting)
        lost = f"every rank with lines here ({shown}) waited for, or lost, another one"
        return (f"{lost}: the first failure is in a log that is not followed, or in none",)
    return ("no line reports the cause",)


def _loudest(evidence: Evidence, stall: Clue | None) -> Fold | None:
    """The fold of the most specific kind; of several, the one of most ranks.

    That processes sleep says less than that a run takes no step.
    """
    folds = [fold for fold in evidence.folds.values() if fold.role in ("victim", "death", "root")]
    is_known = evidence.deed is not None or stall is not None
    folds = folds or ([] if is_known else list(evidence.folds.values()))

    def rated(fold: Fold) -> tuple[object, ...]:
        vague = "vague" in fold.meaning.words or fold.first.severity in ("info", "warning")
        return (
            vague,
            "dies with" in fold.meaning.words,
            -len(fold.ranks),
            -fold.count,
            *fold.first.order,
        )

    return min(folds, key=rated, default=None)


def _compare(evidence: Evidence, claim: ClaimView, verdict: RootCause) -> ClaimView:
    facts = evidence.roster.of(claim.rank)
    agrees: bool | None = claim.rank in verdict.ranks
    if not verdict.ranks and not facts.waited:
        agrees = None
    if agrees:
        reason = "it agrees" if verdict.rank is not None else "it is one of these ranks"
    else:
        reason = _against(facts, claim, verdict)
    return claim.model_copy(update={"agrees": agrees, "reason": reason})


def _against(facts: RankFacts, claim: ClaimView, verdict: RootCause) -> str:
    if facts.waited:
        kinds = ", ".join(sorted(facts.waited)[:3])  # examples suffice
        return f"rank {claim.rank} itself waited for, or lost, another rank ({kinds})"
    if claim.exitcode == -15:
        return f"rank {claim.rank} was terminated by its launcher"
    accuses = meaning_of_kind(verdict.kind).accuses
    if accuses is not None and accuses.how in ("parameters", "fingerprints"):
        return f"rank {claim.rank} is one of those that agree with each other"
    if facts.failed is not None and verdict.clue is not None:
        return f"rank {claim.rank} failed later, or together with others"
    if facts.has_error:
        return f"rank {claim.rank} only reports the failure"
    return f"rank {claim.rank} {exit_text(claim.exitcode)}; no other line names it"
