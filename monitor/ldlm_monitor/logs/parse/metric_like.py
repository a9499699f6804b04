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
_CANDIDATE = compile_pattern(
    r"(?i:loss|acc|norm|ppl|perplex|entropy|lr\b|learning.rate|/s|per.?s|step|iter|time|flop|mfu|tok)"
    r"|^[\s|]*[-+.\d]"
)
"""A pattern that every line of metrics matches: a cheap first test."""
_FLAG = compile_pattern(r"(?:^|\s)--[a-z]")  # an option of a command line
_FRACTION = compile_pattern(r"\d\.\d|(?i:nan)")  # columns of whole numbers are counts, not metrics


def shape_of(text: bytes) -> bytes:
    """The form of a line: its text with `#` for each number."""
    return b" ".join(_NUMBER.sub(b"#", text).split())


@dataclass(slots=True)
class UnknownForm:
    """Lines that differ only in their numbers: the count, and number and text of the first line."""

    count: int
    line: int
    text: str


class MetricLike:
    """Groups the lines that look like metrics by their form; `lines` is their count."""

    def __init__(self) -> None:
        self.lines = 0
        self._forms: dict[bytes, UnknownForm] = {}

    def add(self, raw: bytes, line: int) -> None:
        """Add a line (1-based number) that no definition matched."""
        if _CANDIDATE.search(raw[:MAX_BYTES]) is None:
            return
        cleaned = clean(raw[:MAX_BYTES])
        envelope = peel(cleaned)
        text = cleaned[envelope.start :].strip()
        if envelope.shell or not looks_like_metrics(text):
            return
        self.lines += 1
        shape = shape_of(text)
        form = self._forms.get(shape)
        if form is not None:
            form.count += 1
        elif len(self._forms) < MAX_FORMS:
            shown = text[:_MAX_SHOWN].decode("utf-8", "replace")
            self._forms[shape] = UnknownForm(1, line, shown)

    def forms(self) -> list[UnknownForm]:
        """The forms, the most frequent first, equally frequent ones by their first line."""
        return sorted(self._forms.values(), key=lambda form: (-form.count, form.line))


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
