"""Tables and listings of unknown form.

A table has a header that names its columns, and rows of numbers. A listing is a record of several
lines: a line of dashes and rows `| name | value |`, or a line with a counter, `[step=2/100]`, and
indented lines with a name and a value each. A listing is read as one line of all its fields.
"""

from collections.abc import Callable, Sequence

from ldlm_monitor.base.records import Record
from ldlm_monitor.logs.parse.blocks import MAX_ROWS, Block, BlockOpening
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.fields import EVALUATION_WORDS, TRAINING_WORDS, Fields
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.patterns import compile_pattern, quantity, texts
from ldlm_monitor.logs.parse.vocabulary import is_count, is_metric, is_training, measure, plain

_RULES = r"[,;|\t]|\xe2[\x94\x95]"  # a delimiter, or the first bytes of a drawn one
_COUNTS = "epoch|step|iter|iteration|round"
HEADER_TRIGGERS = (
    rf"(?i)^[^\w\n]{{0,8}}(?:{_COUNTS})(?: *(?:{_RULES})| {{1,20}})[^\w\n]{{0,8}}[A-Za-z_]",
    rf"(?i)loss[\w)]{{0,8}}(?: {{0,20}}(?:{_RULES})| {{2}}|\s*$)",
)
"""A header begins with its counter, or has a loss before a delimiter, two blanks or the end."""
LISTING_TRIGGERS = (r"^-{16,}[-+]*\s*$", r"\[(?:step|epoch|iter|iteration|batch)=\d")
"""The first lines of listings; 16 dashes, a choice: shorter ones underline words."""
_MAX_FOREIGN = 32
"""Lines of other writers in a row that end a table. A choice: an evaluation's, more cost time."""
_LEAST_FOREIGN = 3
"""Lines of other writers between names that may be a sentence and the first row, a choice."""
_MARK = compile_pattern(r"\s*(?:[#>*%=~$]{1,4}\s+|\[?(?:INFO|DEBUG|info|debug)\]?:?\s+)")
"""What may stand before a header, and before its rows: `# `, `>> `, `[INFO] `."""
_NO_HEADER = compile_pattern(r"[={}\"]|(?:^|[\s|,;(:])[-+]?(?:\d+|\d*\.\d+)(?:$|[\s|,;%:/)])")
"""What no header has: a number of its own, a field, an object."""
_WORDS = compile_pattern(r"(?i)loss|epoch|step|iter|round|^[\s|]*(?:e|#)\b")
_GAP = compile_pattern(r"(?:\t| {2,})[ \t]*")
_NAME = compile_pattern(r"(?:\d?[A-Za-z_|](?: ?[\w./@%()+:|#'-]){0,63}|#)$")
_ROW = compile_pattern(r"[^\n]*?(?:^|[\s|,;])[-+]?(?:\d|\.\d|(?i:nan|inf))")
_FRACTION = compile_pattern(r"\d\.|(?i:nan|inf)|\de-")
_CLOCK = compile_pattern(r"\d+:\d\d(?::\d\d)?(?:\.\d+)?$")
_LABELS = EVALUATION_WORDS | TRAINING_WORDS
_EMPTY = frozenset((b"", b"-", b"--", b"None", b"NA", b"N/A", b"n/a", b"null"))
_RULE = compile_pattern(r"[-+=|: ]{3,}\s*$")
_PAIR = compile_pattern(r"\|\s*(?P<name>[^|]{1,64}?)\s*\|\s*(?P<value>[^|]*?)\s*\|?\s*$")
_INDENTED = compile_pattern(r"[ \t]+\S[^\n]*?[=:][ \t]*['\"]?[-+.\dNnIi]")
_OPENS = compile_pattern(
    r"-{16,}[-+]*\s*$|[^\n]{0,200}\[(?:step|epoch|iter|iteration|batch)=\d[^\n=]*(?:\w+=\S+)?\]:?\s*$"
)


