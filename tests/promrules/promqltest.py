"""The language of Prometheus' PromQL test scripts: commands, evaluations, durations.

As `promql/promqltest/test.go` of Prometheus reads them.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ldlm_promrules.promql.series_description import parse_series, parse_values
from ldlm_promrules.samples import Labels

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|y)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


class ScriptError(ValueError):
    """A line that is not of the language."""


@dataclass
class Command:
    """A line that starts a command, its number, and the lines below it."""

    number: int
    text: str
    body: list[str]


_BEGINS = re.compile(r"clear$|load(?:_with_nhcb)?\s|eval(?:_\w+)?\s+(?:instant|range)\s")


def commands(text: str) -> Iterator[Command]:
    """The commands of a script; a blank line, a comment, or the next command ends each."""
    command: Command | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        blank = not line or line.startswith("#")
        if command is not None and (blank or _BEGINS.match(line)):
            yield command
            command = None
        if blank:
            continue
        if command is None:
            command = Command(number, line, [])
        else:
            command.body.append(line)
    if command is not None:
        yield command


def duration(text: str) -> float:
    """Seconds of a duration such as `1h30m`, or of a plain number of them."""
    sign, unsigned = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    if re.fullmatch(r"[\d.]+", unsigned):
        return sign * float(unsigned)
    parts = _DURATION.findall(unsigned)
    if not parts or "".join(count + unit for count, unit in parts) != unsigned:
        raise ScriptError(f"{text!r} is no duration")
    return sign * milliseconds(sum(float(count) * _SECONDS[unit] for count, unit in parts))


def milliseconds(seconds: float) -> float:
    """Seconds as Prometheus holds them: in whole milliseconds."""
    return round(seconds, 3)


def number(text: str) -> float:
    """A lone number, as Go reads it. Raises ValueError."""
    if re.fullmatch(r"[+-]?0[xX][0-9a-fA-F]+", text):
        return float(int(text, 16))
    return float(text)


@dataclass(frozen=True)
class Evaluation:
    """An `eval` command: what is asked, when, and what must come of it."""

    query: str
    start: float
    end: float
    step: float | None
    fails: bool
    ordered: bool
    expected: tuple[str, ...]
    annotated: tuple[tuple[str, str], ...] = ()  # what is expected beside the values, and its text

    @property
    def times(self) -> list[float]:
        """When the query is evaluated."""
        if self.step is None:
            return [self.start]
        count = int((self.end - self.start) / self.step + 1e-9) + 1
        return [milliseconds(self.start + slot * self.step) for slot in range(count)]


_EVAL = re.compile(
    r"eval(?P<mode>_fail|_warn|_info|_ordered)?\s+"
    r"(?:instant\s+(?:at\s+(?P<at>\S+))?"
    r"|range\s+from\s+(?P<start>\S+)\s+to\s+(?P<end>\S+)\s+step\s+(?P<step>\S+))\s+(?P<query>.+)"
)
_EXPECT = re.compile(
    r"expect\s+(?P<what>ordered|fail|warn|no_warn|info|no_info|string|range\s+vector)(?:\s+(?P<rest>.*))?"
)


def evaluation(command: Command) -> Evaluation:
    """An `eval` command as it is meant."""
    found = _EVAL.fullmatch(command.text)
    if found is None:
        raise ScriptError(f"cannot read {command.text!r}")
    fails, ordered = found["mode"] == "_fail", found["mode"] == "_ordered"
    expected = []
    annotated = [(word, "") for word in ("warn", "info") if found["mode"] == f"_{word}"]
    for line in command.body:
        if line.split()[0] == "expect":
            expects = _EXPECT.fullmatch(line)
            if expects is None:
                raise ScriptError(f"cannot read {line!r}")
            fails = fails or expects["what"] == "fail"
            ordered = ordered or expects["what"] == "ordered"
            if expects["what"].endswith(("warn", "info")):
                annotated.append((expects["what"], expects["rest"] or ""))
        elif not (fails and line.startswith(("expected_fail_message", "expected_fail_regexp"))):
            expected.append(line)
    at = found["at"] if found["start"] is None else None
    start = duration(found["start"] if at is None else at) if (at or found["start"]) else 0.0
    end = duration(found["end"]) if found["end"] else start
    step = duration(found["step"]) if found["step"] else None
    return Evaluation(
        found["query"], start, end, step, fails, ordered, tuple(expected), tuple(annotated)
    )


def rows(evaluated: Evaluation) -> list[tuple[Labels, list[tuple[float, object]]]]:
    """The series that must come of an evaluation, with their points."""
    found = []
    for line in evaluated.expected:
        labels, text = parse_series(line)
        values = list(parse_values(text))
        times = _times_of(evaluated, len(values))
        kept = zip(times, values, strict=True)
        found.append((labels, [(time, value) for time, value in kept if value is not None]))
    return found


def _times_of(evaluated: Evaluation, count: int) -> Sequence[float]:
    if evaluated.step is None:
        if count > 1:
            raise ScriptError("an instant query has one value for each series")
        return [evaluated.start] * count
    return [milliseconds(evaluated.start + slot * evaluated.step) for slot in range(count)]


def almost_equal(left: float, right: float, tolerance: float = 1e-6) -> bool:
    """Equal but for rounding, NaN and NaN too (Prometheus' `almost.Equal`)."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    if left == right:
        return True
    if left == 0 or right == 0:
        return False
    return abs(left - right) / min(abs(left) + abs(right), 1.7e308) < tolerance
