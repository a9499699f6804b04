"""Reads files of JSON lines: consecutive rows with the same keys as columns.

Reading a single row costs 3 us, mostly for creating objects. Consecutive rows with the same
keys are decoded together (`row_decoders.py`) and become one `SampleBlock`, for a fraction of
that. A decoder takes only flat rows of finite numbers; other rows (with a bare NaN, a nested
object, another key or type) are read one by one.

A key that only some rows have (such as a value that is printed every 100 steps) would cut
the blocks. So after two rows with the key, the decoder has the key as optional, and its values
are in `SampleBlock.sparse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, count, islice, pairwise
from operator import ge, gt
from typing import Any

from ldlm_monitor.base.records import SampleBlock, as_count
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.jsonl import EARLIEST, LATEST, STEPS, TIMES
from ldlm_monitor.logs.parse.named_rows import named_value, names_split
from ldlm_monitor.logs.parse.row_decoders import RowColumns, Signature, ValueKind, row_decoder
from ldlm_monitor.logs.parse.vocabulary import (
    EVALUATIONS,
    MAX_KEY,
    TRAINING,
    is_known,
    measure,
    measured_losses,
)

MAX_KEYS = 256
"""Most keys of rows read as columns. A choice: msgspec searches linearly, so that more are slow."""
MAX_OPTIONAL = 16
"""Most keys that only some rows may have. A choice: more slow each row, fewer end blocks early."""
# The kind of a decoded value, by its class.
_KINDS: dict[type, ValueKind] = {int: "number", float: "number", str: "str", bool: "bool"}
_KINDS[type(None)] = "none"
_ONE_BY_ONE = "the rows must be read one by one"  # the text of an error that `shape_of` catches
_PER_ROW_KEYS = frozenset({*STEPS, *TIMES, "epoch", "rank", "type", "schema"})
"""Keys that place a row (step, time, rank) or give its type: every row needs them or none."""
_DATA_SPLITS = EVALUATIONS | TRAINING  # the values of rows that name theirs are of several kinds
_PROGRESS = frozenset({"progress", "total_steps", "eval_progress", "skip_progress"})
"""Values that cannot be `sparse`: runs read them row by row, `sparse` ones after a whole block."""


def signature(row: dict[str, Any]) -> Signature | None:
    """The signature of a row; None if it is nested, names its quantity, or has too many keys.

    Rows with a key beyond `MAX_KEY` have none, as signatures are cached and must stay small.
    """
    if not 0 < len(row) <= MAX_KEYS or max(map(len, row)) > MAX_KEY or named_value(row):
        return None
    if names_split(row, _DATA_SPLITS):
        return None
    try:
        signed = [(key, _KINDS[value.__class__]) for key, value in row.items()]
    except KeyError:
        return None
    if isinstance(row.get("type"), str):
        if row["type"] != "step" or not isinstance(row.get("schema", ""), str):
            return None
        signed = [(key, "step row" if key == "type" else kind) for key, kind in signed]
    return tuple(signed)


@lru_cache(maxsize=256)  # a choice: a file has few signatures, and each takes memory
def shape_of(signed: Signature, optional: Signature = ()) -> RowShape | None:
    """The reader of rows of a signature; None if such rows must be read one by one."""
    try:
        return RowShape(signed, optional)
    except ValueError:
        return None


class RowShape:
    """Reads rows of one signature, with any of the `optional` keys.

    Raises `ValueError` for a signature without a step, and for rows that must be read one by
    one, such as those with two keys of one canonical name, or with a time or number as text.
    """

    def __init__(self, signed: Signature, optional: Signature = ()) -> None:
        self.signature = signed
        self.optional = optional
        self._step = _sole(signed, STEPS)
        if self._step is None:
            raise ValueError("no step")
        keys = (TIMES, ("epoch",), ("rank",))
        self._time, self._epoch, self._rank = (_sole(signed, each) for each in keys)
        if any(key in _PER_ROW_KEYS for key, _ in optional):
            raise ValueError(_ONE_BY_ONE)
        taken = (self._step, self._epoch, self._rank)
        self._names = _names((*signed, *optional), taken)
        if any(index >= len(signed) and name in _PROGRESS for index, name in self._names):
            raise ValueError(_ONE_BY_ONE)
        self._decoder = row_decoder(signed, optional, self._step, self._time)

    def with_more(self, signed: Signature) -> RowShape | None:
        """A reader for rows of both signatures; None if impossible, as when `signed` lacks keys."""
        others = dict(signed)
        if any(others.pop(key, None) != kind for key, kind in self.signature):
            return None
        optional = {**dict(self.optional), **others}
        if not dict(self.optional).items() <= optional.items() or len(optional) > MAX_OPTIONAL:
            return None
        return shape_of(self.signature, tuple(optional.items()))

    def read(self, data: bytes, start: int, base: int) -> RowColumns:
        """See `RowDecoder`."""
        return self._decoder.read(data, start, base)

    def blocks(self, rows: RowColumns, place: RecordPlace) -> list[SampleBlock] | None:
        """Blocks of rows, the first at `place`; None if the rows must be read one by one."""
        full = rows.full
        rank, times = place.rank, None
        if self._rank is not None:
            ranks = full[self._rank]
            rank = as_count(ranks[0])
            if rank is None or min(ranks) != max(ranks):
                return None
        if self._time is not None:
            column = full[self._time]
            known = min(column) >= EARLIEST and max(column) <= LATEST
            if not known and any(EARLIEST <= value <= LATEST for value in column):
                return None
            times = column if known else None
        if rows.steps is None:
            return None
        values: dict[str, Sequence[float]] = {
            name: full[index]
            for index, name in self._names
            if index in full and (times is None or index != self._time)
        }
        if not values:
            return None  # a row without numbers may be an error's message
        whole = SampleBlock(
            run=place.origin.run,
            rank=rank,
            path=place.path,
            first_line=place.line,
            offsets=rows.offsets,
            steps=rows.steps,
            epochs=None if self._epoch is None else full[self._epoch],
            times=times,
            values=values,
            sparse={
                name: rows.sparse[index] for index, name in self._names if index in rows.sparse
            },
        )
        rising = [whole] if rows.rises else _rising(whole)
        ends = [step for block in rising for step in (block.steps[0], block.steps[-1])]
        return None if None in map(as_count, ends) else rising


def _sole(signed: Signature, keys: tuple[str, ...]) -> int | None:
    """The index of the one number with a key of `keys`, or None; `ValueError` for a text or two."""
    found = [(index, kind) for index, (key, kind) in enumerate(signed) if key in keys]
    if len(found) > 1 or any(kind == "str" for _, kind in found):
        raise ValueError(_ONE_BY_ONE)
    return found[0][0] if found and found[0][1] == "number" else None


def _names(signed: Signature, taken: tuple[int | None, ...]) -> list[tuple[int, str]]:
    names: dict[str, int] = {}
    for index, (key, kind) in enumerate(signed):
        meant = measure(key[:MAX_KEY])
        name = meant.name
        if name in names or meant.factor != 1 or (kind == "str" and is_known(name)):
            raise ValueError(_ONE_BY_ONE)
        if kind == "number" and index not in taken:
            names[name] = index
    losses = measured_losses(names)
    return [(index, losses.get(name, name)) for name, index in names.items()]


def _rising(block: SampleBlock) -> list[SampleBlock]:
    """The block, cut before each line whose step does not rise or whose time falls."""
    steps, times = block.steps, block.times or ()
    cuts = {*compress(count(1), map(ge, steps, islice(steps, 1, None)))}
    cuts |= {*compress(count(1), map(gt, times, islice(times, 1, None)))}
    if not cuts:
        return [block]
    return [block.part(start, stop) for start, stop in pairwise([0, *sorted(cuts), len(steps)])]
