"""Line rules: read the numbers of a line that a format definition describes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from ldlm_monitor.model.records import Sample, as_count
from ldlm_monitor.parse.definitions import SampleLine
from ldlm_monitor.parse.event_rules import RecordPlace
from ldlm_monitor.parse.free_fields import read_fields
from ldlm_monitor.parse.patterns import NumberSpec, Pattern, PatternMatch, certain, quantity
from ldlm_monitor.parse.vocabulary import EPOCH_KEYS, MAX_KEY, STEP_KEYS, plain, put

MAX_VALUES = 512
"""Values kept of one line. A choice: a mixture of experts prints 300, more only take memory."""

AS_PRINTED = NumberSpec(name="")
"""How to read the number of a key that no definition lists: in its printed unit."""


@dataclass(slots=True)
class Numbers:
    """The numbers of one line; `time` in Unix seconds, `values` by canonical name."""

    step: int | None = None
    epoch: float | None = None
    rank: int | None = None
    time: float | None = None
    values: dict[str, float] = field(default_factory=dict)

    def add(self, key: str, value: float) -> None:
        """Add a number under a trainer's key, as step, epoch, rank or canonical value."""
        spelled = plain(key)
        if spelled in STEP_KEYS and self.step is None and (step := as_count(value)) is not None:
            self.step = step
        elif spelled in EPOCH_KEYS and self.epoch is None:
            self.epoch = value
        elif spelled == "rank" and (rank := as_count(value)) is not None:
            self.rank = rank
        elif len(self.values) < MAX_VALUES:
            # A utilisation is at most 1: a greater one is in percent.
            put(self.values, key, value / 100 if spelled == "mfu" and value > 1 else value)

    def at(self, place: RecordPlace) -> Sample:
        """The numbers as a sample at `place`."""
        return place.known(self.rank, self.time).sample(self.values, self.step, self.epoch)

    def has_all(self, needs: tuple[tuple[str, ...], ...]) -> bool:
        """Whether at least one name of each group was read (`SampleLine.needs`)."""
        names = set(self.values)
        if self.step is not None:
            names.add("step")
        if self.epoch is not None:
            names.add("epoch")
        return all(any(_is_among(name, names) for name in group) for group in needs)


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
        not read, and a fallback rule does not match: a better rule may match the whole line.
        """
        if self.spec.fallback and not closed:
            return None
        match = self._find(text)
        if match is None:
            return None
        end = certain(text, closed=closed)
        numbers = Numbers()
        if self.spec.free:
            for key, value in read_fields(text[match.span()[1] : end]):
                numbers.add(key, value)
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
        return numbers if numbers.values and numbers.has_all(self.spec.needs) else None

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
            found = match.groups()
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


def _is_among(name: str, names: set[str]) -> bool:
    if name.endswith("*"):
        return any(found.startswith(name[:-1]) for found in names)
    return name in names
