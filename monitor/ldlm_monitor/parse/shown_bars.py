"""What the progress bars of one file tell: phases that begin and end, and samples, each once."""

from __future__ import annotations

from dataclasses import dataclass, field

from ldlm_monitor.model.records import Record
from ldlm_monitor.parse.bars import Phases, Reading
from ldlm_monitor.parse.events import Place, text_of
from ldlm_monitor.parse.other_bars import UnnamedBars


@dataclass(slots=True)
class ShownBars:
    """Remembers which phase the bars are in, and the bar of an unfinished record."""

    unnamed: UnnamedBars = field(default_factory=UnnamedBars)
    _phases: Phases = field(default_factory=Phases)
    _peeked: tuple[int, str] = (-1, "")

    def take(self, phase: str, reading: Reading, place: Place, text: bytes) -> list[Record]:
        """What a bar tells that is drawn as `text`."""
        found: list[Record] = []
        for kind in self._phases.follow(phase, reading):
            message = text_of(text)
            total = {"total": reading.total} if reading.total else {}
            found.append(
                place.event(
                    kind, "info", message, family="progress", role="progress", fields={**total}
                )
            )
        sample = _sample(phase, reading, place)
        peeked, self._peeked = self._peeked, (-1, "")
        again = peeked[0] == place.offset and peeked[1] == repr(sample)
        if sample is not None and not again:
            found.append(sample)
        return found

    def peek(self, phase: str, reading: Reading, place: Place) -> list[Record]:
        """The sample of a bar whose record is unfinished, unless it was given before."""
        sample = _sample(phase, reading, place)
        shown = (place.offset, repr(sample))
        if sample is None or shown == self._peeked:
            return []
        self._peeked = shown
        return [sample]


def _sample(phase: str, reading: Reading, place: Place) -> Record | None:
    step = reading.step if phase in ("train", "steps") else None
    if step is None and not reading.values:
        return None
    return place.sample(reading.values, step, reading.epoch)
