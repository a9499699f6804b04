"""The quantities that the chart goes through, in an order that people look for them."""

from collections.abc import Iterable

from ldlm_monitor.model.names import RATES

_FIRST = (
    *("loss", "grad_norm", "learning_rate"),
    *RATES,
    *("step_seconds", "memory_allocated_bytes"),
)


def is_loss(quantity: str) -> bool:
    """Whether the quantity is the loss or a component of it."""
    return quantity == "loss" or (quantity.startswith("loss_") and quantity != "loss_scale")


def metrics(known: Iterable[str]) -> list[str]:
    """The usual quantities first, the others by name; of the loss only the total."""
    found = (name for name in known if not is_loss(name) or name == "loss")
    return sorted(
        found, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)
    )
