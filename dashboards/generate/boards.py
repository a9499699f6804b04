"""The five boards."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from .fleet_board import fleet
from .goodput_board import goodput
from .monitor_board import monitor
from .ranks_board import ranks
from .run_board import run_health


def boards() -> list[models.Dashboard]:
    """All of them, in the order in which one goes from the whole to the part."""
    return [fleet(), run_health(), ranks(), goodput(), monitor()]
