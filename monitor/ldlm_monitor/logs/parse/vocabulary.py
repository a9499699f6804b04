"""The vocabulary: translates a trainer's key to a canonical name (`names.CANONICAL_VALUES`).

The known keys are data (`data/vocabulary.yml`); `measure` also covers keys that follow a pattern.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ldlm_monitor.base.names import CANONICAL_PREFIXES, CANONICAL_VALUES
from ldlm_monitor.base.text.yaml_loader import packaged_yaml
from ldlm_monitor.logs.parse.patterns import scaled
from ldlm_monitor.logs.parse.translation import english_key


@dataclass(frozen=True, slots=True)
class Measure:
    """A canonical name, and the factor that converts a trainer's number to the name's unit."""

    name: str
    factor: float = 1.0


_DATA = packaged_yaml(__package__, "data/vocabulary.yml")
_KNOWN = {  # the meaning of each packaged key, as `plain` spells it
    **{key: Measure(name) for name, keys in _DATA["aliases"].items() for key in keys},
    **{
        key: Measure(part["name"], part["factor"])
        for part in _DATA["scaled"]
        for key in part["keys"]
    },
}
STEP_KEYS = frozenset(_DATA["steps"])
"""The keys of optimizer steps, as `plain` spells them."""
EPOCH_KEYS = frozenset(_DATA["epochs"])
"""The keys of epochs, as `plain` spells them."""
_TRAINING_ONLY = frozenset(("loss", "eval_loss", "grad_norm", "accuracy", "step_seconds", "ppl"))
"""Canonical names that no settings file has, unlike `learning_rate`: a training reported them."""
_SETTING_ENDS = tuple(_DATA["setting_ends"])
_OPTIMIZER_LR = re.compile(r"lr_[a-z0-9]+_group0")  # Composer's `lr-DecoupledAdamW/group0`
MAX_KEY = 128
"""Characters kept of a key, a choice: metrics have shorter names; longer ones swell labels."""
_COUNTED = re.compile(r"(?P<name>[A-Za-z_ ]*?)[ _-]?(?P<at>\d{1,9})")
_QUALIFIERS = frozenset(_DATA["loss_qualifiers"])
TRAINING = frozenset(_DATA["loss_beginnings"]["training"])
"""The words that name the training, as `plain` spells them."""
EVALUATIONS = frozenset(_DATA["loss_evaluations"])
"""The words that name an evaluation, as `plain` spells them."""
LOSS_MEASURES = frozenset(_DATA["loss_measures"])
"""Losses by what they measure, as `plain` spells them."""
_TOGETHER = {  # `trloss`, `trl`: the canonical name of what is written in one word
    begin + end: name
    for name, begins in (
        ("loss", _DATA["loss_beginnings"]["training"]),
        ("eval_loss", _DATA["loss_beginnings"]["evaluation"]),
    )
    for begin in begins
    for end in ("loss", "losses", *("l" * (len(begin) > 1)))
    if begin + end not in EVALUATIONS
}
_OF_POLICY = frozenset(_DATA["policy"])
_NEUTRAL = _QUALIFIERS.union(_DATA["loss_neutral"])
_MAX_CACHED = 4096
"""Keys per cache, a choice: a trainer has some hundreds; keys of JSON are unbounded input."""


@lru_cache(maxsize=_MAX_CACHED)
def plain(key: str) -> str:
    """A key in English and lower case, with one `_` for all sequences of other characters."""
    return re.sub(r"[^a-z0-9]+", "_", english_key(key).lower()).strip("_")


@lru_cache(maxsize=_MAX_CACHED)
def measure(key: str) -> Measure:
    """The canonical name and factor of a key; an unknown key gets lower case and `_`, factor 1."""
    name = re.sub(r"[^a-z0-9_]", "_", english_key(key).lower())
    spelled = plain(key)
    known = _KNOWN.get(spelled) or _of_policy(key)
    if known is not None:
        return known
    if spelled in CANONICAL_VALUES:
        return Measure(spelled)
    if not name.startswith(CANONICAL_PREFIXES) and (loss := _qualified_loss(spelled)):
        return Measure(loss)
    if _OPTIMIZER_LR.fullmatch(spelled):
        return Measure("learning_rate")
    component = name.removesuffix("loss").rstrip("_") if name.endswith("loss") else ""
    if component and not name.startswith(CANONICAL_PREFIXES):
        return Measure(f"loss_{component.removeprefix('train_')}")
    return Measure(name)


def put(values: dict[str, float], key: str, value: float) -> None:
    """Add a number under its canonical name and in its unit.

    If several keys of a line have the same canonical name, the key that is the name wins,
    otherwise the first.
    """
    meant = measure(key)
    if meant.factor != 1:
        value = scaled(value, meant.factor)
    if meant.name == key:
        values[key] = value
    else:
        values.setdefault(meant.name, value)


def is_count(key: str) -> bool:
    """Whether a trainer's key counts steps or epochs."""
    return plain(key) in STEP_KEYS or plain(key) in EPOCH_KEYS


