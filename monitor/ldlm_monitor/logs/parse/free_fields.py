"""The fields of lines of unknown form: `Epoch 3 | step 120/500 | train loss: 2.31 | lr=1e-4`.

A field is a name beside a number: `name: 1`, `name=(1,)`, `'name': np.float64(1)`, between
delimiters also `name 1 (2)` with a mean. A counter may lack a name: `[12/500]`. `read_fields` also
counts the words beside the fields, as sentences contain numbers too.
"""

from ldlm_monitor.logs.parse.fields import (
    COMMON_WORDS,
    COSTS,
    EVALUATION_WORDS,
    TRAINING_WORDS,
    Fields,
)
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.patterns import (
    bare_rates,
    compile_pattern,
    quantity,
    rate_after,
    texts,
)
from ldlm_monitor.logs.parse.vocabulary import (
    EPOCH_KEYS,
    MAX_KEY,
    is_count,
    is_metric,
    known_part,
    measure,
    plain,
)

MAX_BYTES = 4096
"""First bytes of a line that are searched. A choice: 128 fields of 32 bytes fit, more is slow."""
_MAX_HEADER = 200  # bytes of a line that may begin an epoch: rules of dashes are 80 long
_MAX_FIELDS = 128
"""Fields read of a line. A choice: the widest known line has about 60, more costs time."""
# Keys have up to 5 words (a choice: more are text). Fields: `a: 1`, `step 5/9`, `loss 2`.
_KEY = r"[A-Za-z_][\w./@]*(?:[ -][A-Za-z_][\w./@]*){0,4}(?: ?\([A-Za-z/%]{1,16}\))?"
_OF = r"[ \t]*/[ \t]*\d+(?:,\d{3})*(?:\.\d+)?"
_TOTAL = r"(?:[ \t]*/[ \t]*|[ \t]+of[ \t]+)(?P<total>\d{1,18})\b"
FIELD = compile_pattern(
    rf"\b(?P<key>{_KEY})(?:['\"]?(?:[ \t]*(?:=|:=?)|[ \t]is[ \t:])|['\"],)"
    r"[ \t]*['\"*]{0,2}(?:[a-z][\w.]{0,20}\()?[\[(]{0,2}"
    rf"(?P<value>{{{{quantity}}}})(?P<of>{_OF})?"
    r"(?:, device='[^'\n]{0,32}')?(?:, grad_fn=<\w{0,64}>)?"
    r"|\b(?P<count>(?i:epoch|steps?|iters?|iteration|it|global[ _]step|update|batch))\b[ :#\[(]*"
    rf"(?P<at>\d{{1,18}})(?:{_TOTAL})?"
    r"|\b(?P<metric>(?i:(?:(?:train|training|val|valid|validation|eval|test|avg|average|mean|total"
    r"|batch|running|current|epoch)[ _-])*(?:loss|cost|acc|accuracy|lr|ppl)"
    r"|(?:grad(?:ient)?[ _-]?|g)norm))[ \t]+(?:[a-z][\w.]{0,20}\()?(?P<number>{{number}})"
    r"|\b(?:\d{1,18}-)?(?P<glued>\d{1,18})(?P<unit>epoch|batch|num_updates|iter|step)s?\b"
    rf"|(?P<bare>\d{{1,18}})(?:(?P<parts>{_OF})|\])"
    r"|\b(?P<column>[A-Za-z_][\w./@]*)[ \t]+(?P<cell>{{quantity}})"
)
EPOCH_TRIGGER = r"(?i)epochs?[ :#]{0,3}[\[(]? ?\d{1,9}(?: ?[/|] ?| of )\d"
EVALUATION_TRIGGER = (
    r"(?i)\b(?:test|val|eval)(?:id|uat|id?at)?(?:ion|ing)?[ :\-]{1,3}\w{0,5}[ :\[(]{0,3}\d+ ?/ ?\d"
)
_EPOCH = r"\b(?i:epochs?)[ :#]{0,3}[\[(]? ?(?P<epoch>\d{1,9})(?: ?[/|] ?| of )(?P<total>\d{1,9})\b"
_EPOCH_ANYWHERE = compile_pattern(_EPOCH)
_HEADER = compile_pattern(rf"[^\w\n]{{0,40}}{_EPOCH}[^\w\n]*(?:\n|$)")
"""A line that begins an epoch and says nothing else: `Epoch 3/40`, `Epoch: [600 | 600]`."""
_EVALUATING = compile_pattern(
    r"(?:[^\n]{0,120}?[^\w.])?(?i:test|testing|val|valid|validation|validating|eval|evaluation"
    r"|evaluating)(?:[ :\-]{1,3}(?i:epoch|batch|step|iter)?[ :]?)?(?:\[\d+\])?[\[( ]{0,2}"
    r"(?P<done>\d{1,9}) ?/ ?(?P<all>\d{1,9})\b"
)
_MEAN = compile_pattern(r"[ \t]*\([ \t]*(?P<mean>{{number}})[ \t]*\)")
"""The running mean that follows a value: `loss 2.5 (2.75)`."""
_PARTS = compile_pattern(r" ?\([A-Za-z_]\w*[=:][^()\n]*\)")
"""The parts of a loss in parentheses: `loss=3 (text=1, image=2)`."""
_EVALUATED_TOO = ("val", "valid", "validation", "eval", "test")
_MEANS = {"time": "step_seconds", "batch_time": "step_seconds", "data": "data_seconds"}
"""Names that are times of a step where a running mean follows their value."""
_ENDS_VALUE = b" \t,;|()[]{}'\"/*"  # bytes that can follow a value: others are part of a word
_ENDS_COUNT = _ENDS_VALUE + b":-"  # `step 5: loss`; but `lr: 1:30` is a duration
# A value also ends at the end of the text or of a sentence.
_SENTENCE_END = compile_pattern(r"\.?(?:\s|$)")
_BEFORE_COLUMN = compile_pattern(r"(?:^|[|,;\t)\]]|  |- ) *$")
_AFTER_COLUMN = compile_pattern(r" *(?:$|[|,;\t(]|  | - )")
_BEFORE_METRIC = compile_pattern(r"(?:^|[^\w.])(?P<word>[A-Za-z]+[ _-])$")
"""A word before a metric names what is measured: `source loss 2.5`, `min loss 2.5`."""
_BEFORE_BARE = (b"[", b"(", b"|", b",", b" ", b"\t")
_AFTER_BARE = compile_pattern(
    r" ?(?:$|[\])|,;:\[\x80-\xff]|- )| (?i:batches|batch|steps?|iters?)\b| [A-Za-z_]\w*[=:]"
    r"| \d+:\d\d"
)
"""What follows a counter without a name; `1928/2310 tok/s` is none."""
_QUOTES = b"'\""  # around a key
_WORD = compile_pattern(r"[A-Za-z_][A-Za-z_]+")  # a single letter is a unit or a name
# A logger's header up to the level (160 bytes, a choice: a path fits), and names (`INFO:a.b:`).
_LOGGER = compile_pattern(
    r"[^\n]{0,160}?\b(?:INFO|DEBUG|WARNING)\b"
    r"(?:\|[^\]\n]{0,80}\]:|:[\w.]{1,80}:| *\| [\w.<>:]{1,120}:\d+ - | +[\w.$]{1,120} -{1,2} )?"
)
_SETTINGS = compile_pattern(r"[^{}\n]*?(?P<name>\w+) ?[=:] ?\{|\s*[\w.]+\(\w+=")
"""An object with a name, `config = {` or `Config(`: settings, no metrics; but `loss: {` is none."""
_PAIR = compile_pattern(
    r"\s*\[?(?P<epoch>\d{1,9})(?:,[ \t]*|\|)(?P<batch>\d{1,18})(?:\]:?[ \t]|\|)"
)
"""Epoch and batch at the beginning of a line: `[1,  2000] loss: 2.2`, `1|2000|Loss: 2.2`."""
_LEAD = compile_pattern(
    r"[^\w\n\"'{(]{0,4}(?:(?P<key>[A-Za-z][a-z]{0,3})(?:[:=#] ?| ))?(?P<at>\d{1,7})"
    r"(?:[ \t|,;)\]>]|[:-](?:\D|$)|$)"
)
"""A whole number at the beginning, maybe behind a short name, `s:10`; dates have 8 digits."""
_PAIRS = compile_pattern(r"\W{0,4}(?:[A-Za-z_][\w./@]* +{{quantity}}(?:[ \t,;|]+|$)){2,64}$")
"""A text that is nothing but names and numbers, `it 10 obj 2.5 kl 0.5`."""
_BEFORE_NEXT = compile_pattern(r"[ \t]*(?:$|[|,;(]|[A-Za-z_][\w./@]*[ \t:=]+[-+.\d])")
_PREPOSITIONS = frozenset(b"in on by to from after before over took than".split())
"""Words before a number that name nothing."""
_LEADS = frozenset((b"", b"s", b"i", b"it", b"e", b"ep", b"k", b"n"))
"""Short names of counters; others, `fold 3` or `seed 3`, count no steps."""
_BEHIND_LEAD = compile_pattern(
    r"[ \t]*(?:[^A-Za-z \t]|$|(?:(?i:avg|mean|train|training|val) )?[A-Za-z_][\w./@]*"
    r"[ \t:=]+(?:[-+.\d]|(?i:nan|inf)\b))"
)
"""What follows a step: a delimiter or a field. A unit or noun, `512 tokens |`, names what it is."""
_TIME = compile_pattern(r"[ \t]*(?i:m?s|secs?|seconds?|min|minutes?|h|hours?)\b")
_ABBREVIATED = compile_pattern(r"\b[A-Z]\w*[A-Z] {{quantity}}")
"""An unknown metric and its number, `MAE 0.66` or `Max_MA 28.95 GB`: no words of a sentence."""
_RESULTS = (b"loss", b"losses", b"metrics")  # names of objects with metrics
_DELIMITERS = b" \t|,;:=-()[]{}'\"/*"  # what most texts between fields consist of
_REMARK = compile_pattern(
    r"\([^()]*\)|[A-Za-z_][\w.]*=(?:\"[^\"]*\"|[^\s,;|\"'(\[{]+)|['\"][\w./:-]*['\"]"
)
"""A remark in parentheses, `(step)` or `(+nanz)`, a field of text, `level=info`, or a text in
quotes: no words of a sentence."""
_NAMED = compile_pattern(
    r"['\"](?:key|name|metric|tag)['\"]: ?(['\"][\w/.-]{1,64}['\"]),"
    r"([^{}\n]{0,80}?)['\"]value['\"]:"
)
"""An object with a name and a value, `{"key": "loss", "value": 2.5}`."""

