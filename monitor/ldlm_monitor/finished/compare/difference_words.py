"""The quantities that are compared, the words for their differences, and the targets."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.names import RATES
from ldlm_monitor.finished.compare.intervals import Difference

Kind: TypeAlias = Literal["pace", "memory", "loss", "accuracy"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """What is compared, under `title`. `unit`: of its values, empty if none.

    `less`, `more`: words for a fall and a rise; `better`: which of the two is an improvement.
    `inverse`: the change of 1 / value is shown.
    """

    name: str
    title: str
    kind: Kind
    unit: str = ""
    less: str = "lower"
    more: str = "higher"
    better: Literal["less", "more"] = "less"
    inverse: bool = False


# The quantities in the order of the table: name, title, kind, unit, and words for less and more.
PACE = (
    Quantity("step_seconds", "step time", "pace", "s", "faster", "slower", inverse=True),
    Quantity("samples_per_second", "samples/s", "pace", "/s", "slower", "faster", "more"),
    Quantity("tokens_per_second", "tokens/s", "pace", "/s", "slower", "faster", "more"),
    Quantity("steps_per_second", "it/s", "pace", "/s", "slower", "faster", "more"),
    Quantity("gpu_utilization_ratio", "GPU busy", "pace", "", "less", "more", "more"),
)
MEMORY = (
    Quantity("memory_allocated_bytes", "GPU memory allocated", "memory", "B", "less", "more"),
    Quantity("memory_reserved_bytes", "GPU memory reserved", "memory", "B", "less", "more"),
    Quantity("gpu_memory_bytes", "GPU memory in use", "memory", "B", "less", "more"),
    Quantity("host_memory_bytes", "host memory (RSS)", "memory", "B", "less", "more"),
)
LOSS = Quantity("loss", "loss", "loss")
ACCURACY = Quantity("accuracy", "accuracy", "accuracy", better="more")
SPEED_BY = (*RATES[:2], "step_seconds", RATES[2])
"""Measures of speed, the best first: two runs may have steps of different size."""
MEMORY_BY = (
    *("memory_allocated_bytes", "gpu_memory_bytes", "memory_reserved_bytes", "host_memory_bytes"),
)
"""Measures of memory, the best first: from that of the tensors alone to the whole process's."""
ALWAYS = (*PACE[:4], MEMORY[0], LOSS, ACCURACY)
"""Quantities that are listed as missing if no run has them: a choice; people expect these."""


def learned(names: Iterable[str]) -> list[Quantity]:
    """What a model learned is compared by: losses and accuracies, each before its parts."""
    found = []
    for name in sorted(names, key=lambda name: (name not in ("loss", "accuracy"), name)):
        title = name.replace("_", " ")
        if name == "loss" or name.startswith(("loss_", "eval_loss")):
            found.append(Quantity(name, title, "loss"))
        elif name == "accuracy" or name.startswith(("accuracy_", "eval_accuracy")):
            found.append(Quantity(name, title, "accuracy", better="more"))
    return sorted(found, key=lambda quantity: quantity.kind, reverse=True)


Word: TypeAlias = Literal["better", "worse", "same", "unclear", "missing", "baseline"]
Reached: TypeAlias = Literal["reached", "missed", "open"]  # open: not known yet

MARGIN: dict[Kind, float] = {"pace": 0.01, "memory": 0.005, "loss": 0.0005, "accuracy": 0.0005}
"""Shares. A smaller change counts as none: the same training, run twice, differs by as much
(losses because sums are taken in another order, as by a fused optimizer)."""
UNCLEAR = 0.1
"""Share; an interval that contains 0 and has a longer side is unclear: a choice; 10 % matter."""
# Digits are bounded, as for `--at`: more are a mistake.
_TARGET = re.compile(r"([a-z_0-9]{1,80})=([+-]?\d{1,6}(?:\.\d{1,6})?)\s?%?")


@dataclass(frozen=True, slots=True)
class Target:
    """What a quantity should change by: at least `change`, a share (0.3: 30 % more; below 0: less).

    `quantity` may be `speed` or `memory`: the best measure of it that the runs have in common.
    """

    quantity: str
    change: float

    def stands_for(self, available: Sequence[str]) -> str:
        """The quantity that is meant: for `speed` and `memory`, the best one of `available`."""
        measures = {"speed": SPEED_BY, "memory": MEMORY_BY}.get(self.quantity, ())
        return next((name for name in measures if name in available), self.quantity)

    def judge(self, difference: Difference) -> Reached:
        """Reached if the whole interval is at or beyond the target, missed if none of it is."""
        if self.change < 0:
            sure, never = difference.high <= self.change, difference.low > self.change
        else:
            sure, never = difference.low >= self.change, difference.high < self.change
        return "reached" if sure else "missed" if never else "open"


USUAL = (Target("speed", 0.25), Target("memory", -0.30))
"""What MM-LDLM's optimizations were to gain, the reason for this command (docs/compare.md)."""


def targets_of(given: Sequence[str] | None) -> tuple[Target, ...]:
    """Parse texts as `speed=+30%`; `none` is no target. None: `USUAL`. Raises `UsageError`."""
    if given is None:
        return USUAL
    found = []
    for text in given:
        if text == "none":
            continue
        match = _TARGET.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f'cannot read "{text}"',
                where="--target",
                remedy="write QUANTITY=CHANGE, such as speed=+30% or memory=-35%, or none",
            )
        found.append(Target(match[1], float(match[2]) / 100))
    return tuple(found)


def verdict(quantity: Quantity, difference: Difference) -> tuple[Word, str]:
    """The verdict as a word and as a text. `difference` is of the quantity, not of its inverse."""
    shown = difference.inverted() if quantity.inverse else difference
    less = shown.change < 0
    interval = f"[{signed(shown.low)}, {signed(shown.high)}]"
    crosses = shown.low <= 0 <= shown.high
    if crosses and max(shown.high - shown.change, shown.change - shown.low) > UNCLEAR:
        return "unclear", f"unclear: {interval} %, more steps are needed"
    if crosses or abs(shown.change) < MARGIN[quantity.kind]:
        return "same", f"no difference found {interval} %"
    # Less of the inverse is more of the quantity itself.
    smaller = less != quantity.inverse
    said = quantity.less if smaller else quantity.more
    low, high = sorted((abs(shown.low), abs(shown.high)))
    text = f"{percent(abs(shown.change))} % {said} [{percent(low)}, {percent(high)}]"
    good = (quantity.better == "less") == smaller
    return "better" if good else "worse", text


def percent(share: float) -> str:
    """A share in percent: whole from 10 on (0.2345 as `23`), otherwise one decimal (`2.3`)."""
    value = 100 * share
    return f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}"  # 9.95 would round to 10.0


def signed(share: float) -> str:
    """A share in percent as by `percent`, with its sign; 0 has no sign."""
    text = percent(share)
    if text in ("0.0", "-0.0"):
        return "0.0"
    return text if text.startswith("-") else f"+{text}"
