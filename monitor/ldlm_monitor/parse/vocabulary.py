"""Names and numbers: what trainers write, as the contract's section 2 calls it."""

from __future__ import annotations

import re
from functools import lru_cache

from ldlm_monitor.names import CANONICAL_PREFIXES, CANONICAL_VALUES

NUMBER = (
    r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|(?i:nan|inf(?:inity)?)(?:\.0?)?)"
)
"""A number as C and Python print it, with `nan.0` and `inf.` (Lightning's bar)."""

_NUMBER = re.compile(NUMBER)
_WRAPPED = re.compile(r"(?:tensor|np\.\w+|torch\.tensor)\((?P<inner>[^,()]*)(?:,[^()]*)?\)")

_NAMES = {
    "lr": "learning_rate",
    "train_lr": "learning_rate",
    "train_learning_rate": "learning_rate",
    "train_loss": "loss",
    "total_loss": "loss",
    "val_loss": "eval_loss",
    "valid_loss": "eval_loss",
    "eval_eval_loss": "eval_loss",
    "ema_loss": "ema_loss",
    "eval_loss": "eval_loss",
    "text_accuracy": "accuracy_text",
    "text_acc": "accuracy_text",
    "acc": "accuracy",
    "gnorm": "grad_norm",
    "train_grad_norm": "grad_norm",
    "global_grad_norm": "grad_norm",
    "samples_per_sec": "samples_per_second",
    "train_samples_per_sec": "samples_per_second",
    "tokens_per_sec": "tokens_per_second",
    "train_tokens_per_sec": "tokens_per_second",
}


def number(text: str) -> float | None:
    """The number that `text` spells, whole; None where it spells none.

    Reads every non-finite spelling of formats.md section 11 that is a number:
    any case, quotes, `nan.0`, `tensor(nan, device='cuda:0')`, `np.float64(nan)`.
    """
    if "_" in text or not text.isascii():
        return _unusual(text)
    try:
        return float(text)
    except ValueError:
        return _unusual(text)


def _unusual(text: str) -> float | None:
    stripped = text.strip().strip("'\"")
    wrapped = _WRAPPED.fullmatch(stripped)
    if wrapped:
        stripped = wrapped["inner"].strip()
    if not _NUMBER.fullmatch(stripped):
        return None
    if stripped[-1] in ".0" and "n" in stripped.lower():
        stripped = stripped.rstrip(".0")
    return float(stripped)


@lru_cache(maxsize=4096)
def canonical(key: str) -> str:
    """The canonical name of a metric's key; an unknown one is kept, lower-cased."""
    name = re.sub(r"[^a-z0-9_]", "_", key.lower())
    if name in _NAMES:
        return _NAMES[name]
    component = name.removesuffix("_loss")
    if component != name and component and not name.startswith(CANONICAL_PREFIXES):
        return f"loss_{component}"
    return name


@lru_cache(maxsize=4096)
def is_known(name: str) -> bool:
    """Whether a canonical name is one that the contract lists."""
    return name in CANONICAL_VALUES or name.startswith(CANONICAL_PREFIXES)
