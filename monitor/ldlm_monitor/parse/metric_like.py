"""Lines that look like metrics and that no format knows, gathered by their form.

So that a user sees at once what of a log the monitor does not understand, and has the
line from which to write a format of one's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_monitor.parse.envelope import peel
from ldlm_monitor.parse.framing import clean
from ldlm_monitor.parse.free_fields import keys_of
from ldlm_monitor.parse.patterns import Pattern, compile_pattern
from ldlm_monitor.parse.vocabulary import is_metric, measure, plain, tells_of_training

MAX_FORMS = 1000
"""Lines of further forms are only counted."""
_MAX_BYTES = 4096
_MAX_SHOWN = 400
_NUMBER = compile_pattern(r"[-+]?(?:\d[\d,.:]*(?:[eE][-+]?\d+)?|\b(?i:nan|inf(?:inity)?)\b)")
_BLANK = compile_pattern(r"\s+")
_COLUMNS = compile_pattern(r"\s*{{number}}(?:\s*[|,]?\s+{{number}}%?){2,}\s*$")
_CANDIDATE = compile_pattern(
    r"(?i:loss|acc|norm|ppl|perplex|entropy|lr\b|learning.rate|/s|per.?s|step|iter|time|flop|mfu|tok)"
    r"|^[\s|]*[-+.\d]"
)
"""What a line has that may look like metrics: without it, a quick no."""
_FLAG = compile_pattern(r"(?:^|\s)--[a-z]")
_FRACTION = compile_pattern(r"\d\.\d|(?i:nan)")


@dataclass(slots=True)
class Form:
    """Lines that differ in their numbers only: how many, and the first of them."""

    count: int
    line: int
    text: str


class MetricLike:
    """Takes in lines that gave nothing; `lines` counts those that look like metrics."""

    def __init__(self) -> None:
        self.lines = 0
        self._forms: dict[bytes, Form] = {}

    def take(self, raw: bytes, line: int) -> None:
        """Look at a line (1-based number) that no format knew."""
        if _CANDIDATE.search(raw[:_MAX_BYTES]) is None:
            return
        text = _told(raw)
        if text is None or not looks_like_metrics(text):
            return
        self.lines += 1
        shape = _shape(text)
        form = self._forms.get(shape)
        if form is not None:
            form.count += 1
        elif len(self._forms) < MAX_FORMS:
            shown = text[:_MAX_SHOWN].decode("utf-8", "replace")
            self._forms[shape] = Form(1, line, shown)

    def forms(self) -> list[Form]:
        """The most frequent first, and of equally frequent ones the first seen."""
        return sorted(self._forms.values(), key=lambda form: (-form.count, form.line))


def looks_like_metrics(text: bytes) -> bool:
    """Whether a number stands beside what only a training tells, or nothing but numbers do.

    Two names of the vocabulary will do as well: `lr 1e-4, tokens/s 1200`. A command line
    with flags tells settings.
    """
    if len(list(_FLAG.finditer(text))) >= 2:
        return False
    keys = [key for key in _names(text) if is_metric(key) or plain(key).endswith("loss")]
    if len(keys) >= 2 or tells_of_training({measure(key).name: 0.0 for key in keys}):
        return True
    return _COLUMNS.match(text) is not None and _FRACTION.search(text) is not None


def _names(text: bytes) -> Iterator[str]:
    """Keys, and the last word of each: `rank0 loss` tells of a loss."""
    for key in keys_of(text):
        yield key
        last = key.rpartition(" ")[2]
        if last != key and is_metric(last):
            yield last


def _told(raw: bytes) -> bytes | None:
    """What a line says behind its prefix; None for a shell's trace and an empty line."""
    text = clean(raw[:_MAX_BYTES]).text
    envelope = peel(text)
    told = text[envelope.start :].strip()
    return None if envelope.shell or not told else told


def _shape(text: bytes) -> bytes:
    """A line without its numbers, and with single blanks."""
    return b" ".join(_between(_BLANK, b"#".join(_between(_NUMBER, text))))


def _between(pattern: Pattern, text: bytes) -> Iterator[bytes]:
    """What stands between the matches of a pattern."""
    start = 0
    for match in pattern.finditer(text):
        begin, end = match.span()
        yield text[start:begin]
        start = end
    yield text[start:]
