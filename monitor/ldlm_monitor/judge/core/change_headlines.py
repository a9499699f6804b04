"""Gives changes of alerts their headlines, which need the run and its incidents at that time."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.names import STALL_ALERT
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.judge.core.headlines import headline_of_change


class ChangeHeadlines:
    """Writes headlines. `look` returns a run, by its name, and its incidents, as of now."""

    def __init__(
        self, look: Callable[[str], tuple[RunView | None, Sequence[IncidentView]]]
    ) -> None:
        self._look = look
        self._stood: dict[str, float] = {}  # by a stall's key, when its run took the last step

    def attach(self, changes: Sequence[Transition]) -> list[Transition]:
        """The changes with their headlines.

        An alert that goes on with another severity fires and ends at one time; it is not over.
        """
        seen: dict[str, tuple[RunView | None, Sequence[IncidentView]]] = {}
        shown = [each for each in changes if each.state != "pending" and not each.is_heartbeat]
        firing: dict[tuple[str, str], str] = {}
        lines: dict[int, str] = {}
        for each in sorted(shown, key=lambda each: each.state != "firing"):
            name = each.labels.get("run", "")
            if name not in seen:
                seen[name] = self._look(name)
            line = headline_of_change(each, *seen[name], self._stands(each)).line()
            if each.state == "firing":
                firing[name, each.alert] = line
            elif name:
                line = firing.get((name, each.alert), line)
            lines[id(each)] = line
        return [replace(each, headline=lines.get(id(each), "")) for each in changes]

    def _stands(self, change: Transition) -> float | None:
        """When the run of a stall took its last step: a firing alert's value is the age of that."""
        if change.alert != STALL_ALERT or change.time is None:
            return None
        if change.state == "firing":
            return self._stood.setdefault(change.key, change.time - change.value)
        return self._stood.pop(change.key, None)
