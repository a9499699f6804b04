"""A record of text on its way through the rules: cleaned, its prefixes peeled off, and placed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ldlm_monitor.model.chunk import Chunk, Origin
from ldlm_monitor.parse.envelope import Envelope, peel
from ldlm_monitor.parse.events import Place
from ldlm_monitor.parse.framing import Clean, Line, clean
from ldlm_monitor.parse.patterns import compile_pattern

_HEADER = compile_pattern(r"(?:\[rank\d+\]:)?\[?[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d+ [^\]]{1,200}\] ")
_WRITER = compile_pattern(r"(?:\[[A-Za-z_]+\d+\]: ?)+")


@dataclass(slots=True)
class Opened:
    """One record; `now` is when it was read."""

    line: Line
    cleaned: Clean
    envelope: Envelope
    place: Place
    now: float

    @classmethod
    def of(cls, line: Line, chunk: Chunk, origin: Origin, now: float) -> Opened:
        """The record of a line of a file whose run, node and rank `origin` tells."""
        cleaned = clean(line.raw)
        envelope = peel(cleaned.text)
        rank = origin.rank if envelope.rank is None else envelope.rank
        if envelope.node is not None:
            origin = replace(origin, node=envelope.node)
        place = Place(chunk.path, line.number, line.offset, origin, rank, envelope.time)
        return cls(line, cleaned, envelope, place, now)

    @property
    def text(self) -> bytes:
        """The record without what a terminal would obey."""
        return self.cleaned.text

    def place_of(self, index: int) -> Place:
        """The place of text that begins at `index` inside the record."""
        return self.place.moved(self.cleaned.raw_index(index)) if index else self.place

    def glued(self, begin: int) -> tuple[Place, bytes, bytes]:
        """Place, text and writer of what is glued to something else, by what stands before it."""
        place, stream = self.place_of(begin), self.envelope.stream
        for pattern, reach in ((_HEADER, 200), (_WRITER, 0)):
            for match in pattern.finditer(self.text):
                start, end = match.span()
                if end <= begin <= end + reach and start:
                    peeled = peel(self.text, start)
                    place = self.place_of(start)
                    if peeled.rank is not None:
                        place = replace(place, rank=peeled.rank)
                    return place, self.text[end:], peeled.stream or stream
        return place, self.text[begin:], stream
