"""The fields of a line of unknown form, and the numbers that they mean together."""

from dataclasses import dataclass, field

from ldlm_monitor.base.records import as_count
from ldlm_monitor.logs.parse.numbers import Numbers
from ldlm_monitor.logs.parse.vocabulary import (
    EPOCH_KEYS,
    EVALUATIONS,
    TRAINING,
    measure,
    measured_loss,
    plain,
)

_MAX_OTHER_WORDS = 2
"""Words beside the fields, a choice: `saved checkpoint, step 5 loss 2` has two, sentences more."""
_FIELDS_A_WORD = 4
"""Fields that allow one word more: a sentence has few numbers, a line of 8 fields is none."""
_STEP_ORDER = ("global", "num_updates", "step", "iter", "it", "update", "batch", "")
"""Parts of names of counters, the preferred step first: a batch is counted anew in each epoch."""
_IN_EVALUATION = {"loss": "eval_loss", "accuracy": "eval_accuracy", "ppl": "eval_ppl"}
COSTS = frozenset(("cost", "train_cost", "training_cost", "avg_cost", "average_cost", "mean_cost"))
"""Losses that may be times, too: a unit says so."""

# Words and units that lines of metrics have beside their keys; they do not make a sentence.
EVALUATION_WORDS = frozenset(
    b"val valid validation validate validating validated test testing tested dev".split()
    + b"eval evaluation evaluating evaluated".split()
)
TRAINING_WORDS = frozenset(b"train training trained".split())
COMMON_WORDS = EVALUATION_WORDS.union(
    TRAINING_WORDS,
    b"rank gpu node device eta elapsed remaining epoch step iter iteration batch batches".split(),
    b"at of with for and per avg mean min max total used time na nan inf info".split(),
    b"days day hours minutes seconds sec ms tok it gib gb mb".split(),
)


@dataclass(slots=True)
class Fields:
    """The fields of one line, in order.

    `values`: the number by key and by whether a word before the key names an evaluation.
    `counts`: steps and epochs by name, `totals`: of how many, where the line says it. `bare`:
    counters without a name, each with its total or 0. `lead`: a whole number at the beginning
    that may count. `evaluation`: a word names an evaluation. `others`: the number of words beside
    the fields.
    """

    values: dict[tuple[str, bool], float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    bare: list[tuple[int, float]] = field(default_factory=list)
    lead: int | None = None
    evaluation: bool = False
    others: int = 0

    @property
    def sentence(self) -> bool:
        """Whether there are too many words beside the fields."""
        return self.others > _MAX_OTHER_WORDS + len(self.values) // _FIELDS_A_WORD

    def numbers(self, reset: frozenset[str] = frozenset()) -> Numbers:
        """The numbers by canonical name; counters in `reset` count a part of what others count."""
        found = Numbers()
        self.add_to(found, reset)
        return found

    def add_to(self, found: Numbers, reset: frozenset[str] = frozenset()) -> None:
        """Add the numbers to those that a line gave already, which stay."""
        bare = [] if self.evaluation else self.bare
        steps = [name for name in self.counts if name not in EPOCH_KEYS]
        if bare and reset.issuperset(steps):
            steps = []  # what no other counter resets counts
        named_epochs = [name for name in self.counts if name in EPOCH_KEYS]
        epochs = [self.counts[name] for name in named_epochs]
        # Beside an epoch, most counters count its steps: a total is the run's if it has one epoch.
        one_epoch = bool(named_epochs) and self.totals.get(named_epochs[0]) == 1
        if not steps and not epochs and len(bare) > 1:
            epochs = [float(bare[0][0])]
            _add_total(found, "total_epochs", *bare[0])
        if found.step is None and steps:
            named = min(steps, key=lambda name: (name in reset, _preference(name)))
            found.step = as_count(self.counts[named])
            if named in self.totals and (not named_epochs or one_epoch or "global" in named):
                found.values["total_steps"] = self.totals[named]
        elif found.step is None and bare:
            found.step = bare[-1][0]
            if not epochs or one_epoch:
                _add_total(found, "total_steps", *bare[-1])
        if found.epoch is None and epochs:
            found.epoch = epochs[0]
            if named_epochs and named_epochs[0] in self.totals:
                found.values["total_epochs"] = self.totals[named_epochs[0]]
        for (key, evaluated), value in self.values.items():
            found.add(self._named(key, evaluated=evaluated), value)

    def _evaluates(self) -> bool:
        names = (part for key, _ in self.values for part in plain(key).split("_"))
        return self.evaluation or any(part in EVALUATIONS for part in names)

    def _named(self, key: str, *, evaluated: bool) -> str:
        """The name of a value: beside `loss`, another name of a loss is a part of it."""
        name = measure(key).name
        evaluated = evaluated and not (_says_training(key) and name == "loss")
        measured = "loss" if plain(key) in COSTS and not evaluated else measured_loss(key)
        if (self.counts or self.bare or self.lead is not None) and measured is not None:
            if any("loss" in plain(other) and not measured_loss(other) for other, _ in self.values):
                return key
            if measured == "loss" and plain(key) not in COSTS and not _says_training(key):
                measured = "" if self._evaluates() else measured
            return "eval_loss" if evaluated and measured else measured or key
        if evaluated:
            return _IN_EVALUATION.get(name, key)
        part = plain(key).removesuffix("_loss")
        if name == "loss" and part not in ("loss", "train") and ("loss", False) in self.values:
            return f"loss_{part}"
        return key


def _says_training(key: str) -> bool:
    return not TRAINING.isdisjoint(plain(key).split("_"))


def _add_total(found: Numbers, name: str, count: int, total: float) -> None:
    if 0 < total >= count:
        found.values[name] = total


def _preference(name: str) -> int:
    return next(at for at, part in enumerate(_STEP_ORDER) if part in name)
