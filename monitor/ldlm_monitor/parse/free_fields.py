"""Lines of unknown form: their fields, and a list of lines that look like metrics.

`read_fields` reads lines such as `Epoch 3 | step 120/500 | train loss: 2.31 | lr=1e-4`.
Scripts print such lines in many forms, but sentences contain numbers too. So fields are read
only from a line with few other words between them.

`MetricLike` groups the lines that look like metrics but match no definition. It shows users
which values are missed, with a line to write a definition for.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_monitor.parse.envelope import peel
from ldlm_monitor.parse.patterns import bare_rates, compile_pattern, quantity, rate_after
from ldlm_monitor.parse.text_lines import clean
from ldlm_monitor.parse.vocabulary import MAX_KEY, is_count, is_metric, is_training, measure, plain

_MAX_BYTES = 4096
"""First bytes of a line that are searched. A choice: 128 fields of 32 bytes fit, more is slow."""
_MAX_FIELDS = 128
"""Fields read of a line. A choice: the widest known line has about 60, more costs time."""
_MAX_OTHER_WORDS = 2
"""Words beside the fields, a choice: `saved checkpoint, step 5 loss 2` has two, sentences more."""

# Keys have up to 5 words (a choice: more are text). Fields: `a: 1`, `step 5/9 [7/90]`, `loss 2.3`.
_KEY = r"[A-Za-z_][\w./@]*(?:[ -][A-Za-z_][\w./@]*){0,4}(?: ?\([A-Za-z/%]{1,8}\))?"
_FIELD = compile_pattern(
    rf"\b(?P<key>{_KEY})['\"]?[ \t]*(?:=|:=?)[ \t]*(?:tensor\()?(?P<value>{{{{quantity}}}})"
    r"(?:, device='[^'\n]{0,32}')?(?:, grad_fn=<\w{0,64}>)?"
    r"|\b(?P<count>(?i:epoch|step|iter|iteration|it|global[ _]step|update|batch))\b[ :#\[(]*"
    r"(?P<at>\d{1,18})(?P<of>[ \t]*/[ \t]*\d+)?(?:\][ \t]*\[ *(?P<batch>\d{1,18}) ?/ ?\d+\])?"
    r"|\b(?P<metric>(?i:(?:(?:train|training|val|valid|validation|eval|test|avg|mean|total)[ _-])*"
    r"(?:loss|acc|accuracy|lr|ppl)|(?:grad(?:ient)?[ _-]?|g)norm))[ \t]+(?P<number>{{number}})"
)
_ENDS_VALUE = b" \t,;|()[]{}'\"/*"  # bytes that can follow a value: others are part of a word
_ENDS_COUNT = _ENDS_VALUE + b":-"  # `step 5: loss`; but `lr: 1:30` is a duration
# A value also ends at the end of the text or of a sentence.
_SENTENCE_END = compile_pattern(r"\.?(?:\s|$)")
_QUOTES = b"'\""  # around a key
_WORD = compile_pattern(r"[A-Za-z_][A-Za-z_]+")  # a single letter is a unit or a name
# A logger's header up to the level (160 bytes, a choice: a path fits), and names (`INFO:a.b:`).
_LOGGER = compile_pattern(
    r"[^\n]{0,160}?\b(?:INFO|DEBUG|WARNING)\b(?::[\w.]{1,80}:| *\| [\w.<>:]{1,120}:\d+ - )?"
)
_ASSIGNED = compile_pattern(r"[^{}\n]*\w ?[=:] ?\{")
"""An object with a name, `config = {`: settings, no metrics."""
_ABBREVIATED = compile_pattern(r"\b[A-Z]\w*[A-Z] {{quantity}}")
"""An unknown metric and its number, `MAE 0.66` or `Max_MA 28.95 GB`: no words of a sentence."""
# Words and units that lines of metrics have beside their keys; they do not make a sentence.
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
            # `train.py:232` and `ETA: 12 days, 1:02:03` are no fields.
            found.append((name[:MAX_KEY], read))
        if batch is not None:
            batches.append(("step", float(batch)))
    rest.append(text[start:])
    # The batch of an epoch comes last: `Numbers` takes the first step of a line.
    found += batches
    return found if _other_words(rest, found) <= _MAX_OTHER_WORDS else []


def _other_words(rest: list[bytes], found: list[tuple[str, float]]) -> int:
    """The number of words in `rest`, the text between the fields; adds its rates to `found`."""
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
    """The part of a key of several words that has a canonical name, and the words before it."""
    words = key.split(" ")
    last = len(words) - (2 if words[-1].startswith("(") and len(words) > 1 else 1)
    begin = next((at for at in range(last) if _is_known(" ".join(words[at:]))), last)
    # A word with a capital before `loss` names a component: `D loss`, `KL Loss`.
    if begin and plain(words[begin]) == "loss" and words[begin - 1][0].isupper():
        begin -= 1
    named = _is_known(" ".join(words[begin:])) or begin < last
    return " ".join(words[begin:]) if named else key, " ".join(words[:begin])


def _is_known(key: str) -> bool:
    return is_count(key) or is_metric(key)


MAX_FORMS = 1000
"""Forms kept, a choice: they take up to 4 MiB; lines of further forms are only counted."""
_MAX_SHOWN = 400
"""Bytes shown of a line. A choice: five rows of a terminal, more hides the next line."""
# The numbers of a line, which become `#` in its form.
_NUMBER = compile_pattern(r"[-+]?(?:\d[\d,.:]*(?:[eE][-+]?\d+)?|\b(?i:nan|inf(?:inity)?)\b)")
_BLANK = compile_pattern(r"\s+")  # any white space becomes one blank
_COLUMNS = compile_pattern(r"\s*{{number}}(?:\s*[|,]?\s+{{number}}%?){2,}\s*$")  # a row of numbers
_CANDIDATE = compile_pattern(
    r"(?i:loss|acc|norm|ppl|perplex|entropy|lr\b|learning.rate|/s|per.?s|step|iter|time|flop|mfu|tok)"
    r"|^[\s|]*[-+.\d]"
)
"""A pattern that every line of metrics matches: a cheap first test."""
_FLAG = compile_pattern(r"(?:^|\s)--[a-z]")  # an option of a command line
_FRACTION = compile_pattern(r"\d\.\d|(?i:nan)")  # columns of whole numbers are counts, not metrics


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
        if _CANDIDATE.search(raw[:_MAX_BYTES]) is None:
            return
        cleaned = clean(raw[:_MAX_BYTES])
        envelope = peel(cleaned)
        text = cleaned[envelope.start :].strip()
        if envelope.shell or not looks_like_metrics(text):
            return
        self.lines += 1
        shape = _BLANK.sub(b" ", _NUMBER.sub(b"#", text))
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
    keys = [key for key in _names(text) if is_metric(key) or plain(key).endswith("loss")]
    if len(keys) >= 2 or is_training({measure(key).name: 0.0 for key in keys}):
        return True
    return _COLUMNS.match(text) is not None and _FRACTION.search(text) is not None


def _names(text: bytes) -> Iterator[str]:
    """The keys with numbers, and the known last words of keys: `rank0 loss` is a loss."""
    for match in _FIELD.finditer(text[:_MAX_BYTES]):
        named, _, counted, _, _, _, metric, _ = match.groups()
        spelled = (named or counted or metric or b"").decode("latin-1")
        key = spelled if named is None else _known_part(spelled)[0]
        yield key
        last = key.rpartition(" ")[2]
        if last != key and is_metric(last):
            yield last