_BEHIND_PLACE = compile_pattern(
    r"\b((?:[A-Za-z_]\w*[ _-]){0,2}[A-Za-z_]\w*) (?:at|after|in|of|for|@) "
    r"((?i:epoch|step|iteration|iter|batch|round) ?#?\d{1,18})(?: ?[:=] ?| is:? )"
)
"""A name, a place and a value, `Loss after iteration 10: 2.5`."""
_AHEAD = compile_pattern(
    r"\b(\d*\.\d+(?:[eE][-+]?\d+)?) "
    r"((?:avg|average|mean|total|train|training|val|validation|test) )?(loss|accuracy)([,;|)]|$)"
)
"""A value before its name, `2.5 avg loss,`."""


class _Reader:
    """Reads one text."""

    def __init__(self, text: bytes, *, evaluation: bool = False) -> None:
        self.text = text
        self.found = Fields(evaluation=evaluation)
        self._rated = b"/" in text
        self._evaluation = evaluation
        self._last = ""
        self._paired = False
        self._before = 0  # where the last value ended
        self._lossy = self._stated = False  # a loss was read; the statement with it ended
        self._parts = (0, 0)  # where the parts of a loss are: `loss=3 (a=1, b=2)`

    def read(self, start: int) -> Fields:
        text, found = self.text, self.found
        fields = 0
        self._paired = _PAIRS.match(text, start) is not None
        if lead := _LEAD.match(text, start):
            key, at = texts(lead)
            counts = (key or b"").lower() in _LEADS and _BEHIND_LEAD.match(text, lead.span(2)[1])
            found.lead = int(at or 0) if counts else None
        if pair := _PAIR.match(text, start):
            start = pair.span()[1]
            for name, count in zip(("epoch", "batch"), texts(pair), strict=True):
                self._count(name, float(count or 0))
        while fields < _MAX_FIELDS and (match := FIELD.search(text, start)):
            begin, end = match.span()
            self._other(text[start:begin])
            key, value, of, counted, at, total, metric, number, *others = texts(match)
            glued, unit, bare, parts, column, cell = others
            fields += 1
            start = end
            if key is not None:
                start = self._keyed(key, value or b"", of, begin, end)
            elif counted is not None or glued is not None:
                if self._ended(end, _ENDS_COUNT):
                    name = (counted or unit or b"").decode()
                    self._count(name, float(at or glued or 0), float(total or 0))
                else:
                    self._other(text[begin:end])
            elif metric is not None:
                before = _BEFORE_METRIC.search(text[max(begin - 32, 0) : begin])
                whole = (texts(before)[0] or b"" if before else b"") + metric
                start = self._value(known_part(whole.decode())[0], number or b"", end)
            elif bare is not None:
                if self._is_bare(begin, end):
                    found.bare.append((int(bare), _total(parts)))
            else:
                start = self._column(column or b"", cell or b"", begin, end)
        self._other(text[start:])
        return found

    def _keyed(self, key: bytes, value: bytes, of: bytes | None, begin: int, end: int) -> int:
        text = self.text
        half_quoted = text[begin + len(key)] in _QUOTES and text[max(begin - 1, 0)] not in _QUOTES
        name, words = known_part(key.decode("latin-1"))
        if half_quoted or not self._ended(end, _ENDS_VALUE):
            self._other(text[begin:end])
            return end
        counted = self.found.others
        self._other(words.encode("latin-1"))
        if " " not in words:
            self.found.others = counted  # one word is a part of the name: `Token Acc: 0.5`
        counter = name.partition("/")[0] if of else name
        if is_count(counter) or (of and plain(counter).endswith("batch")):
            amount = quantity(value.decode("latin-1"))
            if amount is not None and not text.startswith(b" day", end):
                self._count(counter, amount, _total(of))
            return end
        return self._value(name, value, end)

    def _column(self, column: bytes, cell: bytes, begin: int, end: int) -> int:
        mean = _MEAN.match(self.text, end)
        after = mean.span()[1] if mean else end
        before = _BEFORE_COLUMN.search(self.text[max(begin - 8, 0) : begin])
        apart = before is not None and _AFTER_COLUMN.match(self.text, after) is not None
        if not apart and not self._paired and not self._follows(column, begin, after):
            if _ABBREVIATED.match(self.text, begin):
                return end
            self._other(column)
            return begin + len(column)
        name = column.decode("latin-1")
        if is_count(name):
            self._count(name, quantity(cell.decode("latin-1")) or 0.0)
            return end
        return self._value(name, cell, end)

    def _follows(self, column: bytes, begin: int, after: int) -> bool:
        """Whether a name directly follows a value, and the end or another name its number."""
        beside = self._before and not self.text[self._before : begin].strip(b" \t")
        if not beside or column.lower() in COMMON_WORDS or column.lower() in _PREPOSITIONS:
            return False
        return _BEFORE_NEXT.match(self.text, after) is not None

    def _value(self, name: str, amount: bytes, end: int) -> int:
        """Add a value; returns the index after its unit and mean."""
        text = self.text
        rate = rate_after(text, end, amount) if self._rated else None
        if rate is not None:
            end = rate[1]
            name = name if is_metric(name) else rate[0]
        mean = _MEAN.match(text, end)
        if mean is not None:
            end = mean.span()[1]
            name = _MEANS.get(name.lower(), name)
            amount = texts(mean)[0] or b"" if self._evaluation else amount
        read = quantity(amount.decode("latin-1"))
        if measure(name).name == "loss":
            self._lossy = True
            if parts := _PARTS.match(text, end):
                self._parts = parts.span()
        elif self._parts[0] < end <= self._parts[1] and not is_metric(name):
            name = f"loss_{name}"
        elif name in _EVALUATED_TOO and measure(self._last).name == "loss":
            name = "eval_loss"  # `loss train: 2.5, val: 2.75`
        self._last, self._before = name, end
        # `train.py:232`, `cost 12.5 s` and `ETA: 12 days, 1:02:03` are no fields.
        timed = plain(name) in COSTS and (amount[-1:].isalpha() or _TIME.match(text, end))
        if not (timed or read is None or name.endswith(".py") or text.startswith(b" day", end)):
            self.found.values[name[:MAX_KEY], self._evaluation] = read
        return end

    def _is_bare(self, begin: int, end: int) -> bool:
        """Whether a counter without name is at `begin`: `[ 10]` only at the text's beginning."""
        if self.text[end - 1 : end] == b"]":
            return self.text[:begin].rstrip(b" ") == b"["
        before = self.text[begin - 1 : begin] if begin else b" "
        return before in _BEFORE_BARE and _AFTER_BARE.match(self.text, end) is not None

    def _count(self, name: str, amount: float, total: float = 0.0) -> None:
        spelled = plain(name)
        if spelled not in self.found.counts:
            self.found.counts[spelled] = amount
            if 0 < amount <= total or (total and not amount):
                self.found.totals[spelled] = total

    def _ended(self, end: int, ends: bytes) -> bool:
        return bool(_SENTENCE_END.match(self.text, end)) or self.text[end] in ends

    def _other(self, part: bytes) -> None:
        """Add the rates and count the words of a text between fields."""
        if self._lossy and self.found.counts:  # behind the statement, words say nothing of it
            self._stated |= part[:2] == b". " or part.lstrip()[:1] == b"|"
        if not part.strip(_DELIMITERS):
            return
        left = _REMARK.sub(b" ", part)
        for name, value, begin, end in bare_rates(part) if b"/" in part else ():
            self.found.values.setdefault((name, False), value)
            left = left.replace(part[begin:end], b" ")
        for abbreviated in _ABBREVIATED.finditer(left):
            left = left.replace(left[slice(*abbreviated.span())], b" ")
        found = (left[slice(*match.span())] for match in _WORD.finditer(left))
        words = {word.lower().strip(b"_") for word in found}
        if words & EVALUATION_WORDS:
            self._evaluation = self.found.evaluation = True
        elif words & TRAINING_WORDS:
            self._evaluation = False
        if not self._stated:
            self.found.others += len(words - COMMON_WORDS)


