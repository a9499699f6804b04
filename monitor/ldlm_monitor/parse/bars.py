"""tqdm's progress bars, and the phases of training that they show.

The shape is tqdm's own `format_meter`: `{desc}: {percent}%|{bar}| {n}/{total}
[{elapsed}<{remaining}, {rate}{, postfix}]`, cut at `ncols` columns. A cut can
fall inside a number and other output can be glued behind it, so a value counts
only if the bar itself closes it with `,` or `]`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ldlm_monitor.parse.patterns import Pattern, compile_pattern
from ldlm_monitor.parse.vocabulary import number

if TYPE_CHECKING:
    from ldlm_monitor.parse.formats import Bar

_METER = (
    r":? +(?:\d+%\|[^|\r\n]*\| *(?P<count>\d{1,18}/\d{1,18})|(?P<open>\d{1,18})it) "
    r"\[(?:\d[\d:]*(?:<[\d:?]+)?(?:, +(?P<rate>(?:[\d.]+|\?)(?:[A-Za-z]+/s|s/[A-Za-z]+)))?)?"
)
_RATE = "0123456789.?"
_QUOTED = "\\.+*?()[]{}|^$"


@dataclass(slots=True)
class Reading:
    """One bar as it stands. `end` is the index behind its last complete part."""

    step: int
    total: int | None
    end: int
    epoch: float | None = None
    values: dict[str, float] = field(default_factory=dict)


class BarRule:
    """Reads the bars of one description."""

    def __init__(self, spec: Bar) -> None:
        self.spec = spec
        self.order = 0
        self._pattern: Pattern = compile_pattern(escaped(spec.description) + _METER)
        self._items = {key.encode(): name for key, name in spec.postfix.items()}

    @staticmethod
    def trigger(spec: Bar) -> str:
        """What every bar of this description contains."""
        return escaped(spec.description) + ":? +\\d"

    def read(self, text: bytes, start: int) -> Reading | None:
        """The bar that begins at `start`; None where there is none."""
        match = self._pattern.match(text, start)
        if match is None:
            return None
        count, unbounded, rate = match.groups()
        step, _, total = (count or unbounded or b"0").partition(b"/")
        reading = Reading(int(step), int(total or 0) or None, match.span()[1])
        self._measure(rate, reading)
        if rate is not None:
            self._read_postfix(text, reading)
        return reading

    def _measure(self, rate: bytes | None, reading: Reading) -> None:
        ratio = reading.step / reading.total if reading.total else None
        if self.spec.phase != "train":
            if ratio is not None:
                reading.values[f"{self.spec.phase}_progress"] = ratio
            return
        if reading.total and ratio is not None:
            reading.values["total_steps"] = float(reading.total)
            reading.values["progress"] = ratio
        text = (rate or b"").decode()
        unit = text.lstrip(_RATE)
        per_second = number(text[: len(text) - len(unit)])
        if per_second:
            inverse = unit.startswith("s/")
            reading.values["steps_per_second"] = 1 / per_second if inverse else per_second

    def _read_postfix(self, text: bytes, reading: Reading) -> None:
        """Items `, key=value` as long as they follow one another and the bar closes them."""
        while text.startswith(b", ", reading.end):
            equals = text.find(b"=", reading.end)
            end = _first(text, equals)
            if equals < 0 or end < 0:
                break
            key = text[reading.end + 2 : equals]
            value = text[equals + 1 : end].decode("latin-1")
            if not key.replace(b"_", b"").isalnum() or " " in value or "=" in value:
                break
            reading.end = end
            name = self._items.get(key)
            if name is not None:
                self._read_item(name, value, reading)
        if text.startswith(b"]", reading.end):
            reading.end += 1

    def _read_item(self, name: str, text: str, reading: Reading) -> None:
        if name == "epoch":
            epoch = number(text.partition("/")[0])
            reading.epoch = epoch if epoch is not None else reading.epoch
            return
        value = number(text.removesuffix("%"))
        if value is None or (math.isnan(value) and name in self.spec.placeholders):
            return
        reading.values[name] = value / 100 if text.endswith("%") else value


class Phases:
    """What the bars of one file say the run is doing: training, evaluating, skipping, done."""

    def __init__(self) -> None:
        self._phase = ""
        self._step = -1
        self._evaluated = True
        self._finished = False

    def follow(self, phase: str, reading: Reading) -> list[str]:
        """The lifecycle kinds that this bar is news of."""
        news: list[str] = []
        before, self._phase = self._phase, phase
        done = reading.total is not None and reading.step >= reading.total
        if phase == "eval":
            news += self._evaluate(reading.step, done, before)
        elif phase == "skip":
            if before != "skip":
                news.append("run_resumed")
        else:
            news += self._train(reading.step, done)
        self._step = reading.step
        return news

    def _evaluate(self, step: int, done: bool, before: str) -> list[str]:
        news: list[str] = []
        again = before == "eval" and step < self._step
        if again and not self._evaluated:
            news.append("eval_finished")
        if before != "eval" or again:
            news.append("eval_started")
            self._evaluated = False
        if done and not self._evaluated:
            news.append("eval_finished")
            self._evaluated = True
        return news

    def _train(self, step: int, done: bool) -> list[str]:
        news = [] if self._evaluated else ["eval_finished"]
        self._evaluated = True
        if done and not self._finished:
            news.append("run_finished")
        self._finished = done
        return news


def _first(text: bytes, start: int) -> int:
    """Where the first `,` or `]` after `start` stands; -1 where there is none."""
    comma, bracket = text.find(b",", start), text.find(b"]", start)
    return max(comma, bracket) if min(comma, bracket) < 0 else min(comma, bracket)


def escaped(text: str) -> str:
    """A literal, as a pattern of re2 and of Hyperscan."""
    return "".join(f"\\{char}" if char in _QUOTED else char for char in text)
