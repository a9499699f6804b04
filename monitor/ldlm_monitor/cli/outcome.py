"""Exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ldlm_monitor.config import FailOn
    from ldlm_monitor.model.view import Health, Snapshot

UNHEALTHY = 3
"""Exit code of health at or above --fail-on, apart from 1 (bug) and 2 (usage)."""
_WORST_ALLOWED: dict[FailOn, Health] = {
    "warning": "HEALTHY",
    "error": "WARNING",
    "critical": "UNHEALTHY",
    "never": "CRITICAL",
}


def exit_code(snapshot: Snapshot, fail_on: FailOn) -> int:
    """3 where a run's health is at or beyond the severity, else 0."""
    from ldlm_monitor.report.alerts import HEALTHS, worst_health

    worst = HEALTHS.index(worst_health(snapshot))
    return UNHEALTHY if worst > HEALTHS.index(_WORST_ALLOWED[fail_on]) else 0
