"""A monitor as bytes and back: what a restart goes on with, where the logs alone do not tell.

The bytes are a pickle. What is compiled from rules and definitions is not in it but
named, and taken from a monitor that was made anew; so a checkpoint is of use only to
the same code with the same settings (`assemble.fingerprint`). Reading one makes objects
of this package and of a few containers, whatever the file says, and nothing else.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ldlm_monitor.core.monitor import Monitor
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.errors import CheckpointError
from ldlm_monitor.source import Position

_PACKAGE = __name__.partition(".")[0]
_OURS_TO_MAKE = frozenset(
    {
        ("array", "_array_reconstructor"),
        ("array", "array"),
        ("builtins", "bytearray"),
        ("builtins", "frozenset"),
        ("builtins", "set"),
        ("collections", "Counter"),
        ("collections", "deque"),
        (f"{_PACKAGE}.parse.columns", "shape_of"),
    }
)

_ROOMS = tuple(
    f"{_PACKAGE}.{room}"
    for room in (
        *("alerts", "core", "daemon.checkpoint", "detect", "incidents", "model", "parse"),
        *("promql", "run", "series", "source.position"),
    )
)
"""Where the classes stand whose objects it holds: to make one opens and starts nothing."""


@dataclass(slots=True)
class Checkpoint:
    """The monitor as it stands when all up to `positions` is judged.

    `withheld`: alerts that fire and were not told. `turn`: the last one in `arrivals`
    that it knows of.
    """

    monitor: Monitor
    positions: list[Position]
    withheld: list[Transition]
    turn: int

    def freeze(self) -> bytes:
        """All of it, for `thaw`. Between two turns only."""
        names = {id(made): name for name, made in self.monitor.compiled() if made is not None}
        written = io.BytesIO()
        _Freezer(written, names).dump(self)
        return written.getvalue()


def thaw(body: bytes, fresh: Monitor) -> Checkpoint:
    """What was frozen; `fresh` is a monitor of the same settings, just made.

    Raises `CheckpointError`.
    """
    try:
        found = _Thawer(io.BytesIO(body), dict(fresh.compiled())).load()
    except Exception as error:  # damaged bytes can raise anything
        raise CheckpointError(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, Checkpoint):
        raise CheckpointError(f"a {type(found).__name__}")
    return found


def _compiled(name: str) -> object:
    """Stands in a checkpoint for what is compiled from rules and definitions."""
    raise CheckpointError(f"{name}: only a thawer knows it")


class _Freezer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, names: Mapping[int, str]) -> None:
        super().__init__(file, protocol=5)
        self._names = names

    def reducer_override(self, thing: object) -> Any:
        """Asked for objects only, not for each number as `persistent_id` is."""
        name = self._names.get(id(thing))
        return NotImplemented if name is None else (_compiled, (name,))


class _Thawer(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, compiled: Mapping[str, object]) -> None:
        super().__init__(file)
        self._compiled = compiled

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, _compiled.__name__):
            return self._compiled.__getitem__
        if (module, name) in _OURS_TO_MAKE:
            return super().find_class(module, name)
        ours = any(module == room or module.startswith(f"{room}.") for room in _ROOMS)
        if ours and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} does not belong here")
