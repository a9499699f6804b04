"""Gradients by group of parameters: norm, share of zeros, share of numbers that are not finite."""

from collections.abc import Iterable, Mapping
from typing import Any

NORM = "grad_norm_"
"""Begins the names of groups' norms; `grad_zeros_` and `grad_nonfinite_` begin their shares'."""
_SHOWN = 8  # groups in a message. A choice: more hide the first one


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


def gradient_window(torch: Any, groups: Mapping[str, list[Any]]) -> dict[str, Any]:
    """What this rank's gradients are by group, as tensors on their device; nothing waits for them.

    The norms come first: of too many values, the last are dropped.
    """
    norms: dict[str, Any] = {}
    shares: dict[str, Any] = {}
    with torch.no_grad():
        for name, parameters in groups.items():
            gradients = [each.grad for each in parameters if each.grad is not None]
            local = [each.to_local() if hasattr(each, "to_local") else each for each in gradients]
            if not (parts := [each.detach() for each in local if each.numel()]):
                continue
            count = sum(each.numel() for each in parts)
            each_norm = [torch.linalg.vector_norm(part.float()) for part in parts]
            norms[f"{NORM}{name}"] = torch.linalg.vector_norm(torch.stack(each_norm))
            nonzero = torch.stack([torch.count_nonzero(part) for part in parts]).sum()
            finite = torch.stack([part.isfinite().sum() for part in parts]).sum()
            shares[f"grad_zeros_{name}"] = (count - nonzero) / count
            shares[f"grad_nonfinite_{name}"] = (count - finite) / count
    return norms | shares


def course(row: Mapping[str, Any]) -> str:
    """Which groups of a row are not finite, and where that began.

    The backward pass takes groups from the last to the first, as modules are registered. So where
    the last ones are finite, what is not came from the group before them.
    """
    norms = {name.removeprefix(NORM): row[name] for name in row if name.startswith(NORM)}
    bad = [name for name, value in norms.items() if value - value != 0.0]
    if len(bad) == len(norms):
        return f"of all {len(norms)} groups, so it came from the loss or from {bad[-1]}"
    text = ", ".join(bad[-_SHOWN:]) + (" and others" if len(bad) > _SHOWN else "")
    return f"first in {bad[-1]}, of {len(bad)} of {len(norms)} groups that are not finite ({text})"
