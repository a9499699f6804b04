"""Causes reported from outside of a process: who stopped the job (tier 0), which machine failed
(tier 1), and with which exit codes processes ended (tier 2)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ldlm_monitor.base.incident_view import Confidence
from ldlm_monitor.base.text.format import compressed, names_of, signal_name
from ldlm_monitor.judge.incidents.clues import Clue, Tier, tier_of
from ldlm_monitor.judge.incidents.folded_evidence import NONFINITE, TABLE, WORKER_FAILED, Evidence
from ldlm_monitor.judge.incidents.roster import RootCause, RunFacts, by_sources, death_of
from ldlm_monitor.logs.parse.meanings import meaning_of_kind

BEFORE_SECONDS: Final = 300.0
"""A machine's fault at most this long before a hang can be its cause. A choice above 120 s, after
which Linux reports a blocked disk (`hung_task_timeout_secs`): more blames faults without effect."""
_SLACK_SECONDS: Final = 5.0
"""Lines this close may be of one moment. A choice: less splits buffered ones, more joins faults."""
_COLLATERAL: Final = (None, -15, -2)
"""Exit codes of no process's own failure: unknown, or by SIGTERM or SIGINT, which launchers send to
the processes that are left."""

_EXITS: Final = {"memory": -9, "segfault": -11}
"""A machine's fault -> the exit code that it causes: by SIGKILL, by SIGSEGV."""


def external(evidence: Evidence) -> RootCause | None:
    """The scheduler, person or eviction that ended the job before any failure; None if none did."""
    clues = [
        fold.first
        for fold in evidence.of_tier(Tier.EXTERNAL)
        if fold.first.meaning.ends != "crashed"  # the scheduler ends what failed before
    ]
    reasoned = [clue for clue in clues if clue.fields.get("reason")]
    clue = min(reasoned or clues, key=lambda each: each.order, default=None)
    if clue is None or (clue is evidence.deed and evidence.fails_anyway):
        return None
    if _failed_before(evidence, clue, given=bool(reasoned)):
        return None
    reason = clue.fields.get("reason")
    given = f"the scheduler gives the reason: {reason}"
    why = [given if reason else "its line came before any error of a rank"]
    sources = {_writer(clue)}
    for fold in evidence.folds.values():
        if _is_stopped(fold.first) and _writer(fold.first) not in sources:
            sources.add(_writer(fold.first))
            why.append(f"{_writer(fold.first)} reports that it was stopped")
    if clue is evidence.deed and evidence.obeyed:
        sources.add("the command")
        why.append("the command ended by its signal")
    sure = by_sources(sources, doubtful=False)
    return RootCause.of_clue(Tier.EXTERNAL, clue, sure, why, host=clue.host)


def _writer(clue: Clue) -> str:
    """Who printed the report of a stop: torchrun raises SignalException, a worker no such."""
    if clue.meaning.writer is not None:
        return f"the {clue.meaning.writer}"
    own = "exception" in clue.meaning.words and "SignalException" not in clue.message
    return "a worker" if own else "the launcher"


def _is_stopped(clue: Clue) -> bool:
    by_scheduler = "exit report" in clue.meaning.words and clue.meaning.ends == "killed"
    is_signal = "sigterm" in clue.meaning.words
    return by_scheduler or (not is_signal and tier_of(clue) is Tier.EXTERNAL)


def _failed_before(evidence: Evidence, clue: Clue, *, given: bool) -> bool:
    """Whether the job had failed before; then its launcher stops the rest, giving no reason."""
    # If a reason is given, errors just before the line do not count; otherwise even errors up to
    # 1 s after it do. A choice: clocks differ by less; more counts errors that the stop caused.
    until = clue.seen - _SLACK_SECONDS if given else clue.seen + 1.0
    own = [
        fold.first.seen
        for fold in evidence.folds.values()
        if (fold.tier in (Tier.HARDWARE, Tier.LOCAL) or "timeout" in fold.meaning.words)
        and fold.kind != NONFINITE
    ]
    if not given:
        own += [death.clue.seen for death in evidence.deaths if death.exitcode not in _COLLATERAL]
    return min(own, default=float("inf")) <= until


