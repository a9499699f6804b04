"""Lines that look like metrics but gave none, grouped by their form."""

import re
from dataclasses import dataclass

from ldlm_monitor.logs.parse.envelope import peel
from ldlm_monitor.logs.parse.free_fields import MAX_BYTES, names
from ldlm_monitor.logs.parse.patterns import compile_pattern
from ldlm_monitor.logs.parse.text_lines import clean
from ldlm_monitor.logs.parse.vocabulary import is_metric, is_training, measure, plain

MAX_FORMS = 1000
"""Forms kept, a choice: they take up to 4 MiB; lines of further forms are only counted."""
_MAX_SHOWN = 400
"""Bytes shown of a line. A choice: five rows of a terminal, more hides the next line."""
# The numbers of a line, which become `#` in its form. Python's `re`: that of re2 substitutes in
# Python, ten times as slow.
_NUMBER = re.compile(rb"[-+]?(?:\d[\d,.:]*(?:[eE][-+]?\d+)?|\b(?i:nan|inf(?:inity)?)\b[,.:]*)")
_COLUMNS = compile_pattern(r"\s*{{number}}(?:\s*[|,]?\s+{{number}}%?){2,}\s*$")  # a row of numbers
_MIN_REPEATS = 10
"""Lines of a form before its numbers alone make it one of metrics. A choice: a training has
hundreds, and what a launcher prints of each rank is rarely a fraction that changes."""
_DIGIT = compile_pattern(r"\d|(?i:\bnan\b)")
_DECIMAL = re.compile(rb"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?$")
_FLAG = compile_pattern(r"(?:^|\s)--[a-z]")  # an option of a command line
_FRACTION = compile_pattern(r"\d\.\d|(?i:nan)")  # columns of whole numbers are counts, not metrics


def shape_of(text: bytes) -> bytes:
    """The form of a line: its text with `#` for each number."""
    return b" ".join(_NUMBER.sub(b"#", text).split())


@dataclass(slots=True)
class UnknownForm:
    """Lines that differ only in their numbers: the count, and number and text of the first line.

    `named`: they have the name of a metric. `whole`: a whole number of each line, which `rises` as
    long as it is greater than that of the line before. `fractions`: those seen, at most two.
    """

    count: int
    line: int
    text: str
    named: bool = True
    whole: int = -1
    rises: bool = True
    fractions: frozenset[bytes] = frozenset()

    def note(self, text: bytes) -> None:
        """Note the numbers of a further line."""
        numbers = [each.strip(b".,:") for each in _NUMBER.findall(text)]
        whole = next((int(each) for each in numbers if each.isdigit() and len(each) < 9), -1)
        self.rises &= whole > self.whole
        self.whole = whole
        fraction = next((each for each in numbers if _DECIMAL.match(each)), b"")
        if fraction and len(self.fractions) < 2:
            self.fractions |= {fraction}

    @property
    def counts(self) -> bool:
        """Whether the lines are ones of metrics: by name, or as they count and have values."""
        return self.named or (self.count >= _MIN_REPEATS and self.rises and len(self.fractions) > 1)


class MetricLike:
    """Groups the lines that look like metrics by their form; `lines` is their count."""

    def __init__(self) -> None:
        self._more = 0  # lines of metrics of forms that are not kept
        self._forms: dict[bytes, UnknownForm] = {}

    @property
    def lines(self) -> int:
        """How many lines look like metrics."""
        return self._more + sum(form.count for form in self._forms.values() if form.counts)

    def add(self, raw: bytes, line: int) -> None:
        """Add a line (1-based number) that no definition matched."""
        if _DIGIT.search(raw[:MAX_BYTES]) is None:
            return
        cleaned = clean(raw[:MAX_BYTES])
        envelope = peel(cleaned)
        text = cleaned[envelope.start :].strip()
        if envelope.shell:
            return
        shape = shape_of(text)
        form = self._forms.get(shape)
        if form is None:
            named = looks_like_metrics(text)
            if len(self._forms) >= MAX_FORMS:
                self._more += named
                return
            shown = text[:_MAX_SHOWN].decode("utf-8", "replace")
            form = self._forms[shape] = UnknownForm(0, line, shown, named)
        form.count += 1
        if not form.named:
            form.note(text)

    def forms(self) -> list[UnknownForm]:
        """The forms, the most frequent first, equally frequent ones by their first line."""
        found = (form for form in self._forms.values() if form.counts)
        return sorted(found, key=lambda form: (-form.count, form.line))


def looks_like_metrics(text: bytes) -> bool:
    """Whether a line has a value that only a training reports, or two known keys.

    Three or more columns of numbers with a fraction count too. A line with two options
    (`--name`) is a command.
    """
    if len(list(_FLAG.finditer(text))) >= 2:
        return False
    keys = [key for key in names(text) if is_metric(key) or plain(key).endswith("loss")]
    if len(keys) >= 2 or is_training({measure(key).name: 0.0 for key in keys}):
        return True
    return _COLUMNS.match(text) is not None and _FRACTION.search(text) is not None
