"""The evidence of one incident: folded events, ranks, collectives and deaths.

Its size grows with kinds and ranks, not with lines, and it does not depend on the order of
files.
"""

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from string import digits
from typing import Final

from ldlm_monitor.base.incident_view import ClaimView
from ldlm_monitor.base.meaning import NOTHING, How, Meaning, Word
from ldlm_monitor.base.records import Event
from ldlm_monitor.judge.incidents.clues import (
    MAX_MESSAGE,
    SERIOUS,
    Clue,
    Tier,
    clue_of,
    is_own_failure,
    rank_in,
    tier_of,
    whole,
)
from ldlm_monitor.judge.incidents.roster import Death, Roster, death_of
from ldlm_monitor.logs.parse.meanings import meaning_of_kind

# Bounds of memory against a flood of lines. Each is a choice: more costs memory, less loses lines.
MAX_FOLDS: Final = 256  # different messages of an incident: real failures have fewer
KEPT_CLUES: Final = 8  # earliest events kept of a message: the first is mostly enough
_KEPT_WAITS: Final = 4  # earliest waits kept of a rank: the first one decides
_KEPT_KINDS: Final = 8  # kinds kept of the events that report one rank's waits: few kinds exist
_MAX_DEATHS: Final = 4096  # deaths, and claims: 512 nodes of 8 ranks that all die
_MAX_PAIRS: Final = 65536  # (rank, collective), and (file, pid): the largest jobs have fewer
_TEXT: Final = 160
"""Leading characters by which messages are compared. A choice: more split alike messages by their
addresses and stacks, fewer join different ones."""
TABLE: Final = "elastic_failure_table"  # kind of torchelastic's table of all failed workers
WORKER_FAILED: Final = "elastic_worker_failed"  # one line for each worker that failed
_ASKED: Final = (-15, -2)  # exit codes by SIGTERM and SIGINT
_NO_DIGITS: Final = str.maketrans("", "", digits)  # drops them: steps and pids of messages differ
# Roles of a line that a rank itself prints about its failure.
_OWN_ROLES: Final = frozenset({"root", "evidence", "victim"})

EXCEPTION: Final = "python_exception"  # kind of a traceback without one of its own
NONFINITE: Final = "nonfinite_metric"  # kind of NaN and infinite values
STACKS: Final = "stack_dump"  # kind of what a rank does, which is no fault
STALL: Final = "hang_no_progress"  # kind of a run that takes no step
FoldKey = tuple[str, ...]  # kind, role, process group, sequence number, message; or the first two


@dataclass(slots=True)
class Fold:
    """Events whose messages differ by digits only: their count, ranks, and the earliest few."""

    kind: str
    role: str
    tier: Tier | None
    meaning: Meaning
    count: int = 0
    ranks: set[int] = field(default_factory=set)
    clues: list[Clue] = field(default_factory=list)

    def add(self, clue: Clue, rank: int | None) -> None:
        """Count an event, and keep it if it is one of the earliest."""
        self.count += 1
        if rank is not None:
            self.ranks.add(rank)
        if len(self.clues) < KEPT_CLUES or clue.order < self.clues[-1].order:
            insort(self.clues, clue, key=lambda each: each.order)
            del self.clues[KEPT_CLUES:]

    @property
    def first(self) -> Clue:
        """The earliest event."""
        return self.clues[0]


@dataclass(frozen=True, slots=True)
class Wait:
    """One rank's report that the collective it enqueued at `began` (Unix seconds) did not end."""

    began: float
    seq: int
    op: str
    size: str
    pg_rank: int | None
    timeout_ms: int | None