class ColumnTable:
    """A header; `row` reads the rows below it."""

    def __init__(self, names: Sequence[str], separator: bytes, *, certain: bool) -> None:
        self._names = names
        self._certain = certain  # the header is no sentence
        self._separator = separator
        self._counts = any(map(is_column_count, names))
        self._measures = self._counts or all(map(_is_number_column, names))
        self._foreign = 0

    @classmethod
    def of(cls, text: bytes) -> "ColumnTable | None":
        """The table that a header opens; None for another line."""
        if _WORDS.search(text) is None or _NO_HEADER.search(text) is not None:
            return None
        text = _unmarked(text)
        for separator in _SEPARATORS:
            if separator in text and (made := cls._of(_cells(text, separator), separator)):
                return made
        spaced = _GAP.sub(b"\n", text.strip()).split(b"\n")
        return cls._of(spaced if len(spaced) > 1 else text.split(), b"", spaced=len(spaced) > 1)

    @classmethod
    def _of(
        cls, cells: Sequence[bytes], separator: bytes, *, spaced: bool = True
    ) -> "ColumnTable | None":
        """The table of a header's cells; `spaced`: what is between them is no single blank."""
        names = [cell.decode("latin-1") for cell in cells]
        if len(names) < 2 or not all(_NAME.match(cell) for cell in cells):
            return None
        known = [is_column_count(name) or is_training({measure(name).name: 0.0}) for name in names]
        named = known[0] and is_column_count(names[0]) and (len(names) >= 3 or known[-1])
        named = named and (spaced or all(known))  # else it may be a sentence
        lossy = any(plain(name).endswith("loss") for name in names)
        labelled = bool(separator) and lossy and len(names) >= 3
        return cls(names, separator, certain=spaced) if named or labelled else None

    @property
    def ended(self) -> bool:
        """Whether too many lines of other writers followed the last row."""
        return self._foreign > (_MAX_FOREIGN if self._certain else _LEAST_FOREIGN)

    def row(self, text: bytes) -> Numbers | None:
        """The numbers of a row; None for another line."""
        self._foreign += 1
        if not _ROW.match(text):
            return None
        cells = self._split(_unmarked(text))
        if cells is None:
            return None
        fields = Fields()
        # Rows of other things without a counter are results: of data sets, of trials.
        says = self._measures or not _LABELS.isdisjoint(map(bytes.lower, cells))
        for name, cell in zip(self._names, cells, strict=False):
            counted = is_column_count(name)
            amount = cell.rstrip(b":").partition(b"/")[0] if counted else cell.rstrip(b":")
            value = quantity(amount.strip(b" %*").decode("latin-1"))
            if value is not None:
                if counted:
                    fields.counts.setdefault(_COUNTERS.get(name.lower(), plain(name)), value)
                else:
                    fields.values.setdefault((name, False), value)
            elif cell.lower() in EVALUATION_WORDS:
                fields.evaluation = True
            elif not (amount in _EMPTY or _CLOCK.match(amount) or not _is_number_column(name)):
                return None
        if fields.evaluation:
            fields.values = {(name, True): value for (name, _), value in fields.values.items()}
        if bool(fields.counts) is not self._counts or not fields.values:
            return None
        if not says or not _FRACTION.search(text):
            return None
        self._foreign = 0
        self._certain = True
        return fields.numbers()

    def _split(self, text: bytes) -> list[bytes] | None:
        width = len(self._names)
        cells = _cells(text, self._separator)
        if not self._separator and len(cells) > width:
            gaps = _GAP.sub(b"\n", text.strip()).split(b"\n")
            cells = gaps if len(gaps) == width else cells
        if len(cells) < width or (len(cells) > width and not cells[width - 1].endswith(b":")):
            return None
        return cells


_SEPARATORS = (b"|", b",", b";", b"\t")
_COUNTERS = {"e": "epoch", "#": "step"}
"""Columns that spaCy calls so."""


def is_column_count(name: str) -> bool:
    """Whether a column has steps or epochs."""
    return is_count(name) or name.lower() in _COUNTERS


def _is_number_column(name: str) -> bool:
    return is_column_count(name) or is_metric(name) or plain(name).endswith("loss")


def _unmarked(text: bytes) -> bytes:
    mark = _MARK.match(text)
    return text if mark is None else text[mark.span()[1] :]


def _cells(text: bytes, separator: bytes) -> list[bytes]:
    if not separator:
        return text.split()
    return [cell.strip(b" \t\r*") for cell in text.strip().strip(b"|").split(separator)]


class Listing(Block[None]):
    """A record of several lines; `read` gets its text, with ` | ` between the fields."""

    def __init__(
        self,
        opening: BlockOpening[None],
        read: Callable[[bytes, RecordPlace], Sequence[Record]],
    ) -> None:
        super().__init__(opening)
        self._read = read
        self._dashes = opening.text[:1] == b"-"
        self._fields: list[bytes] = [] if self._dashes else [opening.text.rstrip(b": ")]
        self.max_foreign = 0  # no line of another writer may be between the rows

    @staticmethod
    def opens(text: bytes) -> bool:
        """Whether a text is the first line of a listing."""
        return _OPENS.match(text) is not None

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """How many bytes of a line belong to the listing; None if the line does not."""
        if logged or not closed or len(self._fields) > MAX_ROWS:
            return None
        if self._dashes and _RULE.match(text):
            self.done = text[:1] == b"-" or text[:1] == b"+"
            return len(text)
        if not self._dashes:
            if not _INDENTED.match(text):
                return None
            self._fields.append(text.strip())
            return len(text)
        pair = _PAIR.match(text)
        if pair is None:
            return None
        name, value = texts(pair)
        if name and value:
            self._fields.append(name + b"=" + value)
        return len(text)

    def records(self) -> list[Record]:
        """The samples of the listing."""
        if len(self._fields) < 2:
            return []
        return list(self._read(b" | ".join(self._fields), self.place))
