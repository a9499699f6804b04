"""Tables and listings of unknown form.

A table has a header that names its columns, and rows of numbers. A listing is a record of several
lines: a line of dashes and rows `| name | value |`, or a line with a counter, `[step=2/100]`, and
indented lines with a name and a value each. A listing is read as one line of all its fields.
"""

from collections.abc import Callable, Sequence

from ldlm_monitor.base.records import Record
from ldlm_monitor.logs.parse.blocks import MAX_ROWS, Block, BlockOpening
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.fields import Fields
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.patterns import compile_pattern, quantity, texts
from ldlm_monitor.logs.parse.vocabulary import is_count, is_training, measure, plain

_COUNTER = r"(?:[Ee]poch|EPOCH|[Ss]tep|STEP|[Ii]ter(?:ation)?)"
HEADER_TRIGGERS = (
    rf"^[ \t|]*{_COUNTER}(?: *[|,] *|\t| {{2,}})[A-Za-z_]",
    r"(?i)loss *[,\t][ \t]*\w",
)
"""A header begins with its counter, and two blanks or a delimiter part it from the next name; or it
names a loss between commas or tabs."""
LISTING_TRIGGERS = (r"^-{16,}[-+]*\s*$", r"\[(?:step|epoch|iter|iteration|batch)=\d")
"""The first lines of listings; 16 dashes, a choice: shorter ones underline words."""
_MAX_FOREIGN = 32
"""Lines of other writers in a row that end a table. A choice: an evaluation's, more cost time."""
_HEADER = compile_pattern(rf"[ \t|]*{_COUNTER}(?:[ \t]*[|,][ \t]*|\t| {{2,}})[A-Za-z_]")
_LOSSES = compile_pattern(r"(?:[ \t,]*\d?[A-Za-z_]+)+[ \t,]*$")
_GAP = compile_pattern(r"(?:\t| {2,})[ \t]*")
_NAME = compile_pattern(r"\d?[A-Za-z_][\w ./@%()+:-]{0,63}$")
_ROW = compile_pattern(r"[\s|]*[-+.\d]")
_RULE = compile_pattern(r"[-+=|: ]{3,}\s*$")
_PAIR = compile_pattern(r"\|\s*(?P<name>[^|]{1,64}?)\s*\|\s*(?P<value>[^|]*?)\s*\|?\s*$")
_INDENTED = compile_pattern(r"[ \t]+\S[^\n]*?[=:][ \t]*['\"]?[-+.\dNnIi]")
_OPENS = compile_pattern(
    r"-{16,}[-+]*\s*$|[^\n]{0,200}\[(?:step|epoch|iter|iteration|batch)=\d[^\n=]*(?:\w+=\S+)?\]:?\s*$"
)


class ColumnTable:
    """A header; `row` reads the rows below it."""

    def __init__(self, names: Sequence[str], separator: bytes) -> None:
        self._names = names
        self._separator = separator
        self._counts = is_count(names[0])
        self._foreign = 0

    @classmethod
    def of(cls, text: bytes) -> "ColumnTable | None":
        """The table that a header opens; None for another line."""
        if not (_HEADER.match(text) or _LOSSES.match(text)):
            return None
        separator = next((each for each in (b"|", b",", b"\t") if text.count(each) >= 2), b"")
        cells = _cells(text, separator)
        if not separator and len(cells) != len(_GAP.sub(b"\n", text.strip()).split(b"\n")):
            return None  # a name of several words: where the columns begin is not known
        names = [cell.decode("latin-1") for cell in cells]
        trained = is_training({measure(names[-1]).name: 0.0})
        named = (len(names) >= 3 or trained) and all(_NAME.match(cell) for cell in cells)
        lossy = any(separator and cell.lower().endswith(b"loss") for cell in cells)
        return cls(names, separator) if named and (is_count(names[0]) or lossy) else None

    @property
    def ended(self) -> bool:
        """Whether too many lines of other writers followed the last row."""
        return self._foreign > _MAX_FOREIGN

    def row(self, text: bytes) -> Numbers | None:
        """The numbers of a row; None for another line."""
        self._foreign += 1
        if not _ROW.match(text):
            return None
        cells = _cells(text, self._separator)
        width = len(self._names)
        if len(cells) < width or (len(cells) > width and not cells[width - 1].endswith(b":")):
            return None
        fields = Fields()
        for name, cell in zip(self._names, cells, strict=False):
            counted = is_count(name)
            amount = cell.rstrip(b":").partition(b"/")[0] if counted else cell.rstrip(b":")
            value = quantity(amount.decode("latin-1"))
            if value is None:
                if amount not in (b"", b"-", b"--", b"None"):
                    return None
            elif counted:
                fields.counts.setdefault(plain(name), value)
            else:
                fields.values.setdefault((name, False), value)
        if bool(fields.counts) is not self._counts or not fields.values or b"." not in text:
            return None
        self._foreign = 0
        return fields.numbers()


def _cells(text: bytes, separator: bytes) -> list[bytes]:
    if not separator:
        return text.split()
    return [cell.strip() for cell in text.strip().strip(b"|").split(separator)]


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
