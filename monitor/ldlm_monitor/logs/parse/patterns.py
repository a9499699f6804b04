"""Patterns over log text, and the numbers in it: plain, with units, and as rates.

Patterns are google-re2 on bytes, whose time is linear in the text. Bytes are read as
Latin-1: invalid UTF-8 matches like other text, and every index is a byte index. In a
pattern, `{{number}}` stands for `NUMBER`, `{{quantity}}` for `QUANTITY`, `{{nccl_warn}}` for the
header of NCCL's warnings, `{{lead}}` for what may precede words of an end, and `{{clause}}`,
`{{head}}`, `{{kept}}` and `{{kept_at}}` for the parts of words on a checkpoint. Patterns of this
room bound the digits of integers: `\\d{1,18}` fits in 64 bits, `\\d{1,9}` in 32.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import re2
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

NUMBER = (
    r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|(?i:nan|inf(?:inity)?)(?:\.0?)?)"
)
"""A number as C and Python print it, or `nan.0` and `inf.` as in Lightning's bar."""
THOUSANDS = r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?"
"""A number in groups of thousands, for formats that do not separate fields by commas."""

_NUMBER = re.compile(NUMBER)  # for `number`, which matches text and not bytes
# The printed form of a tensor or NumPy scalar, with the number inside.
_WRAPPED = re.compile(r"(?:tensor|np\.\w+|torch\.tensor)\((?P<inner>[^,()]*)(?:,[^()]*)?\)")

UNITS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
    "KB": 1e3, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
    "%": 0.01,
    "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12,
    "TFLOP": 1e12, "TFLOPs": 1e12, "TFLOPS": 1e12,
}  # fmt: skip
"""The factor to the base unit: seconds, bytes, a ratio, or a count. `B` is a billion."""

QUANTITY = rf"(?:{THOUSANDS}|{NUMBER})(?: ?(?:(?:[mnu]?s|[KMGT]i?B|[kKMBGT]|TFLOP[sS]?)\b|%))?"
"""A number, possibly in groups of thousands or with a unit."""

_MAX_TEXT = 64
"""Most characters of a quantity. A choice: a printed float has up to 24, matching more is slow."""
# A quantity's number and unit; no unit of `UNITS` has more than six letters.
_PARTS = re.compile(rf"(?P<amount>{THOUSANDS}|{NUMBER}) ?(?P<unit>[A-Za-z%]{{1,6}})?")


def number(text: str) -> float | None:
    """The number that the whole text is; None if it is no number.

    Accepts quotes, wrappers such as `tensor(nan, device='cuda:0')` or `np.float64(nan)`, and
    non-finite numbers in any case and as `nan.0`.
    """
    if "_" in text or not text.isascii():
        return _unusual(text)
    try:
        return float(text)
    except ValueError:
        return _unusual(text)


def _unusual(text: str) -> float | None:
    stripped = text.strip().strip("'\"")
    wrapped = _WRAPPED.fullmatch(stripped)
    if wrapped:
        stripped = wrapped["inner"].strip()
    if not _NUMBER.fullmatch(stripped):
        return None
    if stripped[-1] in ".0" and "n" in stripped.lower():
        stripped = stripped.rstrip(".0")
    return float(stripped)


def scaled(value: float, factor: float) -> float:
    """A number times `factor`. As 18 * 0.001 is not 0.018, a factor below 1 becomes a divisor."""
    return value / (1 / factor) if factor < 1 else value * factor


def quantity(text: str, unit: str | None = None) -> float | None:
    """The quantity in base units; None if the text is no quantity.

    `unit` (a key of `UNITS`) overrides the printed unit: DeepSpeed's `3.96GB` are GiB.
    """
    amount, printed = number(text), None
    if amount is None and unit is None and text.endswith("%"):
        amount, unit = number(text[:-1]), "%"
    if amount is None:
        match = _PARTS.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
        if match is None:
            return None
        amount, printed = number(match["amount"].replace(",", "")), match["unit"]
    unit = printed if unit is None else unit
    if amount is None or unit is None:
        return amount
    return scaled(amount, UNITS[unit]) if unit in UNITS else None


