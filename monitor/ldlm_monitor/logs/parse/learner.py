"""Learns which lines of a file report metrics, without a definition of their format.

A line is read if its form alone is clear: a named counter beside a loss, or nothing but a loss,
or a loss in the indented lines below the heading of an evaluation, whose it is then.
Other lines are grouped by their text without its numbers (the template). A template is accepted
at its third line if a counter grows from line to line beside a value of the vocabulary, or if it
has a loss that changes and no line with a counter has given one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ldlm_monitor.base.records import Sample
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.fields import Fields
from ldlm_monitor.logs.parse.free_fields import (
    EPOCH_TRIGGER,
    EVALUATION_TRIGGER,
    MAX_BYTES,
    epoch_of,
    evaluation_progress,
    read_fields,
)
from ldlm_monitor.logs.parse.learned_tables import HEADER_TRIGGERS, LISTING_TRIGGERS, ColumnTable
from ldlm_monitor.logs.parse.metric_like import looks_like_metrics, shape_of
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.patterns import compile_pattern
from ldlm_monitor.logs.parse.translation import TRIGGERS as FOREIGN
from ldlm_monitor.logs.parse.translation import translated
from ldlm_monitor.logs.parse.vocabulary import is_known, is_loss

_EVALUATIONS = r"(?i:eval(?:uation|uating)?|valid(?:ation|ating)?|val|test(?:ing)?|dev)"
_HEADING_TRIGGER = rf"\b{_EVALUATIONS}\b[ \w,/]{{0,40}}(?::|[*=#-]{{3}})[*=#-]*\s*$"
_HEADING = compile_pattern(
    rf"[^\w\n]{{0,40}}(?:\w+ ){{0,2}}{_EVALUATIONS}(?:,? [\w/]+){{0,4}} ?(?::|[*=#-]{{3,40}})\s*$"
)
"""A heading: `Evaluation:`, `***** Eval results *****`. Lines below are indented; the first one may
begin the line, if it counts nothing."""
_COUNTED = compile_pattern(r"(?i)\b(?:step|iter|iteration|epoch|batch|update)\b|\d ?/ ?\d")
TRIGGERS = (
    "{{loss}}",
    r"[Ll]oss(?:es)? (?:at|after|in|of|for|@) (?:[Ee]poch|[Ss]tep|[Ii]ter|[Bb]atch|[Rr]ound)",
    r"\d (?:[a-z]{3,10} )?loss[,;|)\n]",
    r"[Ll]oss['\"], [-+.\dNnIi]",
    r"[Ee]ntropy['\": =]{1,3}[-+.\dNnIi]",
    r"\b[Cc]ost['\": =]{1,3}[-+.\dNn]",
    r"(?:[Pp]pl|PPL)['\": =]{1,3}[-+.\dNnIi]",
    r"(?:[Aa]ccuracy|grad_norm|gnorm)['\": =]{1,4}[-+.\dNnIi]",
    r"(?:samples|images|img|tokens|tok)/s",
    r"[Pp]er_?[Ss]ec(?:ond)?['\"]?[=:]",
    r"[,;|\s'\"](?:lr|LR)['\"]?(?:=|: ?)[(\[]?\d",
    r"['\"]value['\"]: ?[-+.\dNnI]",
    EPOCH_TRIGGER,
    EVALUATION_TRIGGER,
    _HEADING_TRIGGER,
    *HEADER_TRIGGERS,
    *LISTING_TRIGGERS,
    *FOREIGN,
)
"""What lines have that are looked at: the name of a metric beside a number, or a rate."""
_FRACTION = compile_pattern(r"\d\.\d|\d[eE]-|\b(?i:nan|inf)\b")
_MIN_LINES = 3
"""Lines of a template before it is accepted. A choice: two can be chance, more lose more."""
_MAX_TEMPLATES = 1000
"""Templates kept of a file, a choice: trainers have dozens, random text would fill memory."""
_MAX_SHAPE = 400
"""Bytes of a line that make its template. A choice: later text is rarely another form."""
_MARGIN = 40
"""Blanks that begin a second column, half a terminal's row: what it reports, its header says."""
_MAX_BESIDE = 1
"""Words beside a loss without a counter, a choice: more are a remark, as on a saved checkpoint."""
_MAX_SEARCHED = 1000
"""Lines of a file that are looked at without a trigger, before its first loss. A choice: a preamble
has hundreds, each line costs microseconds."""
_MIN_UNNAMED = 20
"""Lines of a template without a known metric before it is accepted. A choice: a training has
hundreds, loading and tokenising some."""
_DURATIONS = frozenset(
    ["eta", "elapsed", "remaining", "time", "took", "seconds", "secs", "duration"]
)
"""Words in names of what any progress has."""
_POSITIONS = frozenset(("progress", "total_steps"))


