"""What is compared, in which order, and in which words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["pace", "memory", "loss", "accuracy"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """`less` and `more` say what a smaller and a greater value are; `inverse`: of its inverse."""

    name: str
    title: str
    kind: Kind
    unit: str = ""
    less: str = "lower"
    more: str = "higher"
    better: Literal["less", "more"] = "less"
    inverse: bool = False


STEP_SECONDS = Quantity(
    "step_seconds", "step time", "pace", "s", less="faster", more="slower", inverse=True
)
PACE = (
    STEP_SECONDS,
    Quantity("samples_per_second", "samples/s", "pace", "/s", "slower", "faster", "more"),
    Quantity("tokens_per_second", "tokens/s", "pace", "/s", "slower", "faster", "more"),
    Quantity("steps_per_second", "it/s", "pace", "/s", "slower", "faster", "more"),
)
MEMORY = (
    Quantity("memory_allocated_bytes", "GPU memory allocated", "memory", "B", "less", "more"),
    Quantity("memory_reserved_bytes", "GPU memory reserved", "memory", "B", "less", "more"),
    Quantity("gpu_memory_bytes", "GPU memory in use", "memory", "B", "less", "more"),
    Quantity("host_memory_bytes", "host memory (RSS)", "memory", "B", "less", "more"),
)
LOSS = Quantity("loss", "loss", "loss")
ACCURACY = Quantity("accuracy", "accuracy", "accuracy", better="more")
SPEED_BY = ("samples_per_second", "tokens_per_second", "step_seconds", "steps_per_second")
"""Measures of speed, the best first: two runs may have steps of different size."""
MEMORY_BY = (
    *("memory_allocated_bytes", "gpu_memory_bytes", "memory_reserved_bytes", "host_memory_bytes"),
)
ALWAYS = (*PACE, MEMORY[0], LOSS, ACCURACY)
"""Quantities named as missing where no run has them."""


def learned(names: Iterable[str]) -> list[Quantity]:
    """The losses and accuracies among the names, the whole before its parts."""
    found = []
    for name in sorted(names, key=lambda name: (name not in ("loss", "accuracy"), name)):
        title = name.replace("_", " ")
        if name == "loss" or name.startswith(("loss_", "eval_loss")):
            found.append(Quantity(name, title, "loss"))
        elif name == "accuracy" or name.startswith(("accuracy_", "eval_accuracy")):
            found.append(Quantity(name, title, "accuracy", better="more"))
    return sorted(found, key=lambda quantity: quantity.kind, reverse=True)