def hardware(evidence: Evidence, local: Clue | None) -> RootCause | None:
    """A fault of a machine's GPU, kernel or storage as the cause; None if none can be.

    `local` is the first error of a process itself, None if there is none. The fault must explain
    the error: a kernel log contains faults of other jobs, too.
    """
    waits = [fold.first.effective for fold in evidence.that_are("timeout")]
    since = min(waits, default=float("-inf")) - BEFORE_SECONDS
    clues = [clue for fold in evidence.of_tier(Tier.HARDWARE) for clue in fold.clues]
    clues = [clue for clue in clues if clue.seen >= since]
    if local is not None:
        own = {local.rank} - {None}
        clues = [
            clue for clue in clues if evidence.roster.by_pid(clue.pid) in own or shows(clue, local)
        ]
    clue = min(clues, key=lambda each: each.order, default=None)
    if clue is None:
        return None
    clue = next((each for each in _same_moment(clues, clue) if each.pid is not None), clue)
    why, ranks = _who(evidence, clue, local)
    code = _EXITS.get(clue.meaning.fault or "")
    died = [death for death in evidence.deaths if code is not None and death.exitcode == code]
    sources = {"the kernel"}
    if local is not None or any(evidence.roster.of_death(death) in ranks for death in died):
        sources.add("the process, or its launcher")
    shells = (death_of(fold.first).exitcode for fold in evidence.that_are("last words"))
    if code is not None and code in shells:
        sources.add("the shell")
    if ranks and evidence.roster.waiting and not ranks & evidence.roster.waiting:
        sources.add("its peers")  # they waited for it
    machine = clue.host or clue.node
    place = f" on {machine}" if machine else ""
    sure = by_sources(sources, doubtful=bool(evidence.roster.facts) and len(ranks) != 1)
    why = [f"the machine itself reported it{place}", *why]
    return RootCause.of_clue(Tier.HARDWARE, clue, sure, why, ranks, host=machine)


def _same_moment(clues: list[Clue], first: Clue) -> list[Clue]:
    """The lines that report the same fault as `first`, in order."""
    until = first.seen + _SLACK_SECONDS
    same = [clue for clue in clues if clue.kind == first.kind and clue.seen <= until]
    return sorted(same, key=lambda each: each.order)


def shows(fault: Clue, local: Clue) -> bool:
    """Whether a process's own error is one that a machine's fault causes."""
    kind = fault.meaning.fault
    if kind is None:
        return False
    code = _EXITS.get(kind)
    return (code is not None and local.fields.get("exitcode") == code) or (
        kind in local.meaning.shows
    )


def _who(evidence: Evidence, clue: Clue, local: Clue | None) -> tuple[list[str], set[int]]:
    rank = evidence.roster.by_pid(clue.pid)
    if rank is not None:
        return [f"process {clue.pid} is rank {rank} by the launcher's table"], {rank}
    if local is not None and local.rank is not None:
        # 120 characters, a choice: more make the list of reasons long, fewer cut most messages.
        return [f"rank {local.rank} shows it: {local.message[:120]}"], {local.rank}
    code = _EXITS.get(clue.meaning.fault or "")
    killed = {
        evidence.roster.of_death(death)
        for death in evidence.deaths
        if code is not None
        and death.exitcode == code
        and (None in (death.clue.host, clue.host) or death.clue.host == clue.host)
    }
    if len(killed) == 1 and (only := killed.pop()) is not None:
        return [f"rank {only} is the only one that died of signal {-(code or 0)}"], {only}
    ranks = evidence.roster.on_host(clue.host, clue.node)
    return ([f"ranks of that machine: {len(ranks)}"] if ranks else []), ranks


LATE_SECONDS: Final = 1.0
"""An error or a death this long after the first timeout is its consequence. A choice: more blames
aborts by watchdogs, which follow at once; less drops causes where clocks differ."""
_OWN_SIGNALS: Final = frozenset({-9, -11, -7, -4, -8})
"""No lost peer causes these: SIGKILL (launchers': `Evidence.forced`), SIGSEGV, BUS, ILL and FPE."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process that was ended neither by its launcher nor by a lost peer.

    `code` is negative for a signal, 1 if unknown. `silent`: it printed no error. `collected`: the
    launcher's file has lines of ranks, so that an error would have been read.
    """

    rank: int | None
    code: int
    clue: Clue
    silent: bool
    collected: bool

    @property
    def deadly(self) -> bool:
        """Whether the process died of a signal that another rank's failure does not cause."""
        return self.code in _OWN_SIGNALS