@dataclass(slots=True)
class _Template:
    """The lines of one form. `held`: the samples of its lines before it was accepted.

    `useless`: a line of this form has no metric or no counter. `like`: it looks like metrics.
    `last`: epoch and step of the last line; `grew`: they grew. `losses`: those seen, at most two.
    `unread`: its lines that count as not understood. `measures`: a value other than a duration had
    a fraction. `lead`: the number at the beginning of the last line, which counts; None once it did
    not rise. `reset`: counters that others reset. `apart`: more lines that must come apart from an
    evaluation before one is the training's, as the first one was an evaluation's.
    """

    useless: bool = False
    like: bool = False
    accepted: bool = False
    lines: int = 0
    grew: bool = False
    losses: frozenset[float] = frozenset()
    last: tuple[float, float] = (-math.inf, -math.inf)
    counts: dict[str, float] = field(default_factory=dict)
    reset: frozenset[str] = frozenset()
    apart: int = 0
    unread: int = 0
    measures: bool = False
    lead: float | None = -math.inf
    held: list[Sample] = field(default_factory=list)


class Learner:
    """The templates of one file; `unread` counts lines that look like metrics but gave none."""

    def __init__(self) -> None:
        self._templates: dict[bytes, _Template] = {}
        self._holding: list[_Template] = []
        self.table: ColumnTable | None = None  # whose rows may follow
        self.unread = 0
        self._counted = False  # a line with a counter gave a loss
        self._losses: set[str] = set()  # the names of losses that the file has
        self._evaluated = -1  # number of the last line that belongs to an evaluation's heading
        self._heads = False  # the line before is such a heading
        self._searched = 0  # lines without a trigger that were looked at
        self._watches = False  # a template without a trigger was accepted
        self._first: dict[bytes, list[tuple[bytes, RecordPlace]]] = {}

    @property
    def wants_all(self) -> bool:
        """Whether lines without a trigger are looked at, too."""
        return self._watches or (not self._losses and self._searched < _MAX_SEARCHED)

    def may_read(self, raw: bytes) -> bool:
        """Whether a line without a trigger has a number with a fraction: a cheap first test."""
        self._searched += 1
        return _FRACTION.search(raw[:_MAX_SHAPE]) is not None

    def search(self, text: bytes, place: RecordPlace) -> list[Sample]:
        """The samples of a line without a trigger, from the third of its form on."""
        shape = shape_of(text[:_MAX_SHAPE])
        template = self._templates.get(shape)
        if template is None and self._searched <= _MAX_SEARCHED and b"#" in shape:
            first = self._first.setdefault(shape, [])
            first.append((text[:MAX_BYTES], place))
            if len(first) < _MIN_LINES:
                return []
            found = [sample for each in self._first.pop(shape) for sample in self.read(*each)]
        elif template is not None and not template.useless:
            found = self.read(text, place)
        else:
            return []
        self._watches |= bool(found)
        return found

    def row(self, text: bytes, place: RecordPlace) -> list[Sample]:
        """The sample of a table's row; empty for another line."""
        if self.table is None:
            return []
        numbers = self.table.row(translated(text[:MAX_BYTES]))
        if self.table.ended:
            self.table = None
        return [] if numbers is None else [numbers.at(place, "inferred")]

    def read(self, text: bytes, place: RecordPlace) -> list[Sample]:
        """The samples that a line gives, and those of earlier lines that it makes certain."""
        if not self.wants_all:
            self._first.clear()
        text = translated(text[:MAX_BYTES])
        if (header := epoch_of(text, alone=True)) is not None:
            return [header.at(place, "inferred")]
        below = self._is_below(text, place)
        if (table := ColumnTable.of(text)) is not None:
            self.table = table
        if table is not None or text[:_MARGIN].isspace():
            return []
        shape = shape_of(text[:_MAX_SHAPE])
        template = self._templates.get(shape)
        if template is None:
            template = _Template(apart=_MIN_LINES if below else 0)
            if len(self._templates) < _MAX_TEMPLATES:
                self._templates[shape] = template
        if template.apart and not below:
            template.apart -= 1
        if template.useless or (template.apart and not below):
            return self._passed_over(template, text, place)
        fields = read_fields(text, evaluation=below)
        numbers = fields.numbers(template.reset)
        clear = (below and "eval_loss" in numbers.values) or _is_clear(text, fields, numbers)
        counted = bool(fields.counts or fields.bare) or numbers.step is not None
        if not counted and not below:
            self._lead(template, fields, numbers)
            counted = numbers.step is not None
        beside = clear or _repeats(text, fields, numbers)
        uncounted = not counted and not beside and template.lines >= _MIN_LINES
        named = _has_metric(numbers)
        if fields.sentence or uncounted or not (named or self._may_count(text, fields, numbers)):
            template.useless = True
            template.like = looks_like_metrics(text)
            return self._passed_over(template, text, place)
        if b"|" in text and (of := epoch_of(text)) and of.epoch == numbers.epoch:
            numbers.values.update(of.values)
        only = self._is_only(numbers)
        self._observe(template, fields, numbers)
        sample = numbers.at(place, "inferred")
        if template.accepted or (clear and not only):
            self._counted |= counted and "loss" in numbers.values
            return [sample]
        certain = self._is_certain(template, fields, counted=counted, beside=beside, named=named)
        return self._hold(template, sample, certain=certain)

    def _is_certain(
        self, template: _Template, fields: Fields, *, counted: bool, beside: bool, named: bool
    ) -> bool:
        """Whether the lines of a template are those of a training: they count, or values change."""
        changes = len(template.losses) > 1
        if not named:
            certain = template.grew and template.lines >= _MIN_UNNAMED and changes
            certain = certain and template.measures
            if certain and template.reset:  # their steps were those of another counter
                template.held = [replace(each, step=None) for each in template.held]
            return certain
        moves = template.grew or (bool(fields.bare) and not fields.others and changes)
        moves = moves or (not counted and beside and changes and not self._counted)
        return moves and bool(template.losses)

    def _may_count(self, text: bytes, fields: Fields, numbers: Numbers) -> bool:
        """Whether values without a known name may be a training's: a counter beside a fraction."""
        if evaluation_progress(text) or epoch_of(text):
            return False  # what they give is certain
        counted = {*fields.counts} - {"batch"} or (not fields.counts and numbers.step is not None)
        fraction = any(map(_measures, numbers.values)) and _FRACTION.search(text) is not None
        return bool(counted) and fraction and fields.others <= _MAX_BESIDE and not self._losses

    @staticmethod
    def _lead(template: _Template, fields: Fields, numbers: Numbers) -> None:
        """Take the number at a line's beginning as its step as long as it rises."""
        lead, before = fields.lead, template.lead
        rises = lead is not None and before is not None and lead > before
        template.lead = lead if rises else None
        if rises:
            numbers.step = lead
        else:
            template.held = [replace(each, step=None) for each in template.held]

    def _is_below(self, text: bytes, place: RecordPlace) -> bool:
        """Whether a line belongs to the heading of an evaluation above it."""
        below = place.line == self._evaluated + 1
        below = below and (text[:1] in _BLANKS or (self._heads and not _COUNTED.search(text)))
        below = below or _ESTIMATED in text[:_MAX_SHAPE]
        self._heads = _HEADING.match(text[:_MAX_SHAPE]) is not None
        if below or self._heads:
            self._evaluated = place.line
        return below

    def known(self, values: Mapping[str, float]) -> None:
        """Note what a definition read: beside its `loss`, no other name stands for the loss."""
        if "loss" in values:
            self._losses.add("loss")

    def _is_only(self, numbers: Numbers) -> bool:
        """Whether no line of the file has another loss (`NER loss`); it is named `loss` then."""
        names = {name for name in numbers.values if is_loss(name)}
        if self._losses and not names <= self._losses:
            self.interrupt()  # what is held may have been named so
        self._losses |= names
        only = bool(names) and len(self._losses) == 1 and "loss" not in names
        if only:
            numbers.values["loss"] = numbers.values.pop(names.pop())
        return only

    def _passed_over(self, template: _Template, text: bytes, place: RecordPlace) -> list[Sample]:
        """What a line without a metric gives: the progress of epochs or of an evaluation."""
        sign = evaluation_progress(text) or epoch_of(text)
        self.unread += template.like and sign is None
        return [] if sign is None else [sign.at(place, "inferred")]

    def interrupt(self) -> None:
        """Drop held samples: another record follows them, and records are in order of position."""
        for template in self._holding:
            template.held.clear()
        self._holding.clear()

    def _hold(self, template: _Template, sample: Sample, *, certain: bool) -> list[Sample]:
        template.held.append(sample)
        if template.lines >= _MIN_LINES:  # fewer are no form that repeats
            self.unread += 1 if template.unread else _MIN_LINES
            template.unread += 1 if template.unread else _MIN_LINES
        if template.lines < _MIN_LINES or not certain:
            del template.held[:-_MIN_UNNAMED]
            self._holding.append(template)
            return []
        template.accepted = True
        held, template.held = template.held, []
        self.unread -= template.unread
        self.interrupt()
        return held

    @staticmethod
    def _observe(template: _Template, fields: Fields, numbers: Numbers) -> None:
        """Note how the counters of a line follow those of the line before."""
        now = numbers.epoch or 0.0, float(numbers.step or 0)
        template.grew = template.lines > 0 and (
            now > template.last or (template.grew and now == template.last)
        )
        counts = dict(fields.counts)
        if fields.bare:
            counts[""] = fields.bare[-1][0]
        before, template.counts = template.counts, counts
        fell = {name for name, count in counts.items() if count < before.get(name, count)}
        rose = {name for name, count in counts.items() if count > before.get(name, count)}
        if fell and rose:
            template.reset |= fell
        template.last = now
        template.lines += 1
        template.measures = template.measures or any(
            not number.is_integer() and _measures(name) for name, number in numbers.values.items()
        )
        first = 0.0 if _has_metric(numbers) else sum(numbers.values.values())
        loss = next((number for name, number in numbers.values.items() if is_loss(name)), first)
        if math.isfinite(loss) and len(template.losses) < 2:
            template.losses |= {loss}


