"""Ranks that tell of their own end, as those with the callback do: a run is done when all are."""

from __future__ import annotations

from ldlm_monitor.model.records import Event


class Attendance:
    """Who began, and who has not ended yet. What no rank tells of itself is not its business."""

    def __init__(self) -> None:
        self._training: set[int] = set()

    def observe(self, event: Event) -> bool:
        """Take in a begin or an end; whether the end is that of the run.

        The callback's rows name a process (begin) and a status (end); a banner of a log
        does not, and its end is everybody's.
        """
        own = event.rank is not None and not {"pid", "status"}.isdisjoint(event.fields)
        if event.rank is None or not own:
            return True
        if event.kind == "run_started":
            self._training.add(event.rank)
        else:
            self._training.discard(event.rank)
        return not self._training

    def clear(self) -> None:
        """The run begins anew."""
        self._training.clear()
