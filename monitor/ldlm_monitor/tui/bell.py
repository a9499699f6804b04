"""When the terminal's bell rings: a critical alert has begun to fire, and nobody silenced it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ldlm_monitor.model.alert import alert_key
from ldlm_monitor.model.view import Snapshot
from ldlm_monitor.tui.alerts import items


class Bell:
    """Remembers what fired when it was asked last; what fires when the screen opens is no news."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._known: frozenset[str] | None = None

    def rings(
        self, snapshot: Snapshot, held_back: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> bool:
        """Whether it is to ring for this picture."""
        critical = {
            alert_key(item.name, item.labels): item
            for item in items(snapshot, held_back)
            if item.state == "firing" and item.labels.get("severity") == "critical"
        }
        known, self._known = self._known, frozenset(critical)
        if known is None or not self._enabled:
            return False
        return any(not item.told for key, item in critical.items() if key not in known)