class NumberSpec(BaseModel):
    """How a number is printed. In YAML, a text instead of a mapping is the `name`.

    `name`: where a definition maps keys, the canonical name (`step` and `epoch` set the
    sample's fields); where it maps values, the named group of the number, which may also be
    written `group`. `unit`: the unit (of `UNITS`) if the printed one is missing or wrong.
    `unknown`: numbers that mean a missing value, or a value too small to print. `finite`: NaN
    and infinities mean a missing value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str = Field(validation_alias=AliasChoices("name", "group"))
    unit: str | None = None
    unknown: tuple[float, ...] = ()
    finite: bool = False

    @model_validator(mode="before")
    @classmethod
    def _only_a_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given

    @field_validator("unit")
    @classmethod
    def _is_a_unit(cls, unit: str | None) -> str | None:
        if unit is not None and unit not in UNITS:
            raise ValueError(f"{unit} is not a unit; the units are {', '.join(UNITS)}")
        return unit


_NCCL_WARN = (
    r"(?:(?P<host>[\w.\-]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<cuda_device>\d+)\] "
    r"(?:(?P<source>[\w./\-]+:\d+) )?(?:\((?P<function>[\w:~]+)\) )?NCCL WARN )"
)
"""`{host}:{pid}:{tid} [{device}] {file}:{line} ({function}) NCCL WARN` (NCCL src/debug.cc)."""
_LEAD = r"(?:[^\"'`(\n]{0,100}?(?:\(\w[\w./]{0,60}[ :]\d{1,6}\)[^\"'`(\n]{0,40}?)?[^\w\"'`(\n] *)?"
"""What a line may have before words of an end: no quote, as code has, and no parenthesis but the
place in the code that loggers print, `(main.py 154)`."""
_CLAUSE = r"\s*(?:[^\n]{0,200}?(?:[^\w\s\"'`]|\d|\b(?:and|successfully|INFO|DEBUG))\s*)?"
"""The begin of a clause: of a text, or behind a mark but a quote. No word stands before it."""
_HEAD = (
    r"\s*(?:[^\n]{0,100}?\b(?:INFO|DEBUG|NOTE)\b(?::[\w.]+:)?)?(?:\s*(?:\[[^\]\n]{0,60}\]|\(\w+\)"
    r"|(?:epoch|step|iter|batch)\b|[^\w\s\"'`]|\d))*\s*"
)
"""The begin of a text: a level with its logger, marks, numbers, counters and what stands in
brackets, and no other word."""
_KEPT = (
    r"(?:(?:the|new|best|last|latest|final|current|full|intermediate|periodic|trained|training|merged"
    r"|only|model|network|policy|agent|lora|adapter|generator|discriminator|actor|critic|encoder"
    r"|decoder|optimizer)[ _-]){0,4}"
    r"(?:check-?points?|ckpts?|models?|weights|snapshot|state[ _]dict|states?|network|policy"
    r"|adapter)"
)
"""What trainers save, in their words."""
_TO = r"\s+(?:successfully |locally )?(?:to|at|in|as|into|under|for|on|and|with|from)\b"
_KEPT_AT = (
    rf"\b(?:(?:\s*[:=>\x86\xe2\x92-]+|{_TO})[^\n]{{0,40}}?"
    r"[\s'\"`](?P<path>[^\s'\"`,;:()]*[/.\\][^\s'\"`,;()]*\w)"
    rf"|{_TO}(?:\s+\d|[^\n]{{0,40}}?\b(?:(?:epoch|episode|batch)\w*\W{{0,3}}\d"
    rf"|(?:iter|update|(?:global[ _])?step)\w*\W{{0,3}}(?P<step>\d{{1,18}})))"
    rf"|{_TO}:?(?: [\w.'\"`-]+){{0,3}}\W*$"
    r"|\s*(?:$|[!.;,(])|\s+['\"`]?[\w~$.-]*[/\\.]\w)"
)
"""What follows what is saved: its path, its step, or nothing more; no value of a setting."""
# The abbreviations in the patterns of this room and of definition files.
_PHRASES = {
    "{{number}}": NUMBER,
    "{{quantity}}": QUANTITY,
    "{{nccl_warn}}": _NCCL_WARN,
    "{{lead}}": _LEAD,
    "{{clause}}": _CLAUSE,
    "{{head}}": _HEAD,
    "{{kept}}": _KEPT,
    "{{kept_at}}": _KEPT_AT,
}
# The bytes of words, of numbers and of their units.
_WORD_BYTES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_+-."


class PatternMatch(Protocol):
    """A match of re2; `texts` are its groups."""

    def span(self, group: int = 0) -> tuple[int, int]:
        """The byte indices of a group; (-1, -1) if the group took no part in the match."""


def texts(match: Any) -> tuple[bytes | None, ...]:
    """The text of every group, None for one that took no part; re2's own `groups` is slow."""
    if (spans := getattr(match, "_spans", None)) is None:  # another version of re2
        return tuple(match.groups())
    text = match.string
    return tuple([None if start < 0 else text[start:end] for start, end in spans[1:]])