def own_exits(evidence: Evidence) -> list[Exit]:
    """Processes that died by themselves, one for each rank, the earliest first."""
    found: dict[int | None, Exit] = {}
    for death in sorted(evidence.deaths, key=lambda each: each.clue.order):
        rank = evidence.roster.of_death(death)
        if _is_own(evidence, rank, death.exitcode, death.clue.pid, death.clue):
            ended = death.exitcode if death.exitcode is not None else 1
            clue = replace(death.clue, rank=rank)
            found.setdefault(rank, _exit(evidence, rank, ended, clue))
    tables = [fold.first for fold in evidence.of_kind(TABLE)]
    for rank, facts in sorted(evidence.roster.facts.items()):
        code = facts.exitcode
        if not tables or rank in found or not _is_own(evidence, rank, code, facts.pid, tables[0]):
            continue
        clue = replace(
            tables[0],
            kind=WORKER_FAILED,
            meaning=meaning_of_kind(WORKER_FAILED, "death"),
            rank=rank,
            message=exit_text(code),
        )
        found[rank] = _exit(evidence, rank, code or 1, clue)
    return list(found.values())


def _exit(evidence: Evidence, rank: int | None, code: int, clue: Clue) -> Exit:
    silent = rank is not None and not evidence.roster.of(rank).has_error
    return Exit(rank, code, clue, silent, evidence.roster.has_rank_lines(clue.position.path))


def _is_own(
    evidence: Evidence, rank: int | None, code: int | None, pid: int | None, clue: Clue
) -> bool:
    """Whether a process ended by itself, and before the first timeout of a rank."""
    if code in (0, *_COLLATERAL) or (clue.position.path, pid) in evidence.forced:
        return False
    late = evidence.first_timeout
    if late is not None and clue.seen > late + LATE_SECONDS:
        return False
    return rank is None or not evidence.roster.of(rank).waited


def exit_text(code: int | None) -> str:
    """An exit code as text, such as `was killed by SIGSEGV`."""
    if code is None:
        return "ended"
    if code < 0:
        return f"was killed by {signal_name(-code) or f'signal {-code}'}"
    return f"left with exit code {code}"


def by_exit(evidence: Evidence, exits: list[Exit], run: RunFacts) -> RootCause | None:
    """The cause by exit codes alone, as a killed process prints nothing; None if undecided."""
    deadly = [each for each in exits if each.deadly]
    chosen = deadly or [each for each in exits if each.silent or each.rank is None]
    if not chosen:
        return None
    ranks = {each.rank for each in chosen if each.rank is not None}
    first = min(chosen, key=lambda each: (each.rank is None, *each.clue.order))
    if len(ranks) > 1 and 2 * len(ranks) >= evidence.roster.size(run):
        return everywhere(first.clue, ranks)
    if not deadly and (len(chosen) > 1 or first.rank is None):
        return None
    return _of_exit(evidence, first, rivals=ranks - {first.rank})


def _of_exit(evidence: Evidence, first: Exit, *, rivals: set[int]) -> RootCause:
    rank = first.rank
    whose = "a process" if rank is None else f"rank {rank}"
    why = [f"{whose} {exit_text(first.code)}" + (" and printed no error" if first.silent else "")]
    sources = {"the launcher"}
    others = evidence.roster.waiting - {rank}
    if others:
        why.append(f"{names_of(others)} only waited for, or lost, another rank")
        sources.add("its peers")
    if any(claim.rank == rank for claim in evidence.claims):
        why.append("torchelastic names this rank, too")
    if rivals:
        why.append(f"but {names_of(rivals)} died by itself as well")
    sure: Confidence = by_sources(sources, doubtful=bool(rivals) or rank is None)
    if not first.deadly and not (first.collected and others):
        sure = "weak"  # a launcher often blames the first process that lost its peer
        why.append("only the launcher reports it: the output of this process is not read")
    elif first.code == 1 and sure == "confirmed":
        sure = "probable"  # an exception would have left a traceback
    clue = replace(first.clue, fields={**first.clue.fields, "exitcode": first.code})
    message = f"process {exit_text(first.code).removeprefix('was ')}"
    return RootCause.of_clue(Tier.LOCAL, clue, sure, why, (rank,), message=message)


def everywhere(clue: Clue, ranks: set[int], *, by: Iterable[int] = (0,)) -> RootCause:
    """The failure that at least half of the ranks share as the cause, without naming one rank.

    `by`: the ranks whose own lines report it; by default one source does, such as the launcher.
    """
    same = f"the same on {len(ranks)} ranks ({compressed(ranks)})"
    why = f"{same}: a fault of program, data or configuration rather than of one rank"
    # Non-finite numbers spread from one rank to all by a single all-reduce.
    sure = by_sources(map(str, by), doubtful=False)
    if clue.kind == NONFINITE or clue.fields.get("reported_by"):
        sure = "probable"
    return RootCause.of_clue(Tier.LOCAL, clue, sure, (why,), ranks)
