"""Whether a run has ended, while that is not certain yet: what it tells may be caught."""

from __future__ import annotations

from dataclasses import replace

from ldlm_monitor.model.names import ENDED_STATES
from ldlm_monitor.model.records import Event
from ldlm_monitor.run.endings import (
    TABLE,
    Ending,
    absolves,
    culprit,
    dies_of_another,
    explains,
    is_abort,
    is_death,
    is_fatal,
    is_interrupt,
    is_kill,
    strength,
    suffered,
)

TABLE_SECONDS = 3.0
"""How long torchrun's failure table, which names the rank, is waited for."""
SILENCE_SECONDS = 10.0
"""A traceback is a crash only if the run goes on no more: it may have been caught."""
VICTIM_SECONDS = 60.0
"""Who died first may be told later than who died of it: an agent gives its workers 30 s."""
STRAY_SECONDS = 1.0
"""Another file of the run may tell its last steps this much after the end."""


class Suspicion:
    """How the run may have ended, if `ending` is not None, and by whose fault."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self._victims: set[int] = set()

    def hear(self, event: Event) -> None:
        """A rank that tells of what others did to it did not fail first."""
        if event.rank is not None and suffered(event):
            self._victims.add(event.rank)

    def clear(self) -> None:
        """The run has begun anew."""
        self.ending = None
        self._victims.clear()

    def went_on(self, at: float) -> None:
        """A step was taken at `at`: it was no end, unless another file only tells it late."""
        if self.ending is not None and at - self.ending.since > STRAY_SECONDS:
            self.ending = None
        self._victims.clear()

    def take(self, event: Event, at: float, *, phase: str) -> None:
        """Take in an event, while the run is in `phase`, a word of `names.RUN_STATES`."""
        kind = event.kind
        if is_kill(event):
            if self.ending is not None and explains(event, self.ending):
                self.ending = None
            if self.ending is None:
                self._suspect("killed", at, TABLE_SECONDS, event, phase)
        elif kind == TABLE:
            # Where a node blames a victim, another node's table may know better.
            wait = TABLE_SECONDS if culprit(event) is None else 0.0
            self._suspect("crashed", at, wait, event, phase)
        elif is_death(event):
            self._suspect("crashed", at, TABLE_SECONDS, event, phase)
        elif phase in ENDED_STATES:
            return
        elif is_interrupt(event):
            if self.ending is None:
                self._suspect("killed", at, SILENCE_SECONDS, event, phase)
        elif is_abort(event) or is_fatal(event):
            self._suspect("crashed", at, SILENCE_SECONDS, event, phase)
        elif dies_of_another(event):
            self._suspect("crashed", at, VICTIM_SECONDS, event, phase)

    def _suspect(self, state: str, at: float, wait: float, event: Event, phase: str) -> None:
        rank, known = culprit(event), self.ending
        if dies_of_another(event) or (rank in self._victims and not is_fatal(event)):
            rank = None
        if known is None:
            if phase not in ("crashed", "killed"):
                self.ending = Ending(state, at, at + wait, rank, event)
        elif known.evidence.fields.get("role") == "victim" and state == "crashed":
            # SIGTERM is what a launcher sends to the others when one died.
            self.ending = Ending(state, known.since, at + wait, rank, event)
        elif known.state == "crashed":
            stronger = strength(event) > strength(known.evidence)
            named = known.rank
            if (rank is not None and (named is None or stronger)) or absolves(event, known):
                named = rank
            self.ending = replace(
                known,
                confirm_at=min(known.confirm_at, at + wait),
                rank=named,
                evidence=event if stronger and event.kind != TABLE else known.evidence,
            )
