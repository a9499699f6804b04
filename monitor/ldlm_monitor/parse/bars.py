"""tqdm's progress bars with a known description, and the phases of training that they show.

The form is that of tqdm's `format_meter`: `{desc}: {percent}%|{bar}| {n}/{total}
[{elapsed}<{remaining}, {rate}{, postfix}]`, cut at `ncols` columns. The cut can be inside a
number and other output can follow it directly, so a value counts only if the bar itself
ends it with `,` or `]`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ldlm_monitor.parse.envelope import can_be_peeled
from ldlm_monitor.parse.patterns import Pattern, compile_pattern, number

if TYPE_CHECKING:
    from ldlm_monitor.parse.number_formats import Bar

_METER = (
    r":? +(?:\d+%\|[^|\r\n]*\| *(?P<count>\d{1,18}/\d{1,18})|(?P<open>\d{1,18})it) "
    r"\[(?:\d[\d:]*(?:<[\d:?]+)?(?:, +(?P<rate>(?:[\d.]+|\?)(?:[A-Za-z]+/s|s/[A-Za-z]+)))?)?"
)
_RATE = "0123456789.?"
_UNITS = frozenset({b"it/s", b"s/it"})
_MAX_COUNT = 20  # bytes of an "n/total" in which neither can have more than 18 digits
_MAX_ITEMS = 32
"""Items of a postfix that are read; a bar is one line of a terminal."""
_CACHED_ITEMS = 1024
"""Items whose values are cached; a bar has at most a few that stay the same."""
_QUOTED = "\\.+*?()[]{}|^$"


@dataclass(slots=True)
class Reading:
    """The values of one bar. `end` is the index after its last complete part."""

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
        self._description = spec.description.encode() + b": "
        self._training = spec.phase == "train"
        self._bare = not can_be_peeled(self._description)
        self._cache: dict[bytes, tuple[str, float]] = {}

    @staticmethod
    def trigger(spec: Bar) -> str:
        """A Hyperscan expression that every bar with this description contains."""
        return escaped(spec.description) + ":? +\\d"

    @property
    def cached(self) -> int:
        """How many items of postfixes are cached."""
        return len(self._cache)

    def opens(self, raw: bytes) -> bool:
        """Whether a record begins with the description and has no control characters."""
        return (
            self._bare
            and raw.startswith(self._description)
            and b"\x1b" not in raw
            and b"\x08" not in raw
        )

    def read(self, text: bytes, start: int) -> Reading | None:
        """The bar that begins at `start`; None if there is none."""
        if text.startswith(self._description, start):
            reading = self._read_plain(text, start + len(self._description))
            if reading is not None:
                return reading
        return self.read_any(text, start)

    def read_any(self, text: bytes, start: int) -> Reading | None:
        """Like `read`, but by the pattern, for a bar of any form."""
        match = self._pattern.match(text, start)
        if match is None:
            return None
        count, unbounded, speed = match.groups()
        step, _, total = (count or unbounded or b"0").partition(b"/")
        reading = Reading(int(step), int(total or 0) or None, match.span()[1])
        rate = (speed or b"").decode()
        unit = rate.lstrip(_RATE)
        self._measure(number(rate[: len(rate) - len(unit)]), unit.encode(), reading)
        if speed is not None:
            self._read_postfix(text, reading)
        return reading

    def _read_plain(self, text: bytes, start: int) -> Reading | None:
        """Read the common form, with a rate in `it/s` or `s/it`, by splitting at delimiters.

        None if the pattern has to decide; otherwise both give the same result.
        """
        percent, _, rest = text[start:].partition(b"%|")
        _, bar, rest = rest.partition(b"|")
        count, _, rest = rest.partition(b" [")
        clock, _, rest = rest.partition(b", ")
        items = rest.split(b", ", _MAX_ITEMS)
        speed, closed, _ = items[0].partition(b"]")
        step, _, total = count.lstrip(b" ").partition(b"/")
        rate, unit = speed[:-4].lstrip(b" "), speed[-4:]
        if (
            not bar
            or not (step.isdigit() and total.isdigit() and percent.lstrip(b" ").isdigit())
            or len(count) > _MAX_COUNT
            or clock.translate(None, b"0123456789:") != b"<"
            or not (clock[:1].isdigit() and rate.replace(b".", b"", 1).isdigit())
            or clock[-1:] == b"<"
            or unit not in _UNITS
        ):
            return None
        end = len(text) - len(rest) + len(speed)
        reading = Reading(int(step), int(total) or None, end, None, {})
        self._measure(float(rate), unit, reading)
        if closed or self._read_items(items, reading):
            self._read_postfix(text, reading)
        return reading

    def _read_items(self, items: list[bytes], reading: Reading) -> bool:
        """Read the items between the rate, which is first, and the last, which may be cut.

        Returns whether `_read_postfix` has to read what follows.
        """
        last = items.pop()
        end, values, cache = reading.end, reading.values, self._cache
        for item in items[1:]:
            parsed = cache.get(item) or self._parse_item(item)
            if parsed is None:
                reading.end = end
                return True
            name, value = parsed
            if name == "epoch":
                reading.epoch = value
            elif name:
                values[name] = value
            end += len(item) + 2
        reading.end = end
        return b"]" in last or b"," in last

    def _parse_item(self, item: bytes) -> tuple[str, float] | None:
        """The name and value of a plain `key=value`; an empty name if it has no value.

        None for other items. Cached: epoch and progress stay the same over many bars.
        """
        key, equals, text = item.partition(b"=")
        plain = equals and key.replace(b"_", b"").isalnum()
        if not plain or any(map(text.__contains__, b" =,]")):
            return None
        name = self._items.get(key, "")
        value = self._value(name, text.decode("latin-1")) if name else None
        parsed = ("", 0.0) if value is None else (name, value)
        if len(item) < 64:  # bounds the cache's memory
            if len(self._cache) >= _CACHED_ITEMS:
                self._cache.clear()
            self._cache[item] = parsed
        return parsed

    def _measure(self, per_second: float | None, unit: bytes, reading: Reading) -> None:
        step, total, values = reading.step, reading.total, reading.values
        if not self._training:
            if total:
                values[f"{self.spec.phase}_progress"] = step / total
            return
        if total:
            values["total_steps"] = float(total)
            values["progress"] = step / total
        if per_second:
            values["steps_per_second"] = 1 / per_second if unit[:2] == b"s/" else per_second

    def _read_postfix(self, text: bytes, reading: Reading) -> None:
        """Read consecutive items `, key=value` that the bar ends."""
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
        value = self._value(name, text)
        if value is None:
            return
        if name == "epoch":
            reading.epoch = value
        else:
            reading.values[name] = value

    def _value(self, name: str, text: str) -> float | None:
        if name == "epoch":
            return number(text.partition("/")[0])
        value = number(text.removesuffix("%"))
        if value is None or (math.isnan(value) and name in self.spec.placeholders):
            return None
        return value / 100 if text.endswith("%") else value


class Phases:
    """The phase that the bars of one file show: training, evaluating, skipping, or done."""

    def __init__(self) -> None:
        self._phase = ""
        self._step = -1
        self._evaluated = True
        self._finished = False

    def update(self, phase: str, reading: Reading) -> list[str]:
        """The lifecycle kinds that begin or end with this bar."""
        news: list[str] = []
        before, self._phase = self._phase, phase
        done = reading.total is not None and reading.step >= reading.total
        if phase == "eval":
            news += self._evaluate(reading.step, done, before)
        elif phase == "skip":
            if before != "skip":
                news.append("run_resumed")
        else:
            news += self._train(reading.step, done and phase == "train")
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
    """The index of the first `,` or `]` after `start`; -1 if there is none."""
    comma, bracket = text.find(b",", start), text.find(b"]", start)
    return max(comma, bracket) if min(comma, bracket) < 0 else min(comma, bracket)


def escaped(text: str) -> str:
    """A literal text as a pattern of re2 and of Hyperscan."""
    return "".join(f"\\{char}" if char in _QUOTED else char for char in text)