def counted_key(key: str) -> tuple[str, int] | None:
    """Name and number of a key that counts: `epoch_3`, `Epoch 3`, `3` (a step); else None."""
    counted = _COUNTED.fullmatch(key[:MAX_KEY])
    name = (counted["name"].strip() or "step") if counted else ""
    return (name, int(counted["at"])) if counted and is_count(name) else None


@lru_cache(maxsize=_MAX_CACHED)
def is_metric(key: str) -> bool:
    """Whether a trainer's key has a canonical name, or is one."""
    spelled = plain(key)
    return (
        spelled in _KNOWN
        or spelled in CANONICAL_VALUES
        or _qualified_loss(spelled) is not None
        or measured_loss(spelled) is not None
    )


def _of_policy(key: str) -> Measure | None:
    """The quantity of a policy that a path ends with: `actor/entropy`, `critic/rewards/mean`.

    That of an evaluation or of a loss is another one.
    """
    parts = [plain(part) for part in key.split("/")]
    if len(parts) > 1 and parts[-1] in _QUALIFIERS:
        parts.pop()
    known = _KNOWN.get(parts[-1])
    others = EVALUATIONS | {"loss"}
    is_one = known is not None and known.name in _OF_POLICY and others.isdisjoint(parts)
    return known if is_one else None


def _qualified_loss(spelled: str) -> str | None:
    """The name of a loss with qualifiers, `mean_batch_loss` or `test_avg_loss`; None for others."""
    words = set(spelled.split("_")) - _QUALIFIERS
    if len(words) == 1 and (together := _TOGETHER.get(*words)):
        return together
    if "loss" not in words or words - EVALUATIONS != {"loss"}:
        return None
    return "loss" if len(words) == 1 else "eval_loss"


@lru_cache(maxsize=_MAX_CACHED)
def measured_loss(key: str) -> str | None:
    """`loss` or `eval_loss` for a key that names what a loss measures, `valid_nll`; else None."""
    words = [each for each in plain(key).split("_") if not each.isdigit() and each != "s"]
    rest = "_".join(each for each in words if each not in _QUALIFIERS and each not in EVALUATIONS)
    if rest not in LOSS_MEASURES:
        return None
    return "loss" if EVALUATIONS.isdisjoint(words) else "eval_loss"


def measured_losses(names: Iterable[str]) -> dict[str, str]:
    """Canonical names for those of a row that name what a loss measures, where none names a loss.

    The first of each kind counts: `train_mean_nll` is then the `loss`, `test_nll` the `eval_loss`.
    """
    names = [*names]
    if any(is_loss(name) or name == "eval_loss" for name in names):
        return {}
    found = ((loss, name) for name in names if (loss := measured_loss(name)) is not None)
    return {name: loss for loss, name in dict(reversed([*found])).items()}


def is_loss(name: str) -> bool:
    """Whether a canonical name is the loss of a training or a part of it."""
    return name == "loss" or (name.startswith("loss_") and name != "loss_scale")


def is_training(values: Mapping[str, float]) -> bool:
    """Whether canonical values include one that only a training reports."""
    return any(
        name in _TRAINING_ONLY
        or (name.startswith(("loss_", "eval_")) and not name.endswith(_SETTING_ENDS))
        for name in values
    )


def is_measured(values: Mapping[str, float], keys: Iterable[str]) -> bool:
    """Whether canonical values, or their keys, include one that settings do not have.

    Unlike `is_training`, for text that may be settings: `loss_alpha`, `eval_batches` are no proof.
    """
    return not _TRAINING_ONLY.isdisjoint(values) or any(
        plain(key[:MAX_KEY]).endswith("loss") for key in keys
    )


@lru_cache(maxsize=_MAX_CACHED)
def is_known(name: str) -> bool:
    """Whether a name is one of the public canonical names, with or without a component."""
    return name in CANONICAL_VALUES or name.startswith(CANONICAL_PREFIXES)


def known_part(key: str) -> tuple[str, str]:
    """The part of a key of several words that has a canonical name, and the words before it."""
    words = key.split(" ")
    last = len(words) - (2 if words[-1].startswith("(") and len(words) > 1 else 1)
    begin = next((at for at in range(last) if _is_known(" ".join(words[at:]))), last)
    # A word before `loss` names a component, `D loss` or `policy loss`; `rank0` does not.
    if begin and plain(words[begin]) == "loss":
        before = words[begin - 1]
        named = before.isalpha() and before not in _NEUTRAL
        begin -= named or before[0].isupper()
    known = _is_known(" ".join(words[begin:])) or begin < last
    return " ".join(words[begin:]) if known else key, " ".join(words[:begin])


def _is_known(key: str) -> bool:
    return is_count(key) or is_metric(key)
