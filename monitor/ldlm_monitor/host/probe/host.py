"""Inspects a training without progress on this host, read-only and within seconds.

Each process is read twice, to see whether it computes. The kernel's out-of-memory counters are
compared with those at the last progress. Flight recorders and NCCL's RAS are read, and ranks that
have heartbeats are asked for their stacks (`hang`).
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ldlm_monitor.base.records import Event, Heartbeat, Record, Scalar
from ldlm_monitor.base.snapshot import HostView
from ldlm_monitor.host.probe import (
    cgroup,
    collective_states,
    flight_recorder,
    hang,
    host_events,
    nccl_ras,
    process,
)
from ldlm_monitor.host.probe.gpu import GpuReader
from ldlm_monitor.host.probe.host_facts import HostFacts
from ldlm_monitor.host.probe.process import Family, Process, Scan
from ldlm_monitor.host.probe.run_processes import (
    ENDED,
    departed,
    family_of,
    fresh_pages,
    processes_event,
)
from ldlm_monitor.judge.run.verdict import ProbeCandidate

MIN_ASK_SECONDS = 0.5
"""Seconds that ranks get at least for their stacks: five pauses by which a dump's end is found."""
APART_SECONDS = 1.0
"""Seconds between the two reads of a process: a hundred of the ticks that count CPU time."""
_RAS_SECONDS = 3.0  # for one query of RAS: a choice, since a look has five for all its parts
MAX_KNOWN = 4096
"""Ended runs whose processes are kept, the newest ones: a choice; these many need some MB."""
_STATES = {
    "R": "running",
    "D": "disk sleep",
    **dict.fromkeys("SI", "sleeping"),
    **dict.fromkeys("Tt", "stopped"),
    **dict.fromkeys("ZX", "zombie"),
}
"""The kernel's letters (proc(5), /proc/PID/stat) to the words in an event."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """A run's processes, memory groups and environments, by rank, from before they ended.

    `openers`: see `Family`. `unseen_since`: Unix seconds from which no process of it was seen.
    """

    ranks: dict[int | None, Process] = field(default_factory=dict)
    memory: cgroup.MemoryGroups = field(default_factory=cgroup.MemoryGroups)
    environments: dict[int | None, dict[str, str]] = field(default_factory=dict)
    openers: frozenset[tuple[int, int]] = frozenset()
    unseen_since: float = math.inf

    def family(self, case: ProbeCandidate, seen: Scan) -> Family:
        """The run's processes in a look, with what earlier ones showed of who opened its logs."""
        found = family_of(case, seen, self.openers)
        self.openers = found.openers
        return found


