"""Line rules: read the numbers of a line that a format definition describes."""

import math
from collections.abc import Callable

from ldlm_monitor.logs.parse.definitions import SampleLine
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.patterns import (
    NumberSpec,
    Pattern,
    PatternMatch,
    certain,
    quantity,
    texts,
)
from ldlm_monitor.logs.parse.vocabulary import MAX_KEY

AS_PRINTED = NumberSpec(name="")
"""How to read the number of a key that no definition lists: in its printed unit."""


class LineRule:
    """Reads the lines of one definition of the format `home`; a lower `order` is tried first."""

    def __init__(self, spec: SampleLine, home: str, made: Callable[[str], Pattern]) -> None:
        self.spec = spec
        self.home = home
        self.order = 0
        self._pattern: Pattern = made(spec.pattern)
        self.contains = spec.contains.encode()
        self._item = made(spec.pairs.item) if spec.pairs else None
        continued = spec.continued
        self.continues = made(continued.pattern) if continued else None
        self.until = made(continued.until) if continued and continued.until else None

    def begins(self, text: bytes) -> bool:
        """Whether a text is the first line of this rule's sample over several lines."""
        return self._find(text + b"\n") is not None

    def read(self, text: bytes, *, closed: bool) -> Numbers | None:
        """The numbers of a line; None if the rule does not match.

        In a line without terminator (`closed` false), a number at the end may be cut and is
        not read.
        """
        match = self._find(text)
        if match is None:
            return None
        end = certain(text, closed=closed)
        numbers = Numbers()
        if self.spec.pairs:
            begin = match.span(dict(self._pattern.groups)[self.spec.pairs.start])[0]
            self._read_pairs(text, begin, numbers, closed=closed)
            if not numbers.values:
                return None
        named = self._pattern.named(match, end)
        numbers.step = whole(named.get("step")) if "step" in named else numbers.step
        numbers.epoch = (
            read_number(named["epoch"], AS_PRINTED) if "epoch" in named else numbers.epoch
        )
        numbers.rank = whole(named.get("rank")) if "rank" in named else numbers.rank
        for name, source in self.spec.values.items():
            read = read_number(named.get(source.name), source)
            if read is not None:
                numbers.values[name] = read
        given = bool(numbers.values) or (not self.spec.values and numbers.step is not None)
        return numbers if given and numbers.has_all(self.spec.needs) else None

    def _find(self, text: bytes) -> PatternMatch | None:
        return self._pattern.search(text) if self.spec.anywhere else self._pattern.match(text)

    def _read_pairs(self, text: bytes, start: int, numbers: Numbers, *, closed: bool) -> None:
        pairs, item = self.spec.pairs, self._item
        if pairs is None or item is None or start < 0:
            return
        closed_by = pairs.closed_by.encode()
        ends_line = closed and b"\n" in closed_by
        groups = dict(item.groups)
        key_group, value_group = groups["key"] - 1, groups["value"] - 1
        while match := item.match(text, start):
            before, start = start, match.span()[1]
            if start == before or (
                text[start] not in closed_by if start < len(text) else not ends_line
            ):
                return
            found = texts(match)
            key = (found[key_group] or b"").decode("latin-1")[:MAX_KEY]
            if key in pairs.skip:
                continue
            known = pairs.names.get(key, AS_PRINTED)
            value = read_number(found[value_group], known)
            if value is not None:
                numbers.add(known.name or key, value)


def read_number(text: bytes | None, how: NumberSpec) -> float | None:
    """The number of a text in base units; None for a missing text or a placeholder of `how`."""
    if text is None:
        return None
    spelled = text.decode("latin-1")
    value = quantity(spelled, how.unit)
    if value is None or (how.finite and not math.isfinite(value)):
        return None
    # The numbers are compared as texts, as NaN is not equal to NaN.
    if how.unknown and repr(quantity(spelled)) in map(repr, how.unknown):
        return None
    return value


def whole(text: bytes | None) -> int | None:
    """A count of at most 18 digits, which fit in 64 bits; None for anything else."""
    return int(text) if text and len(text) < 19 and text.isdigit() else None
