"""What the log of a run says of its configuration."""

from __future__ import annotations

from ldlm_monitor.model.records import Event

_OURS = frozenset({"family", "role", "framework"})
"""Fields that say what the event is, and are no settings."""


class ToldSettings:
    """`settings` as they were told last; `framework` is `unknown` until the log names it."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.framework = "unknown"

    def take(self, event: Event) -> None:
        """Take in a `config` or `run_started` event."""
        if event.kind == "run_started":
            framework = event.fields.get("framework") or _framework_of(event.message)
            self.framework = str(framework) if framework else self.framework
        for name, value in event.fields.items():
            if name not in _OURS and isinstance(value, str | int | float):
                self.settings[name] = str(value)

    @property
    def world_size(self) -> int | None:
        """How many ranks the log says there are."""
        told = self.settings.get("world_size", "")
        return int(told) if told.isdigit() else None


def _framework_of(banner: str) -> str | None:
    """Who writes this banner at the start of a training."""
    return "MM-LDLM" if "MMDiT" in banner else None