class Pattern:
    """A pattern, compiled at its first use: a log needs few of the hundreds.

    `text` is the expression, `groups` has names and indices of its named groups. The others are
    re2's: `match` and `search` take text and start, `sub` a replacement and the text.
    """

    __slots__ = ("finditer", "groups", "match", "search", "sub", "text")
    groups: tuple[tuple[str, int], ...]
    match: Callable[..., PatternMatch | None]
    search: Callable[..., PatternMatch | None]
    finditer: Callable[[bytes], Iterator[PatternMatch]]
    sub: Callable[[bytes, bytes], bytes]

    def __init__(self, text: str) -> None:
        self.text = text

    def __getattr__(self, name: str) -> Any:
        """Called for attributes that are not set, so nothing is slower after the first use."""
        if name not in self.__slots__:
            raise AttributeError(name)
        compiled = _compiled(self.text)
        named = sorted(compiled.groupindex.items(), key=lambda item: item[1])
        self.groups = tuple((name.decode(), index) for name, index in named)
        self.match, self.search = compiled.match, compiled.search
        self.finditer, self.sub = compiled.finditer, compiled.sub
        return getattr(self, name)

    def named(self, match: PatternMatch, until: int | None = None) -> dict[str, bytes]:
        """The texts of a match's named groups; with `until`, of those that end there or before."""
        values = texts(match)
        return {
            name: value
            for name, index in self.groups
            if (value := values[index - 1]) is not None
            and (until is None or match.span(index)[1] <= until)
        }


def certain(text: bytes, *, closed: bool) -> int:
    """How many bytes of a text were not cut: all of a `closed` line, else all but the last word."""
    return len(text) if closed else len(text.rstrip(_WORD_BYTES + b","))


def compile_pattern(text: str) -> Pattern:
    """A packaged pattern, not compiled yet (a test compiles all); `_PHRASES` are replaced."""
    return Pattern(text)


def checked_pattern(text: str) -> Pattern:
    """A user's pattern, compiled at once. Raises `re2.error` for an invalid one."""
    pattern = Pattern(text)
    pattern.groups  # noqa: B018 - compiles it
    return pattern


def _compiled(text: str) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    for name, phrase in _PHRASES.items():
        text = text.replace(name, phrase)
    return re2.compile(text.encode(), options)


_PER_SECOND = (  # the unit of a rate: a count per second, and per device
    r" ?(?P<what>(?i:tokens?|toks?|samples?|sequences|seqs?|images?|imgs?|iterations|iters?|it"
    r"|steps?|batches))/s(?:ec(?:ond)?)?(?P<each>/(?i:device|gpu))?\b"
)
_PER_STEP = r"/(?P<step>(?i:iteration|iter|it|step|batch))\b"  # of `0.5s/it`
_UNIT = compile_pattern(f"{_PER_SECOND}|{_PER_STEP}")  # the unit right after a number
# A rate without a key before it.
_BARE = compile_pattern(
    rf"(?:^|[\s|,(\[])(?P<amount>{{{{quantity}}}})(?:{_PER_SECOND}|{_PER_STEP})"
)
_COUNTED = {
    "tok": "tokens_per_second",
    **dict.fromkeys(("sam", "seq", "ima", "img"), "samples_per_second"),
    **dict.fromkeys(("it", "ste", "bat"), "steps_per_second"),
}
"""The canonical name of a rate, by the first letters of the unit that is counted."""


def rate_after(text: bytes, start: int, amount: bytes) -> tuple[str, int] | None:
    """A rate's canonical name and the index after its unit; None for other text.

    The unit begins at index `start`; `amount` is the number before the unit.
    """
    match = _UNIT.match(text, start)
    if match is None:
        return None
    end = match.span()[1]
    if text[end:].lstrip()[:1] in (b"=", b":"):
        return None  # the next field's key
    name = _name(*texts(match), amount=amount)
    return None if name is None else (name, end)


def bare_rates(text: bytes) -> Iterator[tuple[str, float, int, int]]:
    """Rates without a key, such as `1200 tok/s`: name, value, start and end of each."""
    for match in _BARE.finditer(text):
        amount, *unit = texts(match)
        name = _name(*unit, amount=amount or b"")
        value = quantity((amount or b"").decode("latin-1"))
        if name is not None and value is not None:
            yield name, value, *match.span()


def _name(
    what: bytes | None, each: bytes | None, step: bytes | None, *, amount: bytes
) -> str | None:
    if step is not None:
        return "step_seconds" if amount.endswith(b"s") else None
    counted = (what or b"").decode("latin-1").lower()
    name = next((name for begin, name in _COUNTED.items() if counted.startswith(begin)), None)
    if each is None:
        return name
    return "tokens_per_second_per_device" if name == "tokens_per_second" else None


def check_groups(pattern: str, values: dict[str, NumberSpec]) -> None:
    """Raises ValueError for a value that is read from a group that the pattern does not have."""
    for name, source in values.items():
        if f"(?P<{source.name}>" not in pattern:
            raise ValueError(f"the pattern has no group {source.name}, from which {name} is read")
