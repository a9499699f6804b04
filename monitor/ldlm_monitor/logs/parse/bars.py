"""tqdm's progress bars: what each bar counts, and the records made of a file's bars.

tqdm is used for downloads, tokenising and training. So a bar is read only if a definition matches
its description, if it has no description and counts iterations, or if it shows a loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from ldlm_monitor.base.records import FieldValue, Record
from ldlm_monitor.logs.parse.bar_form import Meter, match_meter, read_item, read_items, split_meter
from ldlm_monitor.logs.parse.definitions import Bar
from ldlm_monitor.logs.parse.envelope import Envelope, peel
from ldlm_monitor.logs.parse.event_rules import RecordPlace, text_of
from ldlm_monitor.logs.parse.free_fields import read_fields
from ldlm_monitor.logs.parse.line_rules import AS_PRINTED, read_number, whole
from ldlm_monitor.logs.parse.made_events import Seen
from ldlm_monitor.logs.parse.metric_like import shape_of
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.patterns import NumberSpec, Pattern, quantity
from ldlm_monitor.logs.parse.vocabulary import is_loss

TRIGGERS = (r"\d%\|", r"\d% \d{1,9}/", r"\dit \[")
"""Every bar contains a match of one of these patterns: `50%|` of tqdm's usual form, `50% 5/10` of
a notebook, whose text has no bar, and `5it [` of a bar without total."""

_ANY = "tqdm"
"""The format of a bar that is of no certain trainer."""
_MAX_CACHED = 1024
"""Entries of each cache. A choice: a run repeats dozens of texts, more only take memory."""


@dataclass(slots=True)
class BarReading:
    """The values of one bar. `end` is the index after the bar's last complete part.

    `phase` is that of the bar's definition (`definitions.Bar`): `epoch` means that the end of
    the bar ends an epoch and not the training. `total` is None if the bar shows none. `home`
    is the format whose definition matched.
    """

    phase: str
    step: int
    total: int | None
    end: int
    epoch: float | None
    values: dict[str, float]
    home: str


class BarItem(NamedTuple):
    """An item of a bar's postfix: the name and the number that it gives, if any.

    `kind`: how the compiled part may read it in the repaints that follow, as `native/bars.h` says.
    """

    name: str
    kind: Literal["n", "z", "e", "="]
    value: float | None


class BarRule:
    """A compiled definition of the format `home`: bars with one description.

    `names`: the keys of the postfix that are read; None: all keys, by the vocabulary.
    """

    def __init__(self, spec: Bar, home: str, made: Callable[[str], Pattern]) -> None:
        self.spec = spec
        self.home = home
        self.pattern: Pattern = made(f"(?:{spec.pattern})$")
        self.names: dict[bytes, NumberSpec] | None = None
        if spec.postfix is not None:
            self.names = {key.encode(): name for key, name in spec.postfix.items()}
        # The cache saves most parsing: items are mostly equal to those of the bar before.
        self.item = lru_cache(maxsize=_MAX_CACHED)(self._read_item)

    def describe(self, description: bytes, numbers: Numbers) -> None:
        """Add the numbers in the description; remove the values that the definition skips."""
        match = self.pattern.match(description)
        named = self.pattern.named(match) if match and self.pattern.groups else {}
        if "step" in named:
            numbers.step = whole(named["step"])
        epoch = whole(named.get("epoch"))
        numbers.epoch = numbers.epoch if epoch is None else float(epoch)
        for name, value in self.spec.values.items():
            read = read_number(named.get(value.name), value)
            if read is not None:
                numbers.values[name] = read
        for key in self.spec.skip:
            numbers.values.pop(key, None)

    def described(self, piece: bytes) -> BarItem | None:
        """What an item gives, and how the next ones like it can be read; None for other text."""
        read, item = self._read_item(piece), read_item(piece)
        if read is None or item is None or self.names is None:
            return None
        known = self.names.get(item[0], AS_PRINTED)
        kind: Literal["n", "z", "e", "="] = "e" if read[0] == "epoch" else "n"
        if known.unknown:
            zeros = all(each == 0 or math.isnan(each) for each in known.unknown)
            kind = "z" if zeros and kind == "n" else "="
        if read[1] is None or known.unit is not None:
            kind = "="
        return BarItem(read[0], kind, read[1])

    def _read_item(self, piece: bytes) -> tuple[str, float | None] | None:
        item = read_item(piece)
        if item is None:
            return None
        key, text = item
        known = self.names.get(key, AS_PRINTED) if self.names else AS_PRINTED
        text = text.partition(b"/")[0] if known.name == "epoch" else text
        return known.name, read_number(text, known) if known.name else None


class Bars:
    """Reads bars; the definitions are tried in their order."""

    def __init__(self, rules: Sequence[BarRule]) -> None:
        self.rules = rules
        self.rule_of = lru_cache(maxsize=_MAX_CACHED)(self._rule_of)

    def alone(self, raw: bytes) -> BarReading | None:
        """The bar of a record that has nothing else: a fast path for most records of a log.

        None if a prefix or control characters precede, or if no definition lists the bar's keys:
        the caller then reads the record like any other.
        """
        meter = None if b"\x1b" in raw or b"\x08" in raw else split_meter(raw, 0)
        if meter is None:
            return None
        rule, bare = self.rule_of(meter.description)
        return _known(rule, meter, raw) if rule is not None and bare else None

    def items(self, raw: bytes) -> list[BarItem]:
        """The items of a bar that `alone` reads, of which each has a name."""
        meter = split_meter(raw, 0)
        rule = None if meter is None else self.rule_of(meter.description)[0]
        if meter is None or rule is None:
            return []
        return read_items(raw, meter.end, rule.described)[0]

    def read(self, text: bytes, start: int, file: BarRecords, *, closed: bool) -> BarReading | None:
        """The bar that begins at `start`; None without a bar, or if the bar is not of a training.

        A record without terminator (`closed` false) may be cut. A bar whose keys no definition
        lists is then read only if its `]` is there: a cut postfix may lack the step or loss.
        """
        meter = split_meter(text, start) or match_meter(text, start)
        if meter is None:
            return None
        rule, _ = self.rule_of(meter.description)
        if rule is not None and rule.names is not None:
            known = _known(rule, meter, text)
            if known is not None:
                return known
        items, end = read_items(text, meter.end, read_item)
        if not closed and b"]" not in text[end - 1 :]:
            return None
        numbers = Numbers()
        _add_items(items, numbers, meter.step)
        if rule is not None:
            rule.describe(meter.description, numbers)
        elif b"oss" in meter.description:
            _read_description(meter.description, numbers)
        has_loss = "eval_loss" in numbers.values or any(map(is_loss, numbers.values))
        counts = has_loss or meter.total is not None  # without both, a download may be counted
        phase: str = rule.spec.phase if rule is not None else ""
        if phase == "" and not meter.description and file.trained:
            phase = "unnamed"
        if phase == "unnamed" and meter.counts_steps and meter.total is not None:
            phase = file.unnamed_phase(meter.total)
        elif phase in ("", "unnamed"):
            phase = "epoch" if file.showed_loss(meter.description, now=has_loss) else ""
        return _reading(rule, phase, meter, numbers, end) if phase and counts else None

    def _rule_of(self, description: bytes) -> tuple[BarRule | None, bool]:
        """The definition or None; True if it lists keys and the description has no log prefix."""
        rule = next((rule for rule in self.rules if rule.pattern.match(description)), None)
        known = rule is not None and rule.names is not None
        ends = (b" ", b": ")  # what may precede the percentage
        return rule, known and all(peel(description + end) == Envelope() for end in ends)


def _known(rule: BarRule, meter: Meter, text: bytes) -> BarReading | None:
    """Read a bar whose definition lists the keys; a cut bar gives its complete items.

    None for a bar with another key: it is of another format. One without keys may be of any.
    """
    phase = rule.spec.phase
    items, end = read_items(text, meter.end, rule.item)
    if any(not name for name, _ in items):
        return None
    epoch: float | None = None
    values: dict[str, float] = {}
    _measure(values, meter, phase)
    for name, value in items:
        if name == "epoch":
            epoch = value
        elif value is not None:
            values[name] = value
    home = rule.home if items else _ANY
    return BarReading(phase, meter.step, meter.total or None, end, epoch, values, home)


def _reading(
    rule: BarRule | None, phase: str, meter: Meter, numbers: Numbers, end: int
) -> BarReading:
    if phase == "eval" and "loss" in numbers.values:
        numbers.values.setdefault("eval_loss", numbers.values.pop("loss"))
    _measure(numbers.values, meter, phase)
    step = meter.step if phase != "epoch" or numbers.step is None else numbers.step
    # The end of a bar that shows an epoch is the end of that epoch, not of the run.
    named = meter.description or {"loss", "eval_loss"} & numbers.values.keys()
    if phase == "train" and (numbers.epoch is not None or not named):
        phase = "epoch"
    home = rule.home if rule is not None and rule.names is None else _ANY
    return BarReading(phase, step, meter.total or None, end, numbers.epoch, numbers.values, home)


def _add_items(items: Sequence[tuple[bytes, bytes]], numbers: Numbers, counted: int) -> None:
    """Add the items of a postfix by the vocabulary; `counted` is the bar's count.

    NeMo prints `global_step` with two digits (`3.2e+4`). If it differs from the bar's count by
    at most 1 %, the count is used, which is exact. NeMo also prints the exact loss beside
    Lightning's running mean, which is NaN under manual optimization.
    """
    exact: float | None = None
    for key, text in items:
        read = quantity(text.decode("latin-1"))
        rounded = read is not None and b"e+" in text and abs(read - counted) <= 0.01 * read
        if read is None or (key == b"global_step" and rounded):
            continue
        exact = read if key == b"reduced_train_loss" else exact
        numbers.add(key.decode("latin-1"), read)
    if exact is not None:
        numbers.values["loss"] = exact


def _read_description(described: bytes, numbers: Numbers) -> None:
    fields = read_fields(described)
    if not fields.sentence and any(map(is_loss, fields.numbers().values)):
        fields.add_to(numbers)


def _measure(values: dict[str, float], meter: Meter, phase: str) -> None:
    total = meter.total
    if total and phase == "train":
        values["total_steps"] = float(total)
    if total:
        values["progress" if phase == "train" else f"{phase}_progress"] = meter.step / total
    if meter.speed is not None and phase not in ("eval", "skip"):
        values["steps_per_second"] = meter.speed


class BarRecords:
    """Makes the records of one file's bars; a bar that `peek` read early gives no second sample."""

    def __init__(self) -> None:
        self.trained = False  # whether a line of the file gave a loss
        self._forms: set[bytes] = set()
        self._phase = ""
        self._step = -1
        self._evaluated = True
        self._total = 0
        self._trained_to = -1  # the step of the training's last bar
        self._heading: int | None = None  # that step at an epoch's heading, until the next bar
        self._in_epoch = False
        # Offset and repr of the last sample of `peek`: a repr, as NaN is not equal to NaN.
        self._peeked: tuple[int, str] = (-1, "")

    def advance_to(self, step: int, phase: str) -> None:
        """Note the last of bars that were read together: they differ in numbers from the one
        before, which was in this phase, began or ended none, and was no epoch's first.
        """
        self._step = step
        if phase == "train":
            self._trained_to = step

    def showed_loss(self, description: bytes, *, now: bool) -> bool:
        """Whether a bar with this description, apart from its numbers, shows or showed a loss."""
        form = shape_of(description)
        if now and description and len(self._forms) < _MAX_CACHED:
            self._forms.add(form)
        return now or form in self._forms

    def unnamed_phase(self, total: int) -> Literal["train", "eval"]:
        """The phase of a bar without description that has `total` iterations.

        transformers draws two such bars: the training's, and a shorter one for an evaluation.
        """
        if total < self._total:
            return "eval"
        self._total = total
        return "train"

    def note_epoch(self) -> None:
        """Note a line that is the heading of an epoch: the next bar may be that epoch's alone."""
        self._heading = self._trained_to

    def _placed(self, bar: BarReading) -> BarReading:
        """A bar of the training as one of its epoch, where it begins anew under each heading."""
        if bar.phase != "train":
            return bar
        if self._heading is not None:
            self._in_epoch = bar.step <= self._heading or self._heading < 0
            self._heading = None
        self._trained_to = bar.step
        if not self._in_epoch:
            return bar
        values = {name: value for name, value in bar.values.items() if name != "total_steps"}
        if "progress" in values:
            values["epoch_progress"] = values.pop("progress")
        return replace(bar, phase="epoch", values=values)

    def records(self, bar: BarReading, place: RecordPlace, text: bytes) -> list[Record]:
        """The lifecycle events and the sample of a bar, which is at the start of `text`."""
        found: list[Record] = []
        bar = self._placed(bar)
        for change in self._changes(bar):
            total: dict[str, FieldValue] = {"total": bar.total} if bar.total else {}
            found.append(place.made(change, text_of(text[: bar.end]), total))
        sample = _sample(bar, place)
        peeked, self._peeked = self._peeked, (-1, "")
        again = peeked[0] == place.offset and peeked[1] == repr(sample)
        if sample is not None and not again:
            found.append(sample)
        return found

    def peek(self, bar: BarReading, place: RecordPlace) -> list[Record]:
        """The sample of a bar in an unfinished record; none if equal to that of the last peek."""
        sample = _sample(self._placed(bar), place)
        shown = (place.offset, repr(sample))
        if sample is None or shown == self._peeked:
            return []
        self._peeked = shown
        return [sample]

    def _changes(self, bar: BarReading) -> list[Seen]:
        before, self._phase = self._phase, bar.phase
        last, self._step = self._step, bar.step
        done = bar.total is not None and bar.step >= bar.total
        if bar.phase == "skip":
            return ["skipping begins"] if before != "skip" else []
        again = bar.phase == before == "eval" and bar.step < last
        changes: list[Seen] = []
        if (again or bar.phase != "eval") and not self._evaluated:
            changes.append("evaluation ends")
        if bar.phase != "eval":
            self._evaluated = True
            return changes
        if before != "eval" or again:
            changes.append("evaluation begins")
            self._evaluated = False
        if done and not self._evaluated:
            changes.append("evaluation ends")
            self._evaluated = True
        return changes


def _sample(bar: BarReading, place: RecordPlace) -> Record | None:
    step = bar.step if bar.phase in ("train", "epoch") else None
    if step is None and not bar.values:
        return None
    return place.sample(bar.values, step, bar.epoch, "bar")
