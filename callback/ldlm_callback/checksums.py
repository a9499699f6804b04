"""Checksums of a rank's parameters and optimizer state, by which the monitor compares replicas.

A tensor's bits are summed as integers where it is; the sums are weighted and mixed to 48 bits. A
change of one element always changes the sum, so it changes the checksum but for one in 2**48.
Values from a device arrive as float32 (`DeviceCopies`), so a checksum is two numbers of 24 bits.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ldlm_callback.device import is_capturing

PREFIX = "checksum of "
"""Begins the names of halves among a step's values: no keyword argument has a blank."""
_HALF = 24  # bits: a float32 has each whole number of so many
_MIX = 6364136223846793005
"""An odd number with bits in disorder: the multiplier of Knuth's MMIX generator (TAOCP 3.3.4)."""
_WORDS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}  # integers by bytes of an element


@dataclass(frozen=True, slots=True)
class Checked:
    """What a rank checks at steps that are multiples of `every`, and at its first step.

    `parameters`: tensors; `optimizer`: PyTorch's, or None. Counters of one element are left out:
    PyTorch's optimizers keep them in host memory, and they are the same in all.
    """

    parameters: list[Any]
    optimizer: Any
    every: int

    def sums(self) -> dict[str, Any]:
        """Both halves of each checksum, by name, on their device; starts no collective."""
        if is_capturing():
            return {}
        torch = sys.modules["torch"]
        with torch.no_grad():
            return {
                **_halves(torch, "parameters", self.parameters),
                **_halves(torch, "optimizer state", self._state()),
            }

    def _state(self) -> Iterable[Any]:
        if self.optimizer is None:
            return
        state = self.optimizer.state
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                kept = state.get(parameter, {})
                for name in sorted(kept, key=str):
                    if _is_array(kept[name]):
                        yield kept[name]


def _is_array(value: Any) -> bool:
    """Whether it is a tensor with more than a counter."""
    return hasattr(value, "element_size") and value.ndim > 0


def take(given: dict[str, Any]) -> dict[str, str]:
    """Remove the halves of checksums from a step's values; returns the whole ones as 12 digits."""
    names = sorted(name for name in given if name.startswith(PREFIX))
    halves = [int(given.pop(name)) for name in names]
    found = zip(names[::2], halves[::2], halves[1::2], strict=False)
    return {name.removeprefix(PREFIX)[:-2]: f"{high:06x}{low:06x}" for name, high, low in found}


def _halves(torch: Any, what: str, tensors: Iterable[Any]) -> dict[str, Any]:
    by_device: dict[Any, list[Any]] = {}
    for tensor in tensors:
        local = (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()
        parts = torch.view_as_real(local) if local.is_complex() else local
        words = parts.view(getattr(torch, _WORDS[parts.element_size()]))
        by_device.setdefault(local.device, []).append(words.sum(dtype=torch.int64))
    halves: dict[str, Any] = {}
    for number, (device, sums) in enumerate(by_device.items()):
        weights = (torch.arange(len(sums), device=device) * 2 + 1) * _MIX
        mixed = (torch.stack(sums) * weights).sum() * _MIX  # modulo 2**64, as all of this
        name = f"{PREFIX}{what}" + (f"@{number}" if number else "")  # sorts behind a blank
        for half, shift in ((1, 64 - _HALF), (2, 64 - 2 * _HALF)):
            halves[f"{name} {half}"] = (mixed >> shift) & (1 << _HALF) - 1
    return halves
