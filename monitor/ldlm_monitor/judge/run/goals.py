"""Whether a run has done all that it was to do: by its totals of steps and epochs, or its words."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ldlm_monitor.base.records import FieldValue, Position, Sample, SampleBlock

LAST_STRIDE = 0.05
"""Largest share of the total between two logged steps for which a run counts as complete with less
than that left. A choice: more takes runs that died late for complete, less misses sparse logs."""
EPILOGUE = 2
"""Most records of progress after the words of an end. A choice: a summary repeats the last values,
a run that goes on logs more."""
REFUTED = 2
"""Times that a run goes on after the same words until they count as an epoch's. A choice: one is a
second launch or stage."""
FIRST_AFTER = 5
"""Records of progress before which results are an epoch's or an interval's, where no epochs are
counted. A choice: fewer believe a first checkpoint, more miss short runs."""
_MAX_REFUTED = 256  # words kept. A choice: scripts have few, and paths in them are unbounded
EPOCHS_COMPARED = 3
"""Epochs before the last one whose records show how many an epoch has. A choice: the first may
have more, and some report a new best."""


@dataclass(slots=True)
class Plan:
    """How many epochs and steps the settings ask for that a log prints.

    Of one setting the last statement holds: an override comes after a default. Of several settings
    the greatest number, which ends nothing early.
    """

    _settings: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, fields: Mapping[str, FieldValue]) -> None:
        """Add a printed setting, whose name is the field `setting` ("": a sentence)."""
        name = "".join(filter(str.isalnum, str(fields.get("setting", "")))).casefold()
        for unit in ("epochs", "steps"):
            if isinstance(value := fields.get(unit), int | float):
                before = 0.0 if name else self._settings.get((unit, name), 0.0)
                self._settings[unit, name] = max(value, before)

    def _most(self, unit: str) -> float:
        return max(
            (value for (each, _), value in self._settings.items() if each == unit), default=0
        )

    @property
    def epochs(self) -> float:
        """Epochs that are planned; 0 if not known."""
        return self._most("epochs")

    @property
    def steps(self) -> float:
        """Steps that are planned; 0 if not known."""
        return self._most("steps")


class EpochGoal:
    """Whether the last epoch is complete: it has as many records as one of those before it.

    `is_last`: the present epoch is the last, or it is not known how many there are. Epochs count
    from the first one seen: from 0 to the total less one, otherwise up to the total. `planned`:
    the total where no record has one, until an epoch is beyond it.
    """

    def __init__(self, planned: float = 0.0) -> None:
        self.planned = planned
        self._counted = 0.0
        self._first: float | None = None
        self._epoch = -1.0
        self.records = 0
        self._before: deque[int] = deque(maxlen=EPOCHS_COMPARED)

    def observe(self, sample: Sample) -> bool:
        """Process a sample; True if its epoch falls back by two: another training, or a resume."""
        if sample.source == "bar":  # drawn as often as time passes
            return False
        epoch = sample.epoch
        if epoch is not None and epoch == self._epoch - 1:  # of a rank that is behind
            return False
        fell = epoch is not None and epoch < self._epoch
        if fell:
            self.__init__(self.planned)  # type: ignore[misc]
        self._counted = sample.values.get("total_epochs", self._counted)
        if epoch is not None and epoch.is_integer() and epoch != self._epoch:
            if self._first is None:
                self._first = epoch
            else:
                self._before.append(self.records)
            self._epoch, self.records = epoch, 0
        self.records += 1
        return fell

    def stays_at(self, epoch: float) -> bool:
        """Whether a row's epoch is the present one, or a part of it."""
        return epoch == self._epoch or (epoch > self._epoch and not epoch.is_integer())

    @property
    def _total(self) -> float:
        return self._counted or (self.planned if self._epoch <= self.planned else 0.0)

    @property
    def has_several(self) -> bool | None:
        """Whether `EPOCHS_COMPARED` epochs are over; None if none are counted."""
        return None if self._epoch < 0 else len(self._before) == EPOCHS_COMPARED

    @property
    def is_full(self) -> bool:
        """Whether the present epoch has as many records as one before it."""
        return bool(self._before) and self.records >= min(self._before)

    @property
    def is_short(self) -> bool:
        """Whether further epochs are to come: the total is known."""
        return self._epoch >= 0 and not self.is_last

    @property
    def is_last(self) -> bool:
        """Whether no further epoch is to come, as far as is known."""
        return not self._total or self._epoch >= self._total - (self._first == 0)

    @property
    def is_reached(self) -> bool:
        """Whether the last epoch is complete, or lacks one record of very many.

        Epochs that are no multiple of the logged steps differ by one.
        """
        if not (self._total and self._before and self.is_last):
            return False
        usual = min(self._before)
        slack = usual > 1 and self._total * usual * LAST_STRIDE >= 1
        return self.records >= usual - slack


