"""Rows of JSON lines by columns: a trainer writes the same keys, row after row.

One by one, a row costs 3 us before anybody has looked at it, most of it the making
of objects. Consecutive rows that share their keys are decoded by a msgspec struct
made for just these keys, and become one `SampleBlock`, for a third of that. Only flat
rows of finite numbers go this way. The struct refuses everything else (a bare NaN, a
nested object, another key, another type), and what it refuses is read one by one.

A key that only some rows have (a trainer that tells the number of active parameters every
100 steps) would cut the blocks short. Once it was seen twice, the struct takes it as
optional, and its values are the block's `sparse` ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, compress, count, islice, pairwise, repeat
from operator import add, ge, gt, is_not
from typing import Any, Literal, TypeAlias

import msgspec

from ldlm_monitor.model.records import SampleBlock
from ldlm_monitor.parse.jsonl import EARLIEST, LATEST, STEPS, TIMES
from ldlm_monitor.parse.vocabulary import is_known, measure

Kind: TypeAlias = Literal["number", "str", "bool", "none", "step row"]
Signature: TypeAlias = tuple[tuple[str, Kind], ...]
"""A row's keys in their order, each with what kind of value it has."""

MAX_KEYS = 256
MAX_OPTIONAL = 16
"""Keys that only some rows have; each costs every row a little."""
_KINDS: dict[type, Kind] = {
    int: "number",
    float: "number",
    str: "str",
    bool: "bool",
    type(None): "none",
}
_FIELD_TYPES: dict[Kind, Any] = {
    "number": float,
    "str": str,
    "bool": bool,
    "none": None,
    "step row": Literal["step"],
}


_ASKED_ROW_BY_ROW = frozenset({*STEPS, *TIMES, "epoch", "rank", "type", "schema"})
_STANDING = frozenset({"progress", "total_steps", "eval_progress", "skip_progress"})
"""Values that tell where the run stands, each at its row."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose rows they are; `rank` is that of rows that do not tell their own."""

    run: str
    path: str
    rank: int | None


def offsets_of(raws: list[bytes], start: int) -> list[int]:
    """Where each row begins, if the first begins at `start` and one byte ends each."""
    lengths = accumulate(map(len, raws[:-1]), initial=0)
    return list(map(add, lengths, count(start)))


def signature(row: dict[str, Any]) -> Signature | None:
    """What a row looks like; None where it is nested, very wide, or no metric row."""
    if not 0 < len(row) <= MAX_KEYS:
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


@lru_cache(maxsize=256)
def shape_of(signed: Signature, optional: Signature = ()) -> Shape | None:
    """The reader of rows like this; None where they can only be read one by one."""
    try:
        return Shape(signed, optional)
    except ValueError:
        return None


