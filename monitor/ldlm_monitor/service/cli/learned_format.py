"""Writes what the learner found in a log as a definition file.

Each template of lines becomes a line of the file: its text is the pattern, with a group for each
number that was read, and a line of the log is its example. Tables and listings are left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.parse.definitions import SampleLine
from ldlm_monitor.logs.parse.line_rules import LineRule
from ldlm_monitor.logs.parse.metric_like import shape_of
from ldlm_monitor.logs.parse.patterns import QUANTITY, UNITS, compile_pattern, quantity
from ldlm_monitor.logs.parse.text_lines import LineContext, Lines

_MAX_EXAMPLES = 3
"""Lines of a template that its pattern is tried on. A choice: more rarely differ."""
_QUANTITY = re.compile(rf"(?<![\w.]){QUANTITY}")
_WORDS = re.compile(r"[^\s\d]{3,}")


@dataclass(slots=True)
class _Seen:
    text: str
    sample: Sample


class FormatLearner:
    """Collects lines that the learner of `parser` read, by their template."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._seen: dict[bytes, list[_Seen]] = {}
        self.left_out = 0

    def feed(self, chunk: Chunk, origin: Origin, now: float) -> None:
        """Parse the next bytes of a log, read at `now` (Unix seconds)."""
        found = self._parser.feed(chunk, origin, now)
        inferred = [each for each in found if isinstance(each, Sample)]
        lines = Lines(chunk)
        for sample in inferred:
            begin = sample.position.offset - chunk.offset
            if sample.source == "inferred" and 0 <= begin < len(chunk.data):
                context = LineContext.of(lines.around(begin), chunk, origin, now)
                text = context.text[context.envelope.start :]
                seen = self._seen.setdefault(shape_of(text), [])
                if len(seen) < _MAX_EXAMPLES:
                    seen.append(_Seen(text.decode("latin-1"), sample))

    def document(self, name: str) -> dict[str, Any]:
        """The content of a definition file for the format `name`; counts templates `left_out`."""
        lines: list[dict[str, Any]] = []
        for seen in self._seen.values():
            made = next(
                filter(None, (_line(each, f"line {len(lines) + 1}") for each in seen)), None
            )
            if made is not None and all(_reads(made, each) for each in seen):
                lines.append(made)
            else:
                self.left_out += 1
        return {"format": name, "source": "inferred from a log", "lines": lines}


def _line(seen: _Seen, name: str) -> dict[str, Any] | None:
    """The definition of a line; None without a word that selects it."""
    wanted = dict(_wanted(seen.sample))
    pattern, groups = "", {}
    end = 0
    for found in _QUANTITY.finditer(seen.text):
        pattern += _literal(seen.text[end : found.start()])
        value = quantity(found[0])
        key = next((key for key in wanted if value is not None and _fits(value, wanted[key])), None)
        if key is None or value is None:
            pattern += r"{{quantity}}"
        else:
            group = re.sub(r"\W", "_", key)
            pattern += rf"(?P<{group}>{{{{quantity}}}})"
            factor = wanted.pop(key) / value if value else 1.0
            groups[key] = _spec(group, factor)
        end = found.end()
    pattern += _literal(seen.text[end:]) + r"\s*$"
    words = sorted(_WORDS.findall(seen.text), key=len)
    if not words or not seen.sample.values:
        return None
    sample = seen.sample
    heads = {"step": sample.step, "epoch": sample.epoch, "rank": None}
    values = {key: groups[key] for key in sample.values if key in groups}
    example: dict[str, Any] = {key: value for key, value in heads.items() if value is not None}
    example["values"] = {key: sample.values[key] for key in values}
    return {
        "name": name,
        "trigger": re.escape(words[-1]),
        "pattern": pattern,
        "values": values,
        "examples": [{"line": seen.text, **example}],
    }


def _wanted(sample: Sample) -> Iterator[tuple[str, float]]:
    if sample.epoch is not None:
        yield "epoch", sample.epoch
    if sample.step is not None:
        yield "step", float(sample.step)
    yield from sample.values.items()


def _fits(printed: float, value: float) -> bool:
    """Whether a printed number is a value, as it is or in another unit."""
    if repr(printed) == repr(value):
        return True
    return printed != 0 and any(
        abs(printed * factor - value) <= 1e-9 * abs(value) for factor in UNITS.values()
    )


def _spec(group: str, factor: float) -> str | dict[str, str]:
    unit = next(
        (unit for unit, each in UNITS.items() if each != 1 and abs(factor / each - 1) < 1e-6), None
    )
    return group if unit is None else {"group": group, "unit": unit}


def _literal(text: str) -> str:
    """The pattern of text between numbers: any blanks, which pad numbers, match any others."""
    return re.sub(r"(?:\\?\s)+", r"\\s*", re.escape(text))


def _reads(made: dict[str, Any], seen: _Seen) -> bool:
    """Whether the definition gives what the learner read."""
    rule = LineRule(SampleLine.model_validate(made), "", compile_pattern)
    numbers = rule.read(seen.text.encode("latin-1"), closed=True)
    if numbers is None or (numbers.step, numbers.epoch) != (seen.sample.step, seen.sample.epoch):
        return False
    return all(
        repr(numbers.values.get(key)) == repr(seen.sample.values[key]) for key in made["values"]
    )