class StepGoal:
    """Whether a run took all its steps, by the totals and the words of its own log.

    A count that begins again after its total, or words that are repeated, are of an epoch and do
    not count. Of a step's total, the last epoch must have begun, where the log counts epochs.
    """

    def __init__(self, plan: Plan | None = None) -> None:
        self._plan = plan = Plan() if plan is None else plan
        self.next_plan = Plan()
        self._epochs = EpochGoal(plan.epochs)
        self._words = ""
        self.words_at: Position | None = None
        self._begun = False
        self._records_since = self._records = 0
        self._trains, self._has_loss = True, False
        self._refuted: Counter[str] = Counter()
        self._results: dict[str, bool] = {}  # words since the last step: whether of a saved model
        self.parts_ahead = 0  # folds or experiments that follow the present one
        self._total = 0.0
        self._step = -1
        self._slack = 0
        self._begins_at_0 = self._repeats = self._measured = False

    def expect(self, fields: Mapping[str, FieldValue]) -> None:
        """Process printed settings: of this training before its first record, then of the next."""
        part, parts = fields.get("part"), fields.get("parts")
        if isinstance(part, int) and isinstance(parts, int):
            self.parts_ahead = max(parts - part, 0)
        elif self._begun:
            self.next_plan.add(fields)
        else:
            self._plan.add(fields)
            self._epochs.planned = self._plan.epochs

    def declare_results(self, message: str, at: Position | None = None) -> None:
        """Process a line of results, or of a saved model, which every epoch or interval may have.
        Those of a part that others follow end nothing.

        It counts where it is new after several epochs. Where no epochs are counted, a result and a
        saved model must be new together: one of them alone may be of the first interval.
        """
        if self.parts_ahead:
            return
        words = "".join(filter(str.isalpha, message))
        full = len(self._refuted) >= _MAX_REFUTED
        several = self._epochs.has_several
        early = self._records < FIRST_AFTER if several is None else not several
        if full or early or self._refuted[words]:
            self._refuted |= {} if full else Counter({words: REFUTED})
            return
        if not self._results:
            self._records_since = 0
        self._results[words] = "saved" in message.casefold()
        kinds = set(self._results.values())
        if False in kinds and (several or True in kinds):
            self.declare(message, weak=True, at=at)

    def deny_results(self) -> None:
        """Process that the log's writer lives though it is silent: results end nothing then."""
        if self._words in self._results:
            self._words = ""

    def declare(self, message: str, *, weak: bool, at: Position | None = None) -> None:
        """Process the line `at`, which reports the end in words; numbers do not distinguish them.

        `weak`: words that end other things, too, so that no total and no part may be ahead.
        """
        words = "".join(filter(str.isalpha, message))
        full = len(self._refuted) >= _MAX_REFUTED and words not in self._refuted
        total = self._total or (self._plan.steps if self._step <= self._plan.steps else 0.0)
        ahead = self._epochs.is_short or 0 <= self._step < total * (1 - LAST_STRIDE)
        ahead = ahead or self.parts_ahead > 0
        taken = self._refuted[words] < REFUTED and not (weak and ahead)
        if taken:
            self._words, self._records_since, self.words_at = words, 0, at
        if weak and not self._begun and not full:
            self._words = self._words if taken else ""
            self._refuted[words] += 1  # a log without progress shows by itself that it goes on

    def is_moved_by(self, sample: Sample) -> bool:
        """Whether a sample without a step is progress: it has numbers. A line that has no more than
        the epoch is progress where no line has more.
        """
        measures = not sample.values.keys() <= {"total_epochs"}
        self._measured = self._measured or measures
        return measures or (bool(sample.values) and not self._measured)

    @property
    def ends_epoch(self) -> bool:
        """Whether the present epoch has as many records as those before it."""
        return self._epochs.is_full

    def only_counts(self, block: SampleBlock) -> bool:
        """Whether rows only add to the records of the present epoch; a bar's add to none.

        After words of an end a row without a loss may refute nothing, see `went_on`.
        """
        return ("loss" in block.values or not (self._has_loss and self._words)) and (
            block.repaints
            or block.epochs is None
            or all(map(self._epochs.stays_at, {*block.epochs}))
        )

    def count(self, records: int) -> None:
        """Process rows of which `only_counts` is true, so many of them records of the epoch."""
        self._epochs.records += records
        self._trains = True

    def went_on(self, times: int = 1) -> None:
        """Process advances of the run: words before them did not mean the end of all.

        Where losses are logged, a count without one is of an evaluation.
        """
        self._records += times
        trains, self._trains = self._trains, True
        if not trains and self._words:
            return
        self._records_since += times
        if self._records_since > EPILOGUE:
            self._refuted.update(dict.fromkeys(self._results, REFUTED))
            self._results.clear()
        if self._words and (self._records_since > EPILOGUE or not self._begun):
            self._refuted[self._words] += 1
            self._words = ""
        self._begun, self.next_plan = True, Plan()

    def note(self, sample: Sample) -> bool:
        """Process any sample; True if another training begins with it, from its first epoch.

        Words before it were then a whole training's.
        """
        self._has_loss = self._has_loss or "loss" in sample.values
        self._trains = "loss" in sample.values or not self._has_loss
        fell = self._epochs.observe(sample)
        if fell:
            self._words = ""
            self._results.clear()
            if self.next_plan != Plan():
                self._plan, self._epochs.planned = self.next_plan, self.next_plan.epochs
        return fell and sample.epoch is not None and sample.epoch <= 1

    def observe(self, step: int, values: Mapping[str, float], stride: int) -> None:
        """Process the furthest step so far; `stride`: steps between the last two logged ones."""
        if step < self._step:
            self._repeats = self._repeats or self.is_reached
        self._begins_at_0 = self._begins_at_0 if self._step >= 0 else step == 0
        self._total = values.get("total_steps", self._total)
        self._step = step
        # A bar is drawn at its end, too; of lines, the last steps may have none.
        slack = stride - 1 + self._begins_at_0
        is_small = slack <= max(LAST_STRIDE * (self._total or self._plan.steps), 1)
        self._slack = slack if stride and is_small and "progress" not in values else 0

    @property
    def is_reached(self) -> bool:
        """Whether the last logged step is the last one of the run, or its words say so."""
        return bool(self._words) or self.counted is not None

    @property
    def has_words(self) -> bool:
        """Whether words of the log report the end, and nothing has refuted them."""
        return bool(self._words)

    @property
    def counted(self) -> Literal["total", "epochs"] | None:
        """What shows that the last logged step is the run's last one; None if nothing does."""
        total = self._total or (self._plan.steps if self._step <= self._plan.steps + 1 else 0.0)
        counted = 0 < total <= self._step + self._slack and not self._repeats
        # Where as many steps are to come as epochs are planned, the steps are the epochs.
        is_last = self._epochs.is_last or total == self._plan.epochs
        if counted and is_last:
            return "total"
        return "epochs" if self._epochs.is_reached else None
