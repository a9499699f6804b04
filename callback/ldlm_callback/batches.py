"""Which rows of a batch were at hand when the loss spiked: when it did, and how they are called."""

from collections import deque
from itertools import islice
from typing import Any

_RECENT = 100  # losses that one is compared with. A choice: more take longer, fewer are noisier
_LEAST = 20  # losses before the first comparison: at the start they fall fast
_FURTHER = 2.0
"""How much further above the median than any before: as the alert LossSpike (rules/default.yml)."""
_RISE = 0.2  # of the median, at least: where losses are nearly constant, any is the highest
_KEPT = 64  # names in an event. A choice: rows of larger batches are counted, not named
_NAME = 64  # characters of a name: text of any length. A choice: digests of SHA-256 stay whole
_SHOWN = 200  # characters of names in a message. A choice: more fill screens


class Spikes:
    """Finds losses that stand out of this rank's last ones; the monitor's alert judges on its own.

    A step's batch is at hand for half a second only, so it cannot wait for the monitor.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def observe(self, loss: Any) -> bool:
        """Whether the loss is a spike; one that is no finite number is not."""
        if not isinstance(loss, float) or loss - loss != 0.0:
            return False
        recent, stands_out = self._recent, False
        if len(recent) >= _LEAST and loss > (top := max(recent)):
            middle = sorted(recent)[len(recent) // 2]
            stands_out = loss - middle > max(_FURTHER * (top - middle), _RISE * abs(middle))
        recent.append(loss)
        return stands_out


def said(ids: Any) -> tuple[list[str], str]:
    """The first names of a batch's rows, and how a message says all; none if they are unreadable.

    Names are whole numbers and texts, in a sequence, an array or a tensor in host memory: to read
    one on a device would wait for it. Other objects are called by their type.
    """
    try:
        if hasattr(ids, "reshape"):
            if not getattr(ids, "is_cpu", True):
                return [], ""
            ids = ids.reshape(-1)
        elif isinstance(ids, str | int):
            ids = [ids]
        count, first = len(ids), ids[:_KEPT] if hasattr(ids, "tolist") else islice(ids, _KEPT)
        names = [_name(each) for each in (first.tolist() if hasattr(first, "tolist") else first)]
    except Exception:  # noqa: BLE001 an object of the training's own: its row is still written
        return [], ""
    text = ", ".join(names)
    if len(text) > _SHOWN:
        text = text[: text.rfind(", ", 0, _SHOWN + 1)] + ", ..."
    return names, f"{count} rows: {text}" if count > 1 else f"row {text}"


def _name(value: Any) -> str:
    if isinstance(value, str | int) and not (isinstance(value, int) and abs(value) >= 2**63):
        return str(value)[:_NAME]
    return f"<{type(value).__name__}>"