def _measures(name: str) -> bool:
    """Whether a name is not one of what any progress has."""
    return name not in _POSITIONS and _DURATIONS.isdisjoint(name.split("_"))


def _has_metric(numbers: Numbers) -> bool:
    return any(is_known(name) and name not in _POSITIONS for name in numbers.values)


def _repeats(text: bytes, fields: Fields, numbers: Numbers) -> bool:
    """Whether a line without a counter may be one of many: a loss and few words besides."""
    begins = text[:4].lower() == b"loss"
    return any(map(is_loss, numbers.values)) and (begins or fields.others <= _MAX_BESIDE)


def _is_clear(text: bytes, fields: Fields, numbers: Numbers) -> bool:
    """Whether one line is enough: a named counter and a loss, or a loss and no word besides."""
    losses = "loss" in numbers.values or "eval_loss" in numbers.values
    if fields.counts:
        return losses or any(map(is_loss, numbers.values))
    if not losses or fields.others:
        return False
    if "loss" not in numbers.values:
        return text[:1] not in _INDENTED
    return not fields.bare and text[:4].lower() in _ALONE


_ESTIMATED = b"Saving dict for global step "  # what TensorFlow's estimators write of an evaluation
_BLANKS = (b" ", b"\t")
_INDENTED = (*_BLANKS, b'"', b"'")  # how a line of settings or of a longer object begins
_ALONE = frozenset((b"loss", b"trai", b"tota"))
"""How a line begins that is a loss and nothing else: `Loss: 2.5`, `train_loss=2.5`."""