def _total(of: bytes | None) -> float:
    return 0.0 if of is None else quantity(of.decode("latin-1").lstrip(" \t/")) or 0.0


def read_fields(text: bytes, *, evaluation: bool = False) -> Fields:
    """The fields of a text without its logger's header; none of settings and code.

    `evaluation`: it stands below the heading of an evaluation, whose steps are its own.
    """
    text = text[:MAX_BYTES]
    header = _LOGGER.match(text)
    start = header.span()[1] if header else 0
    if b"value" in text:
        text = _NAMED.sub(rb"\2\1:", text)
    if b"'s " in text:
        text = text.replace(b"'s ", b" ")  # `training's auc: 0.5`
    if _BEHIND_PLACE.search(text) is not None:
        text = _BEHIND_PLACE.sub(rb"\2 \1: ", text)
    if _AHEAD.search(text) is not None:
        text = _AHEAD.sub(rb"\2\3: \1\4", text)
    written = b"\\n" in text  # `print("loss: 2.5\\n")`: code, or a text in quotes
    if written or _is_settings(text, start):
        return Fields()
    reader = _Reader(text, evaluation=evaluation)
    found = reader.read(start)
    if evaluation:
        found.counts = {name: at for name, at in found.counts.items() if name in EPOCH_KEYS}
    return found


