"""What tells why the next step of a run does not come, and where to look for it."""

from __future__ import annotations

from collections import deque

from ldlm_monitor.model.records import Event, Heartbeat
from ldlm_monitor.run.endings import is_abort, is_fatal
from ldlm_monitor.run.lifecycle import Lifecycle
from ldlm_monitor.run.verdict import ENDINGS, KINDS, Verdict, of_ended, verdict

_FOUND = 64
_TOLD = 4096
"""So much evidence since the last step, and so many pids and dump files, are remembered."""


class Findings:
    """Events since the last step of the run whose life is `life`.

    `pids` are its processes by rank, with the host that they are on; `dumps` are files of
    flight recorders, by rank.
    """

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self._found: deque[Event] = deque(maxlen=_FOUND)
        self._since = life.last_progress_at
        self.pids: dict[int | None, tuple[str, int]] = {}
        self.dumps: dict[int | None, str] = {}

    def note_process(self, beat: Heartbeat) -> None:
        """A rank tells its host and pid."""
        if len(self.pids) < _TOLD:
            self.pids[beat.rank] = beat.host, beat.pid

    def take(self, event: Event) -> None:
        """Keep it if it tells anything of this."""
        if event.kind in KINDS or is_fatal(event) or is_abort(event):
            if self._since != self._life.last_progress_at:
                self._found.clear()
                self._since = self._life.last_progress_at
            self._found.append(event)
        path = event.fields.get("path")
        if event.kind == "fr_dump" and isinstance(path, str) and len(self.dumps) < _TOLD:
            self.dumps[event.rank] = path

    def verdict(self, *, complete: bool) -> Verdict | None:
        """What became of a run that stalled; `complete`: it has taken all its steps.

        Of one that ended only where its host was looked at: the log tells the rest.
        """
        if not self._found or self._since != self._life.last_progress_at:
            return None
        looked_at = any(event.fields.get("probe") for event in self._found)
        if self._life.state == "stalled":
            return verdict(self._found, complete=complete)
        word = ENDINGS.get(self._life.state)
        if word is None or not looked_at:
            return None
        return of_ended(word, self._life.end_evidence, self._found)
