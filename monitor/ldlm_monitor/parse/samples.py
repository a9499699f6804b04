"""Lines that report numbers about one step, as a format file describes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ldlm_monitor.parse.formats import Value
from ldlm_monitor.parse.patterns import Pattern, certain, compile_pattern
from ldlm_monitor.parse.vocabulary import canonical, number

if TYPE_CHECKING:
    from ldlm_monitor.parse.formats import SampleLine

MAX_VALUES = 512
"""More values than this in one line are left out."""


@dataclass(slots=True)
class Numbers:
    """What a line reports."""

    step: int | None = None
    epoch: float | None = None
    values: dict[str, float] = field(default_factory=dict)


class LineRule:
    """Reads the lines of one form."""

    def __init__(self, spec: SampleLine) -> None:
        self.spec = spec
        self.order = 0
        self._pattern: Pattern = compile_pattern(spec.pattern)
        self._item = compile_pattern(spec.pairs.item) if spec.pairs else None
        self._groups = dict(self._pattern.groups)
        self._values = [
            (name, value if isinstance(value, Value) else Value(group=value))
            for name, value in spec.values.items()
        ]

    def read(self, text: bytes, start: int, *, closed: bool) -> Numbers | None:
        """The numbers of the line that begins at `start`; None where it is another line.

        Without its terminator (`closed` false) a number at the very end is unknown.
        """
        match = self._pattern.match(text, start)
        if match is None:
            return None
        named = self._pattern.named(match, certain(text, closed=closed))
        numbers = Numbers(_whole(named.get("step")), _real(named.get("epoch")))
        for name, value in self._values:
            read = _real(named.get(value.group))
            if read is not None and not (value.zero_unknown and read == 0):
                numbers.values[name] = read
        if self.spec.pairs:
            self._read_pairs(text, match.span(self._groups[self.spec.pairs.start])[0], numbers)
        return numbers

    def _read_pairs(self, text: bytes, start: int, numbers: Numbers) -> None:
        pairs, item = self.spec.pairs, self._item
        if pairs is None or item is None:
            return
        closed_by = pairs.closed_by.encode()
        groups = dict(item.groups)
        while (match := item.match(text, start)) and len(numbers.values) < MAX_VALUES:
            start = match.span()[1]
            if not text[start : start + 1] or text[start] not in closed_by:
                return
            found = match.groups()
            key = (found[groups["key"] - 1] or b"").decode("latin-1")
            value = _real(found[groups["value"] - 1])
            if value is None:
                continue
            if key == "step":
                numbers.step = int(value) if value.is_integer() else None
            elif key == "epoch":
                numbers.epoch = value
            else:
                numbers.values[pairs.names.get(key) or canonical(key[:128])] = value


def _whole(text: bytes | None) -> int | None:
    return int(text) if text and len(text) < 19 and text.isdigit() else None


def _real(text: bytes | None) -> float | None:
    return None if text is None else number(text.decode("latin-1"))
