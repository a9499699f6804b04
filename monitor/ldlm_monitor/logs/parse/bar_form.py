"""The form of tqdm's progress bars.

The form is that of tqdm's `format_meter`: `{desc}: {percent}%|{bar}| {n}/{total}
[{elapsed}<{remaining}, {rate}{, postfix}]`, cut at `ncols` columns. The cut can be inside a
number, and other output can follow it directly, so an item of the postfix is read only if a
`,` or `]` of the bar ends it.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ldlm_monitor.logs.parse.patterns import compile_pattern, number, texts

ItemT = TypeVar("ItemT")

_METER = compile_pattern(  # also without the bar (in a notebook), total, rate or remaining time
    r"(?P<description>(?:[^\r\n%]|%\)){0,160}?)(?P<colon>:?) *"
    r"(?:\d{1,3}%(?:\|[^|\r\n]*\|)? *(?P<count>\d{1,18}/\d{1,18})|(?P<open>\d{1,18})it) "
    r"\[(?:\d[\d:]*(?:<[\d:?]+)?(?:, +(?P<rate>(?:[\d.]+|\?) ?(?:[A-Za-z]+/s|s/[A-Za-z]+)))?)?"
)
_AMOUNT = "0123456789.? "  # characters of a rate before its unit; tqdm prints `?` if unknown
_STEP_UNITS = frozenset(("it", "ba", "batch", "batches", "step", "steps", "iter"))
"""Units of bars that count iterations: tqdm's `it`, Composer's `ba`, and words for the same."""
_MAX_COUNT = 20  # bytes of an "n/total" in which neither can have more than 18 digits
_MAX_PERCENT = 3  # digits of 100, as in `_METER`
_MAX_DESCRIPTION = 160  # bytes, as in `_METER`. A choice: a terminal's width fits, more costs time
_MAX_ITEMS = 32
"""Items of a postfix that are read. A choice: a terminal's line holds fewer, more costs time."""
_MAX_ITEM = 128
"""Most bytes of a key and its value. A choice: a terminal's line fits, more can be other output."""


class Meter(NamedTuple):
    """A bar up to its postfix, which begins at index `end`.

    `total` is None for a bar without total. `counts_steps`: the bar counts iterations, and
    not files, bytes or examples; `speed`: iterations per second, None for others or without a rate.
    """

    description: bytes
    step: int
    total: int | None
    counts_steps: bool
    speed: float | None
    end: int


def split_meter(text: bytes, start: int) -> Meter | None:
    """Read a bar of the common form, with a rate in `it/s` or `s/it`, by splitting it.

    A fast path with the results of `match_meter`; None for any other form.
    """
    head, _, rest = text[start:].partition(b"%|")
    described, _, percent = head.rpartition(b" ")
    _, bar, rest = rest.partition(b"|")
    count, _, rest = rest.partition(b" [")
    clock, _, rest = rest.partition(b", ")
    speed = rest.partition(b",")[0].partition(b"]")[0]
    step, _, total = count.lstrip(b" ").partition(b"/")
    rate, unit = speed[:-4].lstrip(b" "), speed[-4:]
    if (
        not bar
        or not (step.isdigit() and total.isdigit() and percent.isdigit())
        or len(count) > _MAX_COUNT
        or len(percent) > _MAX_PERCENT
        or len(described) > _MAX_DESCRIPTION
        or clock.translate(None, b"0123456789:") != b"<"
        or not (clock[:1].isdigit() and rate.replace(b".", b"", 1).isdigit())
        or clock[-1:] == b"<"
        or unit not in (b"it/s", b"s/it")
    ):
        return None
    description = described.strip(b": ")
    if b"%" in described or (not description and b":" in described):
        return None
    value = float(rate)
    if value and unit == b"s/it":
        value = 1 / value
    end = len(text) - len(rest) + len(speed)
    return Meter(description, int(step), int(total), True, value or None, end)


def match_meter(text: bytes, start: int) -> Meter | None:
    """Read a bar of any form with the pattern `_METER`; None if no bar begins at `start`."""
    match = _METER.match(text, start)
    if match is None:
        return None
    described, colon, count, unbounded, rate = texts(match)
    description = (described or b"").strip(b": ")
    if colon and not description:
        return None  # `: ` without text: a bar whose description began in an earlier write
    step, _, total = (count or unbounded or b"").partition(b"/")
    spelled = (rate or b"").decode()
    unit = spelled.lstrip(_AMOUNT)
    speed = number(spelled[: len(spelled) - len(unit)].strip())
    counted = unit.removeprefix("s/").removesuffix("/s")
    counts = not unit or counted in _STEP_UNITS
    if speed and unit.startswith("s/"):
        speed = 1 / speed
    length = int(total) if total else None
    speed = speed if counts and speed else None
    return Meter(description, int(step), length, counts, speed, match.span()[1])


def read_items(
    text: bytes, at: int, read: Callable[[bytes], ItemT | None]
) -> tuple[list[ItemT], int]:
    """The complete ` key=value` items of a bar's postfix, and the index after the last.

    The postfix begins at `at`; `,` separates items. `read` parses an item. The first item for
    which `read` returns None is output of another writer, and ends the postfix.
    """
    inside, closing, _ = text[at:].partition(b"]")
    pieces = inside.split(b",", _MAX_ITEMS + 1)
    if not closing:
        pieces.pop()  # without `]`, the last item may be cut
    items: list[ItemT] = []
    if not pieces or pieces[0]:
        return items, at + (not inside and len(closing))
    for piece in pieces[1:]:
        item = read(piece) if len(piece) <= _MAX_ITEM else None
        if item is None:
            return items, at
        items.append(item)
        at += len(piece) + 1
    return items, at + len(closing)


def is_cut_item(rest: bytes) -> bool:
    """Whether a bar's text behind its complete items is another item, which the terminal cut."""
    return rest[:1] == b"," and read_item(rest[1:]) is not None


def read_item(piece: bytes) -> tuple[bytes, bytes] | None:
    """The key and value of an item; None for other text."""
    key, equals, value = piece.partition(b"=")
    if not equals or key[:1] != b" " or len(key) > _MAX_ITEM // 2 or b" " in value or b"=" in value:
        return None
    return key[1:], value
