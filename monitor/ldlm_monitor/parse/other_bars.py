"""Progress bars of any trainer, and the records that the bars of one file give.

tqdm is used for everything: downloads, tokenising, loading shards, training. So a bar
counts only if a definition matches its description, if it has no description and counts
iterations, or if it has a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from ldlm_monitor.model.records import FieldValue, Record
from ldlm_monitor.parse.bars import BarRule, Phases, Reading
from ldlm_monitor.parse.events import RecordPlace, text_of
from ldlm_monitor.parse.free_fields import read_fields
from ldlm_monitor.parse.patterns import Pattern, compile_pattern, quantity
from ldlm_monitor.parse.samples import Numbers, read_number, values_of, whole
from ldlm_monitor.parse.vocabulary import canonical

if TYPE_CHECKING:
    from ldlm_monitor.parse.number_formats import OtherBar

Phase: TypeAlias = Literal["train", "steps", "eval", "skip"]
"""What a bar counts; `steps`: training steps, but the bar's end is not the training's."""

TRIGGERS = (r"\d%\|", r"\d% \d{1,9}/")
"""Every bar contains one of these; the second is a notebook's form, without the bar itself."""

_METER = compile_pattern(
    r"(?P<description>[^\r\n%]{0,160}?)(?P<colon>:?) *\d{1,3}%(?:\|[^|\r\n]*\|)? *"
    r"(?P<count>\d{1,18})/(?P<total>\d{1,18}) "
    r"\[(?:\d[\d:]*(?:<[\d:?]+)?(?:, +(?P<rate>(?:[\d.]+|\?) ?(?:[A-Za-z]+/s|s/[A-Za-z]+)))?)?"
)
_ITEM = compile_pattern(r",\s+(?P<key>[^=,\]\r\n]{1,64})=(?P<value>[^=,\]\s]{0,64})")
_RATE = compile_pattern(r"(?P<number>[\d.]+|\?) ?(?:(?P<per_second>[A-Za-z]+)/s|s/(?P<each>.+))")
_STEP_UNITS = frozenset((b"it", b"ba", b"batch", b"batches", b"step", b"steps", b"iter"))
_MAX_ITEMS = 32
"""Items of a postfix that are read; a bar is one line of a terminal."""


class UnnamedBars:
    """Decides which of a file's bars without description count the steps of the run.

    transformers draws two: the training's, and the shorter one of an evaluation.
    """

    def __init__(self) -> None:
        self._total = 0

    def phase(self, total: int) -> Literal["train", "eval"]:
        """The phase of a bar with so many iterations."""
        if total < self._total:
            return "eval"
        self._total = total
        return "train"


@dataclass(slots=True)
class BarMatch:
    """A bar, what it counts, and the rule that matched it."""

    phase: Phase
    reading: Reading
    rule: BarRule | OtherBars


class OtherBars:
    """Reads the bars whose description has no `BarRule`."""

    def __init__(self, specs: list[tuple[OtherBar, str]]) -> None:
        self.order = 0
        self._specs: list[tuple[OtherBar, Pattern, str]] = [
            (spec, compile_pattern(f"(?:{spec.pattern})$"), home) for spec, home in specs
        ]

    def format_of(self, text: bytes, start: int) -> str:
        """The format whose definition matches the bar at `start`; `tqdm` if none does."""
        match = _METER.match(text, start)
        described = ((match.groups()[0] if match else None) or b"").strip(b": ")
        homes = (home for _, pattern, home in self._specs if pattern.match(described))
        return next(homes, "tqdm")

    def read(
        self, text: bytes, start: int, unnamed: UnnamedBars, *, closed: bool
    ) -> BarMatch | None:
        """The bar that begins at `start`; None if there is none, or it is not the training's.

        Without the record's terminator (`closed` false), a bar must be complete: the rest
        of its postfix may contain the step, or decide what it counts.
        """
        match = _METER.match(text, start)
        if match is None:
            return None
        description, colon, count, total, rate = match.groups()
        if colon and not (description or b"").strip():
            return None  # the end of a description that was cut
        step, size = int(count or b"0"), int(total or b"0")
        numbers = Numbers()
        end = _read_items(text, match.span()[1], numbers, step)
        if not closed and b"]" not in text[end - 1 :]:
            return None
        described = (description or b"").strip(b": ")
        phase = self._describe(described, numbers)
        if phase == "unnamed" and _counts_steps(rate):
            phase = unnamed.phase(size)
        if phase is None and b"oss" in described:
            _read_description(described, numbers)
        has_loss = "loss" in numbers.values or "eval_loss" in numbers.values
        if phase in (None, "unnamed"):
            if not has_loss:
                return None
            phase = "epoch"
        reading = Reading(step, size or None, end, numbers.epoch, numbers.values)
        if phase == "eval":
            _measure_evaluation(reading)
            return BarMatch("eval", reading, self)
        _measure(reading, rate, whole_run=phase == "train")
        if numbers.step is not None and phase == "epoch":
            reading.step = numbers.step
        # A bar with an epoch ends when the epoch ends.
        ends_run = phase == "train" and numbers.epoch is None and (bool(described) or has_loss)
        return BarMatch("train" if ends_run else "steps", reading, self)

    def _describe(self, description: bytes, numbers: Numbers) -> str | None:
        for spec, pattern, _ in self._specs:
            match = pattern.match(description)
            if match is None:
                continue
            named = pattern.named(match)
            numbers.step = whole(named.get("step")) if "step" in named else numbers.step
            epoch = whole(named.get("epoch"))
            numbers.epoch = numbers.epoch if epoch is None else float(epoch)
            for name, value in values_of(spec.values):
                read = read_number(named.get(value.group), value)
                if read is not None:
                    numbers.values[name] = read
            for key in spec.skip:
                numbers.values.pop(key, None)
            return spec.phase
        return None


