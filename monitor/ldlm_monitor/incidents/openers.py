"""What comes before an incident, or from beside it: early signs, and alerts of values."""

from __future__ import annotations

from typing import Final

from ldlm_monitor.incidents.clues import MAX_MESSAGE, Clue, Tier, clue_of, rank_in, tier_of
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.records import Event, Position

OPENERS: Final = {
    "TrainingStalled": "hang_no_progress",
    "NonFiniteLoss": "nonfinite_metric",
    "NonFiniteGradient": "nonfinite_metric",
}
"""Alerts of what no line of a failure tells, and what their incident is called."""
_TOLD_EARLY: Final = frozenset({"elastic_sigterm_peer", "elastic_force_kill", "fr_dump"})
_NOWHERE: Final = Position("", 0, 0)


def is_early(event: Event) -> bool:
    """No failure yet, but what may have brought one about, or is told of it before it is known."""
    if event.kind in _TOLD_EARLY:
        return True
    if event.severity == "info":
        return False
    return tier_of(clue_of(event, 0.0)) in (Tier.HARDWARE, Tier.NETWORK)


def alert_clue(transition: Transition, kind: str, at: float) -> Clue:
    """What an alert tells that no event does: it is judged by values, or by their absence."""
    summary = transition.annotations.get("summary", transition.alert)
    run, rank = transition.labels.get("run", ""), transition.labels.get("rank", "")
    return Clue(
        kind=kind,
        role="root",
        severity=transition.labels.get("severity", "critical"),
        seen=at,
        effective=transition.active_at,
        message=summary.removeprefix(f"{run}: ")[:MAX_MESSAGE],
        position=transition.position or _NOWHERE,
        rank=rank_in(int(rank)) if rank.isdecimal() and len(rank) < 10 else None,
        fields={"told_by": "alert", "text": (transition.line or "")[:MAX_MESSAGE]},
    )