def _is_settings(text: bytes, start: int) -> bool:
    settings = _SETTINGS.match(text[start:])
    if settings is None:
        return False
    name = (texts(settings)[0] or b"").lower()
    return not name.isdigit() and name not in _RESULTS  # of `epoch 3: {` the name is 3


def epoch_of(text: bytes, *, alone: bool = False) -> Numbers | None:
    """The epoch and the number of epochs that a line has, or None; `alone`: and nothing else."""
    head = text[:_MAX_HEADER]
    match = _HEADER.match(head) if alone else _EPOCH_ANYWHERE.search(head)
    if match is None:
        return None
    epoch, total = (float(each or 0) for each in texts(match))
    return Numbers(epoch=epoch, values={"total_epochs": total}) if epoch <= total else None


def evaluation_progress(text: bytes) -> Numbers | None:
    """The share of an evaluation that a line reports, `Test: [10/547]`; None for another line."""
    match = _EVALUATING.match(text[:_MAX_HEADER])
    if match is None:
        return None
    done, total = (float(each or 0) for each in texts(match))
    return Numbers(values={"eval_progress": done / total}) if 0 < total >= done else None


def names(text: bytes) -> set[str]:
    """The keys with numbers, and the known last words of keys: `rank0 loss` is a loss."""
    found = {key for key, _ in _Reader(text[:MAX_BYTES]).read(0).values}
    return found | {last for key in found if is_metric(last := key.rpartition(" ")[2])}
