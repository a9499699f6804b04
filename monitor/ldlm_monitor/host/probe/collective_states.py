"""Finds the ranks that hold up a collective, from the ranks' flight recorders.

All ranks of a process group number its collectives alike. If the group hangs, most ranks wait in
the same collective; a rank that has not enqueued it holds the others up. The majority decides,
rather than the first rank as in torch's own analysis. Ranks without a dump are listed, never
skipped, because the missing dump is most often that of the rank at fault.
"""

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from ldlm_monitor.base.records import Event
from ldlm_monitor.base.text.format import names_of
from ldlm_monitor.host.probe import flight_recorder, heartbeat, host_events, stacks
from ldlm_monitor.host.probe.flight_recorder import CollectiveEntry, Dump
from ldlm_monitor.judge.run.verdict import ProbeCandidate

T = TypeVar("T")

_ALIKE = frozenset(
    {
        *("all_reduce", "allreduce_coalesced", "all_reduce_barrier", "barrier", "broadcast"),
        *("_all_gather_base", "_allgather_base", "all_gather_into_tensor_coalesced", "reduce"),
        *("_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "_broadcast_oop"),
    }
)
"""Operations, by the names that torch records, whose inputs have the same sizes on every rank."""
_DEFAULT = "default_pg"  # torch's description of the group of all ranks
_MAX_WORLD = 1_000_000  # ranks, more than any job has: a log may contain any number as world size
FILES_SKEW_SECONDS = 60.0
"""Seconds by which dumps may be older than the last step: a choice. Fewer lose dumps of a server
whose clock is behind, more accept those of an earlier launch."""
_MAX_FINDINGS = 4  # hanging groups that are reported: a choice; a person reads one or two
_FETCH_SECONDS = 1.0  # for one rank's recorder: a choice, which leaves time for the other ranks

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """A collective that does not finish.

    `seq` is its number in `group`, `operation` its name, "" if unknown. Ranks in `missing` have not
    enqueued it, those in `waiting` have. `mismatched` are waiting ranks that called another
    operation than most, or with other sizes. `calls`: the different calls as text. `without_dump`:
    members of the group without a dump. `all_known`: whether its members are known. `frames`: rank
    to the line of its last call up to `seq`. `since`: Unix seconds of the first call, 0 if unknown.
    """

    group: str
    seq: int
    operation: str
    missing: tuple[int, ...]
    waiting: tuple[int, ...]
    mismatched: tuple[int, ...]
    calls: tuple[str, ...]
    without_dump: tuple[int, ...]
    all_known: bool
    frames: dict[int, str]
    since: float

    @property
    def names_somebody(self) -> bool:
        """Whether dumps accuse a rank; a rank without a dump alone is no accusation."""
        return bool(self.missing or self.mismatched)


def analyse(dumps: Sequence[Dump], world_size: int | None = None) -> list[Finding]:
    """The hanging collectives, those that accuse a rank first; `world_size`: the run's ranks."""
    groups = {name for dump in dumps for name in (*dump.status, *dump.descriptions)}
    found = (_ProcessGroup(name, dumps, world_size).finding() for name in sorted(groups))
    return sorted(filter(None, found), key=lambda each: (not each.names_somebody, each.since))


def look(
    case: ProbeCandidate, environments: Collection[Mapping[str, str]], until: float
) -> Iterator[Event]:
    """Events of the collectives that hang, by the flight recorders of a run's ranks.

    `environments`: those of the run's processes, `PWD` being the working directory. `until`: the
    time on the monotonic clock (seconds) at which reading ends.
    """
    folders = {Path(log).absolute().parent for log in case.files if log != "-"}
    homes = {each.get("PWD", "/") for each in environments} or {"/"}
    named = {Path(home, path) for home in homes for path in case.dumps}
    files = flight_recorder.find(
        folders, named, environments, since=case.last_progress_at - FILES_SKEW_SECONDS
    )
    dumps: list[Dump] = []
    unread: list[int] = []
    for rank, path in files.items():
        try:
            if time.monotonic() >= until:
                raise flight_recorder.DumpError(f"{path}: no time is left to read it")
            dumps.append(flight_recorder.read(path, rank))
        except flight_recorder.DumpError as problem:
            log.debug("%s", problem)
            unread.append(rank)
    dumps += _of_living(case, {dump.rank for dump in dumps}, until)
    for finding in analyse(dumps, case.world_size)[:_MAX_FINDINGS]:
        yield _event(case, finding, len(dumps), unread)


def _of_living(case: ProbeCandidate, dumped: Collection[int], until: float) -> Iterator[Dump]:
    """The recorders of living ranks that serve one on a socket and are not in `dumped`."""
    for page in heartbeat.pages(host_events.folders(case)):
        left = until - time.monotonic()
        if not page.recorder or page.rank in dumped or left <= 0:
            continue
        with suppress(msgspec.DecodeError, RecursionError):
            tree = msgspec.json.decode(stacks.fetch(page, min(left, _FETCH_SECONDS)) or b"")
            if (dump := flight_recorder.dump_of(tree, page.rank)) is not None:
                yield dump


class _ProcessGroup:
    def __init__(self, name: str, dumps: Sequence[Dump], world_size: int | None) -> None:
        self._name = name
        self._description = _most_common(each.descriptions.get(name) for each in dumps) or ""
        self._entries = {
            dump.rank: {entry.seq: entry for entry in dump.entries if entry.group == name}
            for dump in dumps
        }
        used = {d.rank for d in dumps if self._entries[d.rank] or name in d.status}
        members = _most_common(each.members.get(name) for each in dumps)
        if members is None and self._description == _DEFAULT and (world_size or 0) <= _MAX_WORLD:
            members = tuple({*self._entries, *range(world_size or 0)})
        self._all_known = members is not None
        self._members = used if members is None else {*members}
        self._enqueued: dict[int, int] = {}
        self._completed: dict[int, int] = {}
        for dump in dumps:
            if dump.rank in self._members:
                self._enqueued[dump.rank], self._completed[dump.rank] = self._reached(dump)

    def _reached(self, dump: Dump) -> tuple[int, int]:
        entries = self._entries[dump.rank]
        enqueued, completed = dump.status.get(self._name, (0, 0))
        enqueued = max(enqueued, *entries, 0)
        completed = max([completed, *(seq for seq, each in entries.items() if each.completed)])
        return enqueued, min(completed, enqueued)

    def finding(self) -> Finding | None:
        """The group's hanging collective; None if no rank waits in one."""
        at = Counter(
            self._completed[rank] + 1
            for rank, enqueued in self._enqueued.items()
            if enqueued > self._completed[rank]
        )
        if not at:
            return None
        # A rank may see a completion late, so the majority decides; in a tie, the later number.
        most = max(at.values())
        seq = max(number for number, votes in at.items() if votes == most)
        missing = sorted(rank for rank, enqueued in self._enqueued.items() if enqueued < seq)
        waiting = sorted({*self._enqueued} - {*missing})
        calls = {rank: self._entries[rank][seq] for rank in waiting if seq in self._entries[rank]}
        usual, odd = _odd_ones(calls)
        shown = usual or next(iter(calls.values()), None)
        return Finding(
            group=self._description or self._name,
            seq=seq,
            operation=shown.operation if shown else "",
            missing=tuple(missing),
            waiting=tuple(waiting),
            mismatched=tuple(odd),
            calls=tuple(sorted({f"{e.operation}({e.sizes} {e.dtypes})" for e in calls.values()})),
            without_dump=tuple(sorted(self._members - {*self._enqueued})),
            all_known=self._all_known,
            frames=self._frames([*missing, *odd, *waiting[:1]], seq),
            since=min((entry.created for entry in calls.values()), default=0.0),
        )

    def _frames(self, ranks: Iterable[int], seq: int) -> dict[int, str]:
        frames: dict[int, str] = {}
        for rank in ranks:
            last = max((number for number in self._entries[rank] if number <= seq), default=None)
            frame = None if last is None else self._entries[rank][last].frame
            if frame is not None:
                frames[rank] = frame
        return frames


def _odd_ones(calls: dict[int, CollectiveEntry]) -> tuple[CollectiveEntry | None, list[int]]:
    """The call of most ranks, and the ranks that called something else (none in a tie)."""
    votes = Counter(_signature(entry) for entry in calls.values())
    (first, count), *others = votes.most_common(2) or [(("", "", ""), 0)]
    usual = next((entry for entry in calls.values() if _signature(entry) == first), None)
    if not others or others[0][1] == count:
        return usual, []
    return usual, sorted(rank for rank, entry in calls.items() if _signature(entry) != first)


def _signature(entry: CollectiveEntry) -> tuple[str, str, str]:
    if entry.operation not in _ALIKE:
        return entry.operation, "", ""
    return entry.operation, entry.sizes, entry.dtypes


def _most_common(values: Iterable[T | None]) -> T | None:
    found = Counter(value for value in values if value)
    return found.most_common(1)[0][0] if found else None


def describe(finding: Finding) -> str:
    """The finding in one sentence for people."""
    what = f"collective {finding.seq} ({finding.operation or 'unknown'}) of {finding.group}"
    said = [f"{names_of(finding.waiting)} in {what}"]
    if finding.missing:
        said.append(f"{names_of(finding.missing)} did not join it")
    if finding.mismatched:
        said.append(f"{names_of(finding.mismatched)} made another call than most ranks")
    elif len(finding.calls) > 1:
        said.append("the ranks do not agree on the call: " + " or ".join(finding.calls[:3]))
    there = len(finding.missing) + len(finding.waiting)
    if len(finding.without_dump) > there:  # other nodes keep their ranks' dumps
        said.append(f"dumps of {there} of {there + len(finding.without_dump)} ranks are here")
    elif finding.without_dump:
        said.append(f"no dump of {names_of(finding.without_dump)}")
    alike = not finding.names_somebody and not finding.without_dump and len(finding.calls) < 2
    if alike and finding.all_known:
        said.append("every rank joined it, so the transfer itself hangs")
    for rank, frame in list(finding.frames.items())[:1]:
        said.append(f"rank {rank} was last in {frame}")
    return "; ".join(said)


def _event(case: ProbeCandidate, finding: Finding, dumps: int, unread: Collection[int]) -> Event:
    accused = finding.missing or finding.mismatched
    return host_events.event(
        case,
        "flight records",
        describe(finding),
        missing_ranks=host_events.listed(finding.missing),
        mismatched_ranks=host_events.listed(finding.mismatched),
        waiting_ranks=host_events.listed(finding.waiting),
        ranks_without_dump=host_events.listed({*finding.without_dump} - {*unread}),
        unread_ranks=host_events.listed(unread),
        collective=finding.operation,
        seq=finding.seq,
        process_group=finding.group,
        frame=next((finding.frames[rank] for rank in accused if rank in finding.frames), None),
        dumps=dumps,
    )
