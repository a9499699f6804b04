"""Lines of unknown form: their fields, and a list of those that look like metrics.

`read_fields` reads lines such as `Epoch 3 | step 120/500 | train loss: 2.31 | lr=1e-4`.
Scripts print such lines in many forms, and sentences contain numbers too. So a line counts
only if few other words remain between its fields.

`MetricLike` groups the lines that look like metrics and that no definition matched, so that
a user sees what the monitor does not recognise, and has a line to write a definition from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_monitor.parse.envelope import peel
from ldlm_monitor.parse.patterns import bare_rates, compile_pattern, quantity, rate_after
from ldlm_monitor.parse.text_lines import clean
from ldlm_monitor.parse.vocabulary import (
    EPOCH_KEYS,
    STEP_KEYS,
    is_metric,
    is_training,
    measure,
    plain,
)

_MAX_BYTES = 4096
"""Bytes of a line that are searched; bounds the time for lines of 1 MiB."""
_MAX_FIELDS = 128
"""Fields read of one line; the widest known line of a trainer has about 60."""
_MAX_OTHER_WORDS = 2
"""Words that may remain: `saved checkpoint, step 5 loss 2` is a record, a sentence is not."""

_KEY = r"[A-Za-z_][\w./@]*(?:[ -][A-Za-z_][\w./@]*){0,4}(?: ?\([A-Za-z/%]{1,8}\))?"
_FIELD = compile_pattern(
    rf"\b(?P<key>{_KEY})['\"]?[ \t]*(?:=|:=?)[ \t]*(?:tensor\()?(?P<value>{{{{quantity}}}})"
    r"(?:, device='[^'\n]{0,32}')?(?:, grad_fn=<\w{0,64}>)?"
    r"|\b(?P<count>(?i:epoch|step|iter|iteration|it|global[ _]step|update|batch))\b[ :#\[(]*"
    r"(?P<at>\d{1,18})(?P<of>[ \t]*/[ \t]*\d+)?(?:\][ \t]*\[ *(?P<batch>\d{1,18}) ?/ ?\d+\])?"
    r"|\b(?P<metric>(?i:(?:(?:train|training|val|valid|validation|eval|test|avg|mean|total)[ _-])*"
    r"(?:loss|acc|accuracy|lr|ppl)|(?:grad(?:ient)?[ _-]?|g)norm))[ \t]+(?P<number>{{number}})"
)
_ENDS_VALUE = b" \t,;|()[]{}'\"/*"
_ENDS_COUNT = _ENDS_VALUE + b":-"
_SENTENCE_END = compile_pattern(r"\.?(?:\s|$)")
_QUOTES = b"'\""
_WORD = compile_pattern(r"[A-Za-z_][A-Za-z_]+")
_LOGGER = compile_pattern(
    r"[^\n]{0,160}?\b(?:INFO|DEBUG|WARNING)\b(?::[\w.]{1,80}:| *\| [\w.<>:]{1,120}:\d+ - )?"
)
_ASSIGNED = compile_pattern(r"[^{}\n]*\w ?[=:] ?\{")
"""A named object, `config = {`: settings, not a record."""
_ABBREVIATED = compile_pattern(r"\b[A-Z]\w*[A-Z] {{quantity}}")
"""An abbreviation and its number, `MAE 0.66` or `Max_MA 28.95 GB`: not a known metric."""
_COMMON_WORDS = frozenset(
    b"train training val valid validation eval rank gpu node device eta elapsed remaining epoch"
    b" step iter iteration at of with for per avg mean min max time days day sec ms tok it gib gb"
    b" mb".split()
)


def read_fields(text: bytes) -> list[tuple[str, float]]:
    """The key and value of each field, in order; empty if the text is a sentence."""
    text = text[:_MAX_BYTES]
    header = _LOGGER.match(text)
    start = header.span()[1] if header else 0
    if _ASSIGNED.match(text[start:]):
        return []
    found: list[tuple[str, float]] = []
    batches: list[tuple[str, float]] = []
    rest: list[bytes] = []
    rated = b"/" in text
    while len(found) < _MAX_FIELDS and (match := _FIELD.search(text, start)):
        begin, end = match.span()
        rest.append(text[start:begin])
        start = end
        key, value, counted, at, of, batch, metric, number = match.groups()
        ends = _ENDS_VALUE if counted is None else _ENDS_COUNT
        half_quoted = (
            key and text[begin + len(key)] in _QUOTES and text[max(begin - 1, 0)] not in _QUOTES
        )
        if half_quoted or not (_SENTENCE_END.match(text, end) or text[end] in ends):
            rest.append(text[begin:end])
            continue
        if key is not None:
            known, words = _known_part(key.decode("latin-1"))
            rest.append(words.encode("latin-1"))
            name, amount = known, value
        else:
            name, amount = (counted or metric or b"").decode("latin-1"), at or number
        rate = rate_after(text, end, amount or b"") if rated and counted is None else None
        if rate is not None:
            start = rate[1]
            name = name if is_metric(name) else rate[0]
        read = quantity((amount or b"").decode("latin-1"))
        if name.lower() == "batch" and counted is not None:
            batch = at if of else None
        elif not (read is None or name.endswith(".py") or text.startswith(b" day", end)):
            found.append((name, read))  # not `train.py:232`, and not `ETA: 12 days, 1:02:03`
        if batch is not None:
            batches.append(("step", float(batch)))
    rest.append(text[start:])
    # The batch of an epoch is the step if there is no other.
    found += batches
    return found if _other_words(rest, found) <= _MAX_OTHER_WORDS else []


def _other_words(rest: list[bytes], found: list[tuple[str, float]]) -> int:
    """How many words remain between the fields; adds rates among them to `found`."""
    others = 0
    for part in rest:
        left = part
        for rate_name, rate_value, begin, end in bare_rates(part) if b"/" in part else ():
            found.append((rate_name, rate_value))
            left = left.replace(part[begin:end], b" ")
        for abbreviated in _ABBREVIATED.finditer(left):
            left = left.replace(left[slice(*abbreviated.span())], b" ")
        words = (left[slice(*match.span())].lower() for match in _WORD.finditer(left))
        others += sum(word not in _COMMON_WORDS for word in words)
    return others


def _known_part(key: str) -> tuple[str, str]:
    """Split a key of several words into its known part and the words before that."""
    words = key.split(" ")
    last = len(words) - (2 if words[-1].startswith("(") and len(words) > 1 else 1)
    begin = next((at for at in range(last) if _is_known(" ".join(words[at:]))), last)
    # A component of the loss has a name: `D loss`, `KL Loss`.
    if begin and plain(words[begin]) == "loss" and words[begin - 1][0].isupper():
        begin -= 1
    named = _is_known(" ".join(words[begin:])) or begin < last
    return " ".join(words[begin:]) if named else key, " ".join(words[:begin])


def _is_known(key: str) -> bool:
    return plain(key) in STEP_KEYS or plain(key) in EPOCH_KEYS or is_metric(key)


MAX_FORMS = 1000
"""Lines of further forms are only counted: bounds the memory for a log of random text."""
_MAX_SHOWN = 400
"""Bytes shown of a line: a few rows of a terminal."""
_NUMBER = compile_pattern(r"[-+]?(?:\d[\d,.:]*(?:[eE][-+]?\d+)?|\b(?i:nan|inf(?:inity)?)\b)")
_BLANK = compile_pattern(r"\s+")
_COLUMNS = compile_pattern(r"\s*{{number}}(?:\s*[|,]?\s+{{number}}%?){2,}\s*$")
_CANDIDATE = compile_pattern(
    r"(?i:loss|acc|norm|ppl|perplex|entropy|lr\b|learning.rate|/s|per.?s|step|iter|time|flop|mfu|tok)"
    r"|^[\s|]*[-+.\d]"
)
"""Every line that looks like metrics contains this: a cheap first test."""
_FLAG = compile_pattern(r"(?:^|\s)--[a-z]")
_FRACTION = compile_pattern(r"\d\.\d|(?i:nan)")


@dataclass(slots=True)
class UnknownForm:
    """Lines that differ only in their numbers: how many, and the first of them."""

    count: int
    line: int
    text: str


class MetricLike:
    """Groups lines without records by their form; `lines` counts those like metrics."""

    def __init__(self) -> None:
        self.lines = 0
        self._forms: dict[bytes, UnknownForm] = {}

    def add(self, raw: bytes, line: int) -> None:
        """Add a line (1-based number) that no definition matched."""
        if _CANDIDATE.search(raw[:_MAX_BYTES]) is None:
            return
        text = _text(raw)
        if text is None or not looks_like_metrics(text):
            return
        self.lines += 1
        shape = _shape(text)
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
    """Whether a line has a value that only a training reports, or consists of numbers.

    Two keys of the vocabulary also count: `lr 1e-4, tokens/s 1200`. A command line with
    flags contains settings.
    """
    if len(list(_FLAG.finditer(text))) >= 2:
        return False
    keys = [key for key in _names(text) if is_metric(key) or plain(key).endswith("loss")]
    if len(keys) >= 2 or is_training({measure(key).name: 0.0 for key in keys}):
        return True
    return _COLUMNS.match(text) is not None and _FRACTION.search(text) is not None


def _names(text: bytes) -> Iterator[str]:
    """The keys that have numbers, and the last word of each: `rank0 loss` is a loss."""
    for match in _FIELD.finditer(text[:_MAX_BYTES]):
        named, _, counted, _, _, _, metric, _ = match.groups()
        spelled = (named or counted or metric or b"").decode("latin-1")
        key = spelled if named is None else _known_part(spelled)[0]
        yield key
        last = key.rpartition(" ")[2]
        if last != key and is_metric(last):
            yield last


def _text(raw: bytes) -> bytes | None:
    """A line without its prefixes; None for a shell's trace and an empty line."""
    cleaned = clean(raw[:_MAX_BYTES])
    envelope = peel(cleaned)
    text = cleaned[envelope.start :].strip()
    return None if envelope.shell or not text else text


def _shape(text: bytes) -> bytes:
    """A line with `#` for its numbers, and with single blanks."""
    return _BLANK.replaced(_NUMBER.replaced(text, b"#"), b" ")
