"""Values that came regularly and come no longer, or no longer as numbers, while rows go on."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ldlm_monitor.base.names import METRIC_LAPSE, METRIC_SILENCE
from ldlm_monitor.base.points import Point
from ldlm_monitor.judge.run.file_rows import FileRows
from ldlm_monitor.judge.run.quantity import SourceLine, is_of_update, labels_of

WATCHED = ("loss", "grad_norm", "learning_rate")
"""Quantities that are missed. A choice: what a trainer logs of one phase alone (an auxiliary loss,
a warm-up's factor) ends with it, and nothing is wrong."""
KNOWN = 20
"""Records with a quantity after which its rhythm is known. A choice: more miss what stops early,
fewer take some values of a start for a rhythm."""
GAPS = 20
"""Times the longest gap so far that a silence lasts at least: a log can become sparser."""
MISSED = 100
"""Records that a silence lasts at least. A choice: a phase without a value is often shorter, and
the training of a night is longer."""
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

        Rows of an evaluation have none of the values beside it, those without any number have it
        as null or a word; where another loss has come into its place, the training has another
        phase.
        """
        values = rows.last.values
        names = values.keys() - POSITIONS
        if rows.key[0] != self.path or (values and names.isdisjoint(self.beside)):
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
        silence = self.silent if self.silent >= max(GAPS * self.longest, MISSED) else 0
        self.was_missed = self.was_missed or (self.count >= KNOWN and silence > 0)
        return silence if self.was_missed else None


@dataclass(slots=True)
class Lapse:
    """How a quantity that was a number stopped being one: NaN or infinite in each of its records.

    `numbers`: finite values. `longest`: most in a row that were none, before the present ones:
    `lasting`, the first of them `since`.
    """

    numbers: int
    longest: int = 0
    lasting: int = 0
    since: SourceLine | None = None

    def observe(self, line: SourceLine, finite: int) -> None:
        """Add so many finite values; 0: the one at `line`, which is none."""
        self.numbers += finite
        if finite:
            self.longest, self.lasting = max(self.longest, self.lasting), 0
            return
        self.since = self.since if self.lasting else line
        self.lasting += 1

    def records(self) -> int:
        """Records in a row without a number if earlier ones do not explain them, else 0."""
        explains = self.numbers < KNOWN or self.lasting < GAPS * max(self.longest, 1)
        return 0 if explains else self.lasting


class Rhythms:
    """The rhythms of a run's watched quantities, and the lapses of all others, by rank."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._by_rank: dict[int | None, dict[str, Rhythm]] = {}
        self.lapses: dict[tuple[int | None, str], Lapse] = {}

    def observe(self, rows: FileRows) -> None:
        """Add rows of a file and rank."""
        known = self._by_rank.setdefault(rows.last.rank, {})
        for name in WATCHED:
            if places := rows.places(name):
                known.setdefault(name, Rhythm()).observe(rows, places)
            elif name in known:
                known[name].miss(rows)

    def launch(self) -> None:
        """Let what is missed be so of an earlier launch; the rhythms stay known."""
        self.lapses.clear()
        for known in self._by_rank.values():
            for rhythm in known.values():
                rhythm.silent, rhythm.since, rhythm.was_missed = 0, None, False

    def note(
        self,
        quantity: str,
        rank: int | None,
        line: SourceLine,
        finite: int,
        recent: Iterable[float],
    ) -> None:
        """Note a quantity's newest values (see `Lapse.observe`), the last of its `recent` ones."""
        lapse = self.lapses.get((rank, quantity))
        if lapse is None and not finite and not is_of_update(quantity):
            lapse = self.lapses[rank, quantity] = Lapse(sum(map(math.isfinite, recent)))
        if lapse is not None:
            lapse.observe(line, finite)

    def points(self) -> Iterator[tuple[Point, SourceLine | None]]:
        """What is missed or no longer a number, each with the first line that shows it."""
        for (rank, name), lapse in self.lapses.items():
            labels = labels_of(self._run, rank, (("name", name),))
            yield Point(METRIC_LAPSE, labels, lapse.records()), lapse.since
        for rank, known in self._by_rank.items():
            for name, rhythm in known.items():
                if (silence := rhythm.missed()) is not None:
                    labels = labels_of(self._run, rank, (("name", name),))
                    yield Point(METRIC_SILENCE, labels, silence), rhythm.since