@dataclass(kw_only=True)
class HostProbe:
    """Looks at the processes of several runs at once. Not safe for several threads.

    `proc`, `mount`: the folders in which the kernel shows processes and control groups. `ras`: the
    address of NCCL's RAS, unless the processes' environment has another. `wait` sleeps for seconds.
    `facts`: by run, what the last notes of active runs say of this host; replaced whole.
    """

    proc: Path = process.PROC
    mount: Path = cgroup.MOUNT
    ras: tuple[str, int] = nccl_ras.DEFAULT_ADDRESS
    wait: Callable[[float], None] = time.sleep
    gpus: GpuReader = field(default_factory=GpuReader)
    facts: Mapping[str, HostView] = field(default_factory=dict, init=False)
    _known: dict[str, _Known] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._facts = HostFacts(self.proc, self.gpus)

    def watch(
        self, cases: Sequence[ProbeCandidate], *, note: bool = True
    ) -> dict[str, list[Heartbeat]]:
        """The heartbeats of active runs by name; `note`: also store their processes for `look`."""
        if note:
            self._note_all(cases)
        return {case.run: hang.beats(case) for case in cases}

    def _note_all(self, cases: Sequence[ProbeCandidate]) -> None:
        seen = process.scan(self.proc)
        families = []
        for case in cases:
            # Dicts keep insertion order: active runs move to the end, so that the oldest go first.
            known = self._known[case.run] = self._known.pop(case.run, _Known())
            family = known.family(case, seen)
            families.append((case, family))
            if family.ranks:
                known.ranks, known.unseen_since = family.ranks, math.inf
            else:
                known.unseen_since = min(known.unseen_since, time.time())
            if case.last_progress_at > known.unseen_since:  # another process writes, unseen
                known.ranks = {
                    rank: each for rank, each in known.ranks.items() if self._now(each) is not None
                }
            self._note(known, goes_on=True)
        self.facts = self._facts.look(families, seen, time.time())
        while len(self._known) > MAX_KNOWN + len(cases):
            del self._known[next(iter(self._known))]

    def look(self, cases: Sequence[ProbeCandidate], seconds: float) -> dict[str, list[Record]]:
        """The records found for each run, by run name, within about `seconds`."""
        until = time.monotonic() + seconds
        seen = process.scan(self.proc)
        firsts = {case.run: self._first(case, seen) for case in cases}
        started = time.monotonic()
        events: dict[str, list[Record]] = {
            case.run: [*self._ask_ras(case, firsts[case.run], until)] for case in cases
        }
        self.wait(max(0.0, APART_SECONDS - (time.monotonic() - started)))
        apart = max(time.monotonic() - started, APART_SECONDS / 2)
        for case in cases:
            found = events[case.run]
            looks = self._second(case, seen, apart)
            died = [rank for rank, look in looks.items() if look["state"] in ENDED]
            # What the kernel killed comes before the processes that are gone of it.
            dead = processes_event(case, looks.values()) if looks else departed(case)
            is_over = case.ended_at is not None  # as its log says
            if not (looks or dead or is_over or fresh_pages(case)):
                dead = host_events.nobody_writes(case, seen)
            killed = self._known[case.run].memory.events(case, self.mount, died)
            found[:0] = killed if dead is None else [*killed, dead]
            environments = self._known[case.run].environments.values()
            found += collective_states.look(case, environments, until)
            left = max(until - time.monotonic(), MIN_ASK_SECONDS)
            found += hang.look(case, time.time(), left)
        return events

    def _now(self, known: Process) -> Process | None:
        """The process' present state; None if it ended, even if its pid is used again."""
        found = process.look(known.pid, self.proc)
        return found if found is not None and found.started == known.started else None

    def _first(self, case: ProbeCandidate, seen: Scan) -> Family:
        """The run's processes now; ranks that ended stay in `_Known.ranks`."""
        known = self._known.setdefault(case.run, _Known())
        family = known.family(case, seen)
        for rank, each in family.ranks.items():
            before = known.ranks.get(rank)
            if before is None or each.started > before.started:
                known.ranks[rank] = each
        self._note(known)
        return family

    def _note(self, known: _Known, *, goes_on: bool = False) -> None:
        """Note what is needed after a process' end; `goes_on`: see `MemoryGroups.note`."""
        for rank, each in known.ranks.items():
            now = self._now(each)
            if now is None or now.status is not None:
                continue
            names = (*flight_recorder.PREFIX_VARIABLES, nccl_ras.ADDRESS_VARIABLE, "HOME")
            variables = process.environment(each.pid, names, self.proc)
            if variables and (folder := process.link(self.proc / str(each.pid) / "cwd")):
                known.environments[rank] = {**variables, "PWD": folder}
            membership = process.read_text(self.proc / str(each.pid) / "cgroup")
            group = cgroup.group_of(membership, self.mount)
            if group is not None:
                known.memory.groups[rank] = group
        known.memory.note(self.mount, goes_on=goes_on)

    def _second(
        self, case: ProbeCandidate, seen: Scan, apart: float
    ) -> dict[int | None, dict[str, Scalar]]:
        looks: dict[int | None, dict[str, Scalar]] = {}
        for rank, each in self._known[case.run].ranks.items():
            now = self._now(each)
            look: dict[str, Scalar] = {"rank": rank, "pid": each.pid}
            look["state"] = "gone" if now is None else _STATES.get(now.state, now.state)
            if now is not None and now.status is not None:
                look["status"] = now.status
            elif now is not None:
                # The CPU time of processes that a rank started, such as its loaders, counts too.
                before = [seen.table[pid] for pid in process.descendants([each.pid], seen)]
                used = sum(one.ticks for one in before) / process.TICKS
                after = ((self._now(one) or one).ticks for one in before)
                moved = sum(after) / process.TICKS - used
                look["cores"] = round(moved / apart, 2)
                age = max(  # until the last progress; a second at least, against division by zero
                    case.last_progress_at - seen.booted_at - each.started / process.TICKS, 1.0
                )
                look["usual_cores"] = round((used + moved) / age, 4)  # may be far below one core
                if (place := process.waits_in(each.pid, self.proc)) is not None:
                    look["waits_in"] = place
            looks[rank] = look
        return looks

    def _ask_ras(self, case: ProbeCandidate, family: Family, until: float) -> Iterator[Event]:
        """Query the RAS of this run; on a shared host, not the RAS of other jobs."""
        addresses = {
            each.get(nccl_ras.ADDRESS_VARIABLE, "")
            for each in self._known[case.run].environments.values()
        } or {""}
        for address in {nccl_ras.address_of(text) if text else self.ras for text in addresses}:
            left = until - time.monotonic() - APART_SECONDS
            if address is None or left <= 0:
                continue
            if family.members and not process.listens(family.members, address[1], self.proc):
                continue
            try:
                yield nccl_ras.event_of(case, nccl_ras.ask(address, min(left, _RAS_SECONDS)))
            except nccl_ras.RasError as problem:
                log.debug("%s", problem)
