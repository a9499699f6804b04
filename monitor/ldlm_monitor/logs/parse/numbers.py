"""The numbers of one line or table row, by canonical name."""

from dataclasses import dataclass, field

from ldlm_monitor.base.records import Sample, SampleSource, as_count
from ldlm_monitor.logs.parse.event_rules import RecordPlace
from ldlm_monitor.logs.parse.vocabulary import EPOCH_KEYS, STEP_KEYS, plain, put

MAX_VALUES = 512
"""Values kept of one line. A choice: a mixture of experts prints 300, more only take memory."""


@dataclass(slots=True)
class Numbers:
    """The numbers of one line; `time` in Unix seconds, `values` by canonical name."""

    step: int | None = None
    epoch: float | None = None
    rank: int | None = None
    time: float | None = None
    values: dict[str, float] = field(default_factory=dict)

    def add(self, key: str, value: float) -> None:
        """Add a number under a trainer's key, as step, epoch, rank or canonical value."""
        spelled = plain(key)
        if spelled in STEP_KEYS and self.step is None and (step := as_count(value)) is not None:
            self.step = step
        elif spelled in EPOCH_KEYS and self.epoch is None:
            self.epoch = value
        elif spelled == "rank" and (rank := as_count(value)) is not None:
            self.rank = rank
        elif len(self.values) < MAX_VALUES:
            # A utilisation is at most 1: a greater one is in percent.
            put(self.values, key, value / 100 if spelled == "mfu" and value > 1 else value)

    def at(self, place: RecordPlace, source: SampleSource = "text") -> Sample:
        """The numbers as a sample at `place`."""
        known = place.known(self.rank, self.time)
        return known.sample(self.values, self.step, self.epoch, source)

    def has_all(self, needs: tuple[tuple[str, ...], ...]) -> bool:
        """Whether at least one name of each group was read (`SampleLine.needs`)."""
        names = set(self.values)
        if self.step is not None:
            names.add("step")
        if self.epoch is not None:
            names.add("epoch")
        return all(any(_is_among(name, names) for name in group) for group in needs)


def _is_among(name: str, names: set[str]) -> bool:
    if name.endswith("*"):
        return any(found.startswith(name[:-1]) for found in names)
    return name in names
