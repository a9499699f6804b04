"""Fields of a line in no known form: `Epoch 3 | step 120/500 | train loss: 2.31 | lr=1e-4`.

Everybody prints such lines in a form of their own, and everybody writes sentences with
numbers in them too. So a line counts only if little else is left of it once its fields
are taken out.

Lines that look like metrics and that no format knows, gathered by their form.

So that a user sees at once what of a log the monitor does not understand, and has the
line from which to write a format of one's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_monitor.parse.envelope import peel
from ldlm_monitor.parse.framing import clean
from ldlm_monitor.parse.patterns import Pattern, bare_rates, compile_pattern, quantity, rate_behind
from ldlm_monitor.parse.vocabulary import (
    EPOCH_KEYS,
    STEP_KEYS,
    is_metric,
    is_training,
    measure,
    plain,
)

_MAX_BYTES = 4096
_MAX_FIELDS = 128
_MAX_OTHER_WORDS = 2

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
"""An object under a name: settings, not a record."""
_ABBREVIATED = compile_pattern(r"\b[A-Z]\w*[A-Z] {{quantity}}")
"""A number in a form of its own, `MAE 0.66` or `Max_MA 28.95 GB`: no metric that is known."""
_COMMON_WORDS = frozenset(
    b"train training val valid validation eval rank gpu node device eta elapsed remaining epoch"
    b" step iter iteration at of with for per avg mean min max time days day sec ms tok it gib gb"
    b" mb".split()
)


def read_fields(text: bytes) -> list[tuple[str, float]]:
    """Key and value of each field, front to back; none where the text is a sentence."""
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
        half_quoted = key and text[begin + len(key)] in _QUOTES and not _is_quoted(text, begin)
        if half_quoted or not (_SENTENCE_END.match(text, end) or text[end] in ends):
            rest.append(text[begin:end])
            continue
        if key is not None:
            known, words = _known_part(key.decode("latin-1"))
            rest.append(words.encode("latin-1"))
            name, told = known, value
        else:
            name, told = (counted or metric or b"").decode("latin-1"), at or number
        rate = rate_behind(text, end, told or b"") if rated and counted is None else None
        if rate is not None:
            start = rate[1]
            name = name if is_metric(name) else rate[0]
        read = quantity((told or b"").decode("latin-1"))
        if name.lower() == "batch" and counted is not None:
            batch = at if of else None
        elif not (read is None or name.endswith(".py") or text.startswith(b" day", end)):
            found.append((name, read))  # but no `train.py:232`, and no `ETA: 12 days, 1:02:03`
        if batch is not None:
            batches.append(("step", float(batch)))
    rest.append(text[start:])
    # The batch of an epoch is the step where nothing else is.
    found += batches
    return found if _other_words(rest, found) <= _MAX_OTHER_WORDS else []


def _other_words(rest: list[bytes], found: list[tuple[str, float]]) -> int:
    """How many words are left between the fields; rates among them are added to `found`."""
    others = 0
    for part in rest:
        left = part
        for rate_name, rate_value, begin, end in bare_rates(part) if b"/" in part else ():
            found.append((rate_name, rate_value))
            left = left.replace(part[begin:end], b" ")
        for abbreviated in _ABBREVIATED.finditer(left):
            left = left.replace(left[slice(*abbreviated.span())], b" ")
        others += sum(word not in _COMMON_WORDS for word in _words(left))
    return others


def _is_quoted(text: bytes, begin: int) -> bool:
    """Whether a quote stands before the byte at `begin`; else the key there was cut."""
    return begin > 0 and text[begin - 1] in _QUOTES


def keys_of(text: bytes) -> list[str]:
    """The keys beside which numbers stand, whatever else the text says."""
    keys: list[str] = []
    for match in _FIELD.finditer(text[:_MAX_BYTES]):
        key, _, counted, _, _, _, metric, _ = match.groups()
        spelled = (key or counted or metric or b"").decode("latin-1")
        keys.append(spelled if key is None else _known_part(spelled)[0])
    return keys


def _known_part(key: str) -> tuple[str, str]:
    """A key of several words without those in front that are no part of it, and these."""
    words = key.split(" ")
    last = len(words) - (2 if words[-1].startswith("(") and len(words) > 1 else 1)
    begin = next((at for at in range(last) if _is_known(" ".join(words[at:]))), last)
    # A part of the loss has a name: `D loss`, `KL Loss`.
    if begin and plain(words[begin]) == "loss" and words[begin - 1][0].isupper():
        begin -= 1
    named = _is_known(" ".join(words[begin:])) or begin < last
    return " ".join(words[begin:]) if named else key, " ".join(words[:begin])


def _is_known(key: str) -> bool:
    return plain(key) in STEP_KEYS or plain(key) in EPOCH_KEYS or is_metric(key)


def _words(text: bytes) -> list[bytes]:
    return [text[slice(*match.span())].lower() for match in _WORD.finditer(text)]


MAX_FORMS = 1000
"""Lines of further forms are only counted."""
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
    if len(keys) >= 2 or is_training({measure(key).name: 0.0 for key in keys}):
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