def _read_items(text: bytes, start: int, numbers: Numbers, counted: int) -> int:
    """Read the items `, key=value` that the bar ends; returns where they end.

    `counted` is the bar's count. NeMo rounds the step (`3.2e+4`), and prints the exact loss
    beside Lightning's mean of the last ones, which is NaN under manual optimization.
    """
    exact: float | None = None
    for _ in range(_MAX_ITEMS):
        match = _ITEM.match(text, start)
        if match is None or text[match.span()[1] : match.span()[1] + 1] not in (b",", b"]"):
            break
        start = match.span()[1]
        key, value = match.groups()
        read = quantity((value or b"").decode("latin-1"))
        if read is None or (key == b"global_step" and _is_rounded(value or b"", read, counted)):
            continue
        exact = read if key == b"reduced_train_loss" else exact
        numbers.add((key or b"").decode("latin-1"), read)
    if exact is not None:
        numbers.values["loss"] = exact
    return start + 1 if text.startswith(b"]", start) else start


def _read_description(described: bytes, numbers: Numbers) -> None:
    """Add the fields of a description with a training loss; an evaluation has no steps."""
    fields = read_fields(described)
    if any(canonical(key) == "loss" for key, _ in fields):
        for key, value in fields:
            numbers.add(key, value)


def _is_rounded(text: bytes, step: float, counted: int) -> bool:
    """Whether a step is the bar's exact count with fewer digits."""
    return b"e+" in text and abs(step - counted) <= 0.01 * step


def _counts_steps(rate: bytes | None) -> bool:
    """Whether a rate counts iterations, and not files, bytes or examples."""
    match = _RATE.match(rate) if rate is not None else None
    if match is None:
        return rate is None
    _, per_second, each = match.groups()
    return (per_second or each) in _STEP_UNITS


def _measure(reading: Reading, rate: bytes | None, *, whole_run: bool) -> None:
    values, total = reading.values, reading.total
    if total and whole_run:
        values["total_steps"] = float(total)
        values["progress"] = reading.step / total
    elif total:
        values["epoch_progress"] = reading.step / total
    match = _RATE.match(rate) if rate is not None and _counts_steps(rate) else None
    if match is None:
        return
    number, _, each = match.groups()
    speed = quantity((number or b"").decode())
    if speed:
        values["steps_per_second"] = 1 / speed if each else speed


def _measure_evaluation(reading: Reading) -> None:
    values = reading.values
    if "loss" in values:
        values.setdefault("eval_loss", values.pop("loss"))
    if reading.total:
        values["eval_progress"] = reading.step / reading.total


def bar_of(
    rules: Sequence[BarRule | OtherBars],
    text: bytes,
    start: int,
    unnamed: UnnamedBars,
    *,
    closed: bool,
) -> BarMatch | None:
    """The bar at `start`, and what it counts. `closed`: the record has its terminator."""
    for rule in rules:
        if isinstance(rule, BarRule):
            reading = rule.read(text, start)
            if reading is not None:
                return BarMatch(rule.spec.phase, reading, rule)
        else:
            other = rule.read(text, start, unnamed, closed=closed)
            if other is not None:
                return other
    return None


@dataclass(slots=True)
class BarRecords:
    """The records of one file's bars. Keeps their phase, and the bar of a peek."""

    unnamed: UnnamedBars = field(default_factory=UnnamedBars)
    _phases: Phases = field(default_factory=Phases)
    _peeked: tuple[int, str] = (-1, "")

    def records(
        self, phase: str, reading: Reading, place: RecordPlace, text: bytes
    ) -> list[Record]:
        """The lifecycle events and the sample of a bar that is drawn as `text`."""
        total: dict[str, FieldValue] = {"total": reading.total} if reading.total else {}
        found: list[Record] = [
            place.lifecycle(kind, text_of(text), {**total})
            for kind in self._phases.update(phase, reading)
        ]
        sample = _sample(phase, reading, place)
        peeked, self._peeked = self._peeked, (-1, "")
        again = peeked[0] == place.offset and peeked[1] == repr(sample)
        if sample is not None and not again:
            found.append(sample)
        return found

    def peek(self, phase: str, reading: Reading, place: RecordPlace) -> list[Record]:
        """The sample of a bar whose record is unfinished, unless it was returned before."""
        sample = _sample(phase, reading, place)
        shown = (place.offset, repr(sample))
        if sample is None or shown == self._peeked:
            return []
        self._peeked = shown
        return [sample]


def _sample(phase: str, reading: Reading, place: RecordPlace) -> Record | None:
    step = reading.step if phase in ("train", "steps") else None
    if step is None and not reading.values:
        return None
    return place.sample(reading.values, step, reading.epoch)
