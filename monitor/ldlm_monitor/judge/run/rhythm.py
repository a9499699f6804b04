"""Values that came regularly and come no longer, while the rows that had them go on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ldlm_monitor.base.names import METRIC_SILENCE
from ldlm_monitor.base.points import Point
from ldlm_monitor.judge.run.file_rows import FileRows
from ldlm_monitor.judge.run.quantity import SourceLine, labels_of

WATCHED = ("loss", "grad_norm", "learning_rate")
"""Quantities that are missed. A choice: what a trainer logs of one phase alone (an auxiliary loss,
a warm-up's factor) ends with it, and nothing is wrong."""
KNOWN = 20
"""Records with a quantity after which its rhythm is known. A choice: more miss what stops early,
fewer take some values of a start for a rhythm."""
GAPS = 20
"""Times the longest gap so far that a silence lasts at least: a log can become sparser."""
POSITIONS = frozenset(
    {"progress", "total_steps", "eval_progress", "skip_progress", "epoch_progress"}
)
"""Values that say where a run is: rows of training, evaluation and bars have them."""


@dataclass(slots=True)
class Rhythm:
    """How a rank's quantity comes in a file.

    `beside`: the values of the last record that had it. `count`: records that had it. `longest`:
    most records in a row without it, and `silent`: the present ones, the first of them `since`;
    counted are those that have a value of `beside`. `was_missed`: it was exported.
    """

    path: str = ""
    beside: Mapping[str, float] = field(default_factory=dict)
    count: int = 0
    longest: int = 0
    silent: int = 0
    since: SourceLine | None = None
    was_missed: bool = False

    def observe(self, rows: FileRows, places: Sequence[int]) -> None:
        """Add rows of which those at `places` have the quantity."""
        self.longest = max(self.longest, self.silent + places[0])
        if len(places) < len(rows):
            gaps = (later - earlier - 1 for earlier, later in pairwise(places))
            self.longest = max(self.longest, *gaps, 0)
        self.count += len(places)
        self.path, self.beside = rows.key[0], rows.sample(places[-1]).values
        self.silent, self.since = 0, None
        if places[-1] < len(rows) - 1:
            self.miss(rows, places[-1] + 1)

    def miss(self, rows: FileRows, first: int = 0) -> None:
        """Add rows without the quantity, from the place `first` on.

        Rows of an evaluation have none of the values beside it; where another loss has come into
        its place, the training has another phase.
        """
        names = rows.last.values.keys() - POSITIONS
        if rows.key[0] != self.path or names.isdisjoint(self.beside):
            return
        if any("loss" in name for name in names - self.beside.keys()):
            return
        if self.since is None:
            last = rows.sample(first)
            self.since = SourceLine(last.position, last.step)
        self.silent += len(rows) - first

    def missed(self) -> int | None:
        """Records in a row without it if its rhythm does not explain them, else 0; None if it was
        never missed."""
        silence = self.silent if self.silent >= GAPS * max(self.longest, 1) else 0
        self.was_missed = self.was_missed or (self.count >= KNOWN and silence > 0)
        return silence if self.was_missed else None


class Rhythms:
    """The rhythms of a run's watched quantities, by rank."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._by_rank: dict[int | None, dict[str, Rhythm]] = {}

    def observe(self, rows: FileRows) -> None:
        """Add rows of a file and rank."""
        known = self._by_rank.setdefault(rows.last.rank, {})
        for name in WATCHED:
            if places := rows.places(name):
                known.setdefault(name, Rhythm()).observe(rows, places)
            elif name in known:
                known[name].miss(rows)

    def points(self) -> Iterator[tuple[Point, SourceLine | None]]:
        """`ldlm_detect_metric_silence_records` of what was missed, with the first line without."""
        for rank, known in self._by_rank.items():
            for name, rhythm in known.items():
                if (silence := rhythm.missed()) is not None:
                    labels = labels_of(self._run, rank, (("name", name),))
                    yield Point(METRIC_SILENCE, labels, silence), rhythm.since
