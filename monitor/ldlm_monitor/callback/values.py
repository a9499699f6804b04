"""The arguments of `on_step`, sorted: numbers, tensors on a device, and the rest."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ldlm_monitor.callback.device import host_number, is_tensor, local_value

MAX_NAME = 128
"""A longer name is an error of the caller; a row stays below 64 KiB with `MAX_VALUES`."""
MAX_VALUES = 256
"""Values in a row; gradient norms of a model's blocks are a hundred at most."""
LARGEST = 2**63
"""Of whole numbers; what is larger is no count of anything."""
PLAIN = frozenset({float, int, bool, str, type(None)})
"""Kinds of values that nobody can change afterwards."""
_UNREADABLE = object()
_OWN = frozenset({"type", "schema", "time", "rank", "run"})
"""Keys of a row that are the callback's."""


def snapshot(given: dict[str, Any]) -> dict[str, Any]:
    """Replace tensors in host memory by their values, as they are now; those of a device go out.

    Returns the latter by name. Reading host memory waits for nothing; what cannot be read
    stays, for `gather` to leave out. One level of mappings is laid flat:
    `losses={"text": x}` is `losses_text`.
    """
    on_device: dict[str, Any] = {}
    for name, value in list(given.items()):
        if type(value) in PLAIN:
            continue
        if type(value).__name__ == "Tensor" and value.is_cpu and value.ndim == 0:
            given[name] = value.tolist()
        elif is_tensor(value):
            _snap(given, name, value, on_device)
        elif isinstance(value, Mapping):
            del given[name]
            for inner, part in value.items():
                flat = f"{name}_{inner}"
                given[flat] = part
                if is_tensor(part):
                    _snap(given, flat, part, on_device)
    return on_device


def gather(given: Mapping[str, Any], row: dict[str, Any]) -> int:
    """Put the numbers into the row; how many values were none, or too many."""
    dropped = 0
    for key, value in given.items():
        if value is None:
            continue
        name = key[:MAX_NAME]
        kind = type(value)
        if name in _OWN or len(row) >= MAX_VALUES:
            dropped += 1
        elif kind is float or kind is bool or (kind is int and -LARGEST <= value <= LARGEST):
            row[name] = value
        elif (number := _other_number(value)) is not None:
            row[name] = number
        else:
            dropped += 1
    return dropped


def whole(value: Any, otherwise: int) -> int:
    """A step or batch number; `otherwise` where reading it could wait for a device."""
    if type(value) is int:
        return value if -LARGEST <= value <= LARGEST else otherwise
    if value is None:
        return otherwise
    try:
        if is_tensor(value):
            return int(host_number(value)) if value.is_cpu else otherwise
        return operator.index(value)
    except (TypeError, ValueError):
        return otherwise


def alarming(name: str) -> bool:
    """Whether a NaN under this name is a failure; an accuracy of no samples is NaN too."""
    return name.startswith(("loss", "grad_norm")) or name.endswith("loss")


def nonfinite(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Names and values that are NaN or infinite and should not be."""
    for name, value in row.items():
        if type(value) is float and not math.isfinite(value) and alarming(name):
            yield name, value


def parameter_groups(given: Any) -> dict[str, list[Any]]:
    """Parameters by group: by the first part of their names, or as the caller names them.

    Takes a module, pairs of name and parameter, or a mapping of group to parameters.
    """
    if isinstance(given, Mapping):
        return {str(name): list(parameters) for name, parameters in given.items()}
    pairs: Iterable[tuple[str, Any]] = (
        given.named_parameters() if hasattr(given, "named_parameters") else given
    )
    groups: dict[str, list[Any]] = {}
    for name, parameter in pairs:
        parts = [part for part in name.split(".") if part not in ("module", "_orig_mod")]
        groups.setdefault(parts[0] if parts else name, []).append(parameter)
    return groups


def gradient_norms(torch: Any, groups: Mapping[str, list[Any]]) -> dict[str, Any]:
    """The norm of each group's gradients on this rank, as tensors that nobody waits for."""
    norms: dict[str, Any] = {}
    for name, parameters in groups.items():
        gradients = [each.grad for each in parameters if each.grad is not None]
        local = [each.to_local() if hasattr(each, "to_local") else each for each in gradients]
        if local:
            with torch.no_grad():
                each_norm = [torch.linalg.vector_norm(part.detach().float()) for part in local]
                norms[f"grad_norm_{name}"] = torch.linalg.vector_norm(torch.stack(each_norm))
    return norms


def _snap(given: dict[str, Any], name: str, tensor: Any, on_device: dict[str, Any]) -> None:
    value = local_value(tensor)
    if value is None:
        given[name] = _UNREADABLE
    elif value.is_cpu:
        given[name] = host_number(value)
    else:
        on_device[name] = value
        del given[name]


def _other_number(value: Any) -> float | None:
    """NumPy's scalars and Python's own kinds of numbers; anything else might be on a device."""
    module = type(value).__module__.partition(".")[0]
    if module not in ("numpy", "decimal", "fractions", "builtins") or isinstance(value, str):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