class Evidence:
    """The evidence of one incident.

    `forced`: file and pid of processes that had to be killed. `groups`: id and name of the
    process group, by rank and sequence number. `records`: the number of events. `claims`: the rank
    that each node's torchelastic calls the root cause, not compared with the evidence yet. `deed`:
    the first by which `ldlm-monitor run` ended the run. What follows it is no cause, unless a
    person asked for it and a process then failed by itself. `obeyed`: a status or a line of the
    command shows the deed's signal. `fails_anyway`: a process failed by itself after the deed.
    `assumes_default_group`: ranks within a group were taken for global ones.
    """

    def __init__(self) -> None:
        self.folds: dict[FoldKey, Fold] = {}
        self.roster = Roster()
        self.deaths: list[Death] = []
        self.claims: list[ClaimView] = []
        self.forced: set[tuple[str, int]] = set()
        self.waits: dict[int, list[Wait]] = {}
        self.groups: dict[tuple[int, int], tuple[str, str]] = {}
        self.records = 0
        self.assumes_default_group = False
        self.deed: Clue | None = None
        self.obeyed = self.fails_anyway = False

    def take(self, event: Event, seen: float) -> bool:
        """Add an event that was processed at `seen`; False if it only follows our own deed."""
        clue = clue_of(event, seen)
        if (rank := rank_in(event.rank)) is not None:
            self.roster.note_line(rank, event.position.path)
        self.add(clue)
        if event.kind == TABLE and not self._follows(clue):
            self._read_table(event, clue)
        return not self._follows(clue)

    def add(self, clue: Clue) -> None:
        """Add a clue, also one of an event from before the incident."""
        self.records += 1
        if self._follows(clue):
            status = death_of(clue).exitcode if clue.kind == WORKER_FAILED else None
            self.obeyed |= tier_of(clue) is Tier.EXTERNAL or status in _ASKED
            self._fold(replace(clue, role="context", meaning=NOTHING)).add(clue, clue.rank)
            return
        if "deed" in clue.meaning.words:
            self.deed = clue
        else:
            self.fails_anyway |= self.deed is not None and clue.order > self.deed.order
        rank = self._rank_of(clue)
        self._fold(clue).add(clue, rank)
        if rank is not None:
            self._note_rank(rank, clue)
        if clue.kind == WORKER_FAILED and len(self.deaths) < _MAX_DEATHS:
            self.deaths.append(death_of(clue))
        self._note_zombies(clue)
        is_new = len(self.forced) < _MAX_PAIRS
        if "forced" in clue.meaning.words and clue.pid is not None and is_new:
            self.forced.add((clue.position.path, clue.pid))

    def _follows(self, clue: Clue) -> bool:
        if self.deed is None or clue.order <= self.deed.order:
            return False
        return tier_of(self.deed) is not Tier.EXTERNAL or not is_own_failure(clue)

    def _note_zombies(self, clue: Clue) -> None:
        """Add processes whose end a look at their host found, as deaths without a launcher."""
        looks = clue.fields.get("processes")
        for look in looks if isinstance(looks, list) else ():
            status = whole(look.get("status")) if isinstance(look, dict) else None
            if not isinstance(look, dict) or not status or len(self.deaths) >= _MAX_DEATHS:
                continue
            code = -(status & 0x7F) or status >> 8  # a wait status, see wait(2)
            own = replace(
                clue,
                kind=WORKER_FAILED,
                meaning=meaning_of_kind(WORKER_FAILED, "death"),
                rank=rank_in(look.get("rank")),
                pid=whole(look.get("pid")),
            )
            self.deaths.append(Death(own, code, None))

    def of_tier(self, tier: Tier) -> Iterator[Fold]:
        """The folds whose clues can be a cause of that tier."""
        return (fold for fold in self.folds.values() if fold.tier is tier)

    def that_are(self, word: Word) -> Iterator[Fold]:
        """The folds of kinds that a word of `Meaning` describes."""
        return (fold for fold in self.folds.values() if word in fold.meaning.words)

    def accusing(self, how: How) -> Iterator[Fold]:
        """The folds of kinds that accuse ranks in this way."""
        folds = self.folds.values()
        return (fold for fold in folds if (own := fold.meaning.accuses) and own.how == how)

    def of_kind(self, kind: str) -> Iterator[Fold]:
        """The folds of one kind."""
        return (fold for fold in self.folds.values() if fold.kind == kind)

    @property
    def first_timeout(self) -> float | None:
        """Unix seconds of the first timeout, after which no cause begins; None without timeouts."""
        seen = [fold.first.seen for fold in self.that_are("timeout")]
        return min(seen, default=None)

    @property
    def is_silent(self) -> bool:
        """Whether no line reports a failure: the run stands, or we ended it for that."""
        return all(
            fold.kind == STALL
            or fold.role == "context"
            or fold.first.severity == "info"
            or "deed" in fold.meaning.words
            for fold in self.folds.values()
        )

    @property
    def began(self) -> float | None:
        """When (Unix seconds) the earliest of the events began; None without events."""
        return min((fold.first.effective for fold in self.folds.values()), default=None)

    def is_ordered(self, *, timed: bool) -> bool:
        """Whether the order of the events is known: by times, or by their place in one file."""
        clues = (clue for fold in self.folds.values() for clue in fold.clues)
        paths = {clue.position.path for clue in clues} - {""}
        return timed or len(paths) < 2

    def has_launchers_word(self) -> bool:
        """Whether a launcher or scheduler reports an exit code that is a process's own failure."""
        exits = any(death.exitcode not in (None, 0, -15, -2) for death in self.deaths)
        return exits or any(fold.role != "context" for fold in self.that_are("exit report"))

    def _fold(self, clue: Clue) -> Fold:
        fields = clue.fields
        text = clue.message[:_TEXT].translate(_NO_DIGITS)
        seq, group = str(fields.get("seq", "")), str(fields.get("pg_guid", ""))
        key: FoldKey = (clue.kind, clue.role, group, seq, text)
        if key not in self.folds and len(self.folds) >= MAX_FOLDS:
            key = (clue.kind, clue.role)
        fold = self.folds.get(key)
        if fold is None:
            fold = self.folds[key] = Fold(clue.kind, clue.role, tier_of(clue), clue.meaning)
        return fold

    def _rank_of(self, clue: Clue) -> int | None:
        """The global rank. torch up to 2.2 logs none: then the rank in the group is used."""
        pg_rank = rank_in(clue.fields.get("pg_rank"))
        if clue.rank is None and pg_rank is not None and not clue.fields.get("pg_guid"):
            self.assumes_default_group = True
            return pg_rank
        return clue.rank

    def _note_rank(self, rank: int, clue: Clue) -> None:
        facts = self.roster.entry(rank)
        facts.node = facts.node or clue.node
        facts.host = facts.host or clue.host
        step = whole(clue.fields.get("step"))
        if clue.kind == NONFINITE and step is not None:
            steps, loss = facts.nonfinite_steps, str(clue.fields.get("quantity")).startswith("loss")
            steps[loss] = min(step, steps.get(loss, step))
        if clue.severity in SERIOUS and clue.role in _OWN_ROLES:
            facts.has_error = True
            stopped = tier_of(clue) is Tier.EXTERNAL
            if clue.role == "victim" and not stopped and len(facts.waited) < _KEPT_KINDS:
                facts.waited.add(clue.kind)
        if "timeout" in clue.meaning.words:
            facts.timed_out = True
            facts.waited.add(clue.kind)
            self._note_wait(rank, clue)
        elif "flight record" in clue.meaning.words:
            facts.dumped = facts.dumped or "timed out" not in clue.message
        own = clue.role == "root" and tier_of(clue) is Tier.LOCAL
        if own and (facts.failed is None or clue.order < facts.failed.order):
            facts.failed = clue

    def _note_wait(self, rank: int, clue: Clue) -> None:
        fields = clue.fields
        seq = fields.get("seq")
        if not isinstance(seq, int):
            return
        if "names group" in clue.meaning.words:
            if len(self.groups) >= _MAX_PAIRS:
                return
            group = str(fields.get("pg_guid") or fields.get("pg_id") or "")
            self.groups[rank, seq] = (group, str(fields.get("pg_desc") or ""))
            return
        timeout = fields.get("timeout_ms")
        sizes = (fields.get("numel_in"), fields.get("numel_out"), fields.get("shape"))
        wait = Wait(
            began=clue.effective,
            seq=seq,
            op=str(fields.get("op_type") or ""),
            size=",".join(str(size) for size in sizes if size is not None),
            pg_rank=rank_in(fields.get("pg_rank")),
            timeout_ms=timeout if isinstance(timeout, int) else None,
        )
        waits = self.waits.setdefault(rank, [])
        if all((known.seq, known.op) != (wait.seq, wait.op) for known in waits):
            insort(waits, wait, key=lambda each: (each.began, each.seq, each.op))
            del waits[_KEPT_WAITS:]

    def _read_table(self, event: Event, clue: Clue) -> None:
        rows = event.fields.get("failures")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and (rank := rank_in(row.get("rank"))) is not None:
                self._read_row(row, rank, clue)

    def _read_row(self, row: Mapping[str, object], rank: int, clue: Clue) -> None:
        pid, code, local = (whole(row.get(name)) for name in ("pid", "exitcode", "local_rank"))
        path, host = clue.position.path, str(row.get("host") or "") or None
        self.roster.enter(path, rank, local, pid)
        facts = self.roster.entry(rank)
        facts.exitcode = code
        facts.host = facts.host or host
        facts.node = facts.node or clue.node
        message = str(row.get("message") or "")
        if row.get("role") == "victim":
            facts.waited.add(str(row.get("kind")))
        elif row.get("role") == "root" or _is_exception(message):
            kind = str(row.get("kind") or EXCEPTION)
            own = replace(
                clue,
                kind=kind,
                meaning=meaning_of_kind(kind),
                role="root",
                severity="error",
                message=message[:MAX_MESSAGE],
                rank=rank,
                host=host,
                pid=pid,
                fields={"reported_by": TABLE},
            )
            if tier_of(own) is Tier.LOCAL:
                self._fold(own).add(own, rank)
                self._note_rank(rank, own)
        if row.get("root"):
            claim = ClaimView(
                rank=rank,
                exitcode=code,
                host=host or clue.node,
                agrees=None,
                reason="",
                position=clue.position,
            )
            if claim not in self.claims and len(self.claims) < _MAX_DEATHS:
                self.claims.append(claim)


def _is_exception(message: str) -> bool:
    """Whether the text is the last line of a traceback, as in an error file of torchelastic."""
    name = message.partition(":")[0].rpartition(".")[2]
    return name.isidentifier() and name.endswith(("Error", "Exception")) and name[:1].isupper()
