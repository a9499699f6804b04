"""Silence (tier 5): all waited, and told so, but one.

That holds only where the silent rank would have been heard: it spoke earlier in the job, or
its neighbours' lines stand in the same file (taxonomy, section 4.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ldlm_monitor.incidents.clues import MAX_RANKS, Tier
from ldlm_monitor.incidents.collectives import Collective
from ldlm_monitor.incidents.evidence import Evidence
from ldlm_monitor.incidents.ranks import compressed
from ldlm_monitor.incidents.standing import Standing
from ldlm_monitor.incidents.verdict import Verdict
from ldlm_monitor.model.view import Confidence

SHARE: Final = 4
"""At most one rank in so many can be the odd one; more that are silent are not collected."""


def waiting_ranks(evidence: Evidence) -> set[int]:
    """The ranks that told that they waited for, or lost, another one."""
    return {rank for rank, facts in evidence.roster.facts.items() if facts.waited}


def silent_ranks(evidence: Evidence, standing: Standing, collective: Collective | None) -> set[int]:
    """Ranks that should have told of the wait and did not; empty where that cannot be known."""
    facts = evidence.roster.facts
    everyone = (
        set(facts) | set(standing.spoken) | set(range(min(standing.world_size or 0, MAX_RANKS)))
    )
    waiting = waiting_ranks(evidence)
    if collective is not None:
        everyone = collective.members(everyone | _between(waiting))
        told = {rank for rank in waiting if facts[rank].timed_out} | set(collective.calls)
    else:
        told = waiting
    silent = {
        rank
        for rank in everyone - told
        if rank in standing.spoken or rank in facts or evidence.roster.is_collected(rank)
    }
    few = max(1, len(everyone) // SHARE)
    enough = len(waiting) >= min(2, max(len(everyone) - 1, 1))
    return silent if silent and enough and len(silent) <= few else set()


def silence(
    evidence: Evidence,
    standing: Standing,
    collective: Collective | None,
    silent: set[int],
) -> Verdict | None:
    """The silent rank, and what speaks for it beyond its silence."""
    if not silent:
        return None
    waiting = waiting_ranks(evidence)
    why = [f"{_they(silent)} told of no wait, the other {len(waiting - silent)} did"]
    supporting = list(_signs(evidence, silent, waiting))
    why += supporting
    heard = all(rank in standing.spoken or rank in evidence.roster.facts for rank in silent)
    if not heard:
        why.append("it never wrote a line that was collected, though its neighbours did")
    if evidence.assumes_default_group:
        why.append("ranks are those of the process group: this torch tells no others")
    sure: Confidence = "probable" if supporting and len(silent) == 1 else "weak"
    return Verdict(
        tier=Tier.SILENCE,
        kind="rank_hang",
        message=_message(silent, collective),
        confidence=sure,
        why=tuple(why),
        ranks=frozenset(silent),
    )


def behind(standing: Standing) -> Verdict | None:
    """Of a run that stands still, the few ranks whose own step is behind all others'."""
    steps = standing.rank_steps
    if len(steps) < 3:
        return None
    last = max(steps.values())
    late = {rank for rank, step in steps.items() if step < last}
    if not late or len(late) > max(1, len(steps) // SHARE):
        return None
    return Verdict(
        tier=Tier.SILENCE,
        kind="rank_hang",
        message=f"{_they(late)} stopped before step {last}",
        confidence="weak",
        why=(
            f"the other {len(steps) - len(late)} ranks reached step {last}, {_they(late)} did not",
        ),
        ranks=frozenset(late),
    )


def _signs(evidence: Evidence, silent: set[int], waiting: set[int]) -> Iterable[str]:
    """What beyond silence tells that a rank hung: it had to be killed, it wrote no record."""
    facts = [evidence.roster.of(rank) for rank in sorted(silent)]
    ended = [evidence.roster.of(rank).exitcode for rank in waiting - silent]
    by_themselves = any(code not in (None, -15, 0) for code in ended)
    if all(each.exitcode == -15 for each in facts) and by_themselves and ended:
        yield "its process was still alive and had to be terminated (exit by SIGTERM)"
    if any(evidence.roster.by_pid(pid, path) in silent for path, pid in evidence.forced):
        yield "its process ignored SIGTERM and had to be killed"
    dumped = [rank for rank in waiting if evidence.roster.of(rank).dumped]
    if len(dumped) > 1 and not any(each.dumped for each in facts):
        yield f"it wrote no flight record, {len(dumped)} others did"


def _message(silent: set[int], collective: Collective | None) -> str:
    if collective is None:
        return f"{_they(silent)} did not answer the others"
    return f"{_they(silent)} did not join {collective.op} #{collective.seq}"


def _between(ranks: set[int]) -> set[int]:
    return set(range(min(ranks), max(ranks) + 1)) if ranks else set()


def _they(ranks: set[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {compressed(ranks)}"