class Shape:
    """Reads rows of one signature, and of the same with some of the `optional` keys.

    Raises `ValueError` for a signature whose rows have no step, or whose meaning
    hangs on each row's values: two keys of one name, a time or a number as text.
    """

    def __init__(self, signed: Signature, optional: Signature = ()) -> None:
        self.signature = signed
        self.optional = optional
        self._step = _sole(signed, STEPS)
        if self._step is None:
            raise ValueError("no step")
        self._time = _sole(signed, TIMES)
        self._epoch = _sole(signed, ("epoch",))
        self._rank = _sole(signed, ("rank",))
        if any(key in _ASKED_ROW_BY_ROW for key, _ in optional):
            raise ValueError("each row has to be asked")
        taken = (self._step, self._epoch, self._rank)
        names = _names((*signed, *optional), taken)
        self._names = [(index, name) for index, name in names if index < len(signed)]
        self._sparse = names[len(self._names) :]
        if any(name in _STANDING for _, name in self._sparse):
            raise ValueError("each row has to be asked")
        self._decode = _decoder(signed, optional).decode

    def with_more(self, signed: Signature) -> Shape | None:
        """A reader of these rows and of `signed`, which has the same keys and others; or None."""
        told = dict(signed)
        if any(told.pop(key, None) != kind for key, kind in self.signature):
            return None
        optional = {**dict(self.optional), **told}
        if not dict(self.optional).items() <= optional.items() or len(optional) > MAX_OPTIONAL:
            return None
        return shape_of(self.signature, tuple(optional.items()))

    def decode(self, raws: list[bytes], start: int) -> list[msgspec.Struct]:
        """The rows from `start` on, up to the first that looks different."""
        rows: list[msgspec.Struct] = []
        # What was decoded before an exception stays in the list.
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            rows.extend(map(self._decode, islice(raws, start, None)))
        return rows

    def blocks(
        self, rows: list[msgspec.Struct], owner: Owner, first_line: int, offsets: list[int]
    ) -> list[SampleBlock] | None:
        """Decoded rows as blocks; None where their values mean something else row by row."""
        width = len(self.signature) + len(self.optional)
        flat = list(chain.from_iterable(map(msgspec.structs.astuple, rows)))
        steps = _whole(flat[self._step :: width])
        rank, times = owner.rank, None
        if self._rank is not None:
            ranks = _whole(flat[self._rank :: width])
            if ranks is None or min(ranks) != max(ranks):
                return None
            rank = ranks[0]
        if self._time is not None:
            column = flat[self._time :: width]
            known = min(column) >= EARLIEST and max(column) <= LATEST
            if not known and any(EARLIEST <= value <= LATEST for value in column):
                return None
            times = column if known else None
        if steps is None:
            return None
        values: dict[str, Sequence[float]] = {
            name: flat[index::width]
            for index, name in self._names
            if times is None or index != self._time
        }
        sparse: dict[str, dict[int, float]] = {}
        for index, name in self._sparse:
            column = flat[index::width]
            told = list(map(is_not, column, repeat(msgspec.UNSET)))
            if all(told):
                values[name] = column
            elif any(told):
                sparse[name] = dict(compress(enumerate(column), told))
        if not values:
            return None if sparse else []
        epochs = None if self._epoch is None else flat[self._epoch :: width]
        whole = SampleBlock(
            run=owner.run,
            rank=rank,
            path=owner.path,
            first_line=first_line,
            offsets=offsets,
            steps=steps,
            epochs=epochs,
            times=times,
            values=values,
            sparse=sparse,
        )
        return _rising(whole)


def _sole(signed: Signature, keys: tuple[str, ...]) -> int | None:
    """The index of the one key of `keys` that the signature has, if it is a number."""
    found = [(index, kind) for index, (key, kind) in enumerate(signed) if key in keys]
    if len(found) > 1 or any(kind == "str" for _, kind in found):
        raise ValueError("each row has to be asked")
    return found[0][0] if found and found[0][1] == "number" else None


def _names(signed: Signature, taken: tuple[int | None, ...]) -> list[tuple[int, str]]:
    """The canonical name of every column of values."""
    names: dict[str, int] = {}
    for index, (key, kind) in enumerate(signed):
        meant = measure(key[:128])
        name = meant.name
        if name in names or meant.factor != 1 or (kind == "str" and is_known(name)):
            raise ValueError("each row has to be asked")
        if kind == "number" and index not in taken:
            names[name] = index
    return [(index, name) for name, index in names.items()]


def _decoder(signed: Signature, optional: Signature) -> msgspec.json.Decoder[msgspec.Struct]:
    fields: list[Any] = [_FIELD_TYPES[kind] for _, kind in signed]
    fields += [_FIELD_TYPES[kind] | msgspec.UnsetType for _, kind in optional]
    defaults = [()] * len(signed) + [(msgspec.UNSET,)] * len(optional)
    row = msgspec.defstruct(
        "Row",
        [
            (f"f{index}", field, *default)
            for index, (field, default) in enumerate(zip(fields, defaults, strict=True))
        ],
        rename={f"f{index}": key for index, (key, _) in enumerate((*signed, *optional))},
        forbid_unknown_fields=True,
        gc=False,
    )
    return msgspec.json.Decoder(row)


def _whole(column: list[float]) -> list[int] | None:
    return list(map(int, column)) if all(map(float.is_integer, column)) else None


def _rising(block: SampleBlock) -> list[SampleBlock]:
    """The block, cut before every line whose step does not rise or whose time falls."""
    steps, times = block.steps, block.times or (0.0,)
    if not any(map(ge, steps, islice(steps, 1, None))) and not any(
        map(gt, times, islice(times, 1, None))
    ):
        return [block]
    cuts = {i for i in range(1, len(steps)) if steps[i - 1] >= steps[i]}
    cuts |= {i for i in range(1, len(times)) if times[i - 1] > times[i]}
    bounds = [0, *sorted(cuts), len(steps)]
    return [block.part(start, stop) for start, stop in pairwise(bounds)]
