"""Causes outside of the training: who stopped it (tier 0), and which machine broke (tier 1)."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Final

from ldlm_monitor.incidents.clues import TIMEOUTS, Clue, Tier
from ldlm_monitor.incidents.evidence import Evidence
from ldlm_monitor.incidents.facts import Standing, Verdict, by_sources, compressed
from ldlm_monitor.model.view import Confidence

BEFORE_SECONDS: Final = 300.0
"""A machine's fault so long before a hang began can be its cause."""
_SLACK_SECONDS: Final = 5.0
"""Lines of several processes about one moment lie apart by so much."""
_CONSEQUENCES: Final = ("TASK FAILURE", "non-zero exit code")
_COLLATERAL: Final = (None, -15, -2)

_GPU: Final = frozenset({"gpu_xid", "gpu_fallen_off_bus", "nvswitch_sxid"})
_MEMORY: Final = frozenset({"host_oom_kill", "slurm_oom_kill", "k8s_pod_killed"})
_STORAGE: Final = frozenset({"host_storage_error", "host_blocked_task", "elastic_unkillable"})
_SHOWS: Final = (
    (
        _GPU,
        frozenset(
            {"cuda_error", "cuda_lib_error", "nccl_cuda_failure", "cuda_device_assert"}
            | {"fatal_python_error"}
        ),
    ),
    (_MEMORY, frozenset({"dataloader_worker_killed", "cpu_oom"})),
    (frozenset({"host_segfault"}), frozenset({"fatal_python_error", "dataloader_worker_killed"})),
    (
        _STORAGE,
        frozenset(
            {"io_error", "dataloader_timeout", "no_space_left", "dataloader_worker_exception"}
        ),
    ),
)
"""What a machine's fault looks like from within the process."""
_EXITS: Final = ((_MEMORY, -9), (frozenset({"host_segfault"}), -11))


def external(evidence: Evidence) -> Verdict | None:
    """The scheduler, a person or an eviction ended the job before anything of it failed."""
    clues = [
        fold.first
        for fold in evidence.of_tier(Tier.EXTERNAL)
        if not str(fold.first.fields.get("reason", "")).startswith(_CONSEQUENCES)
    ]
    reasoned = [clue for clue in clues if clue.fields.get("reason")]
    clue = min(reasoned or clues, key=lambda each: each.order, default=None)
    if clue is None or _failed_before(evidence, clue, given=bool(reasoned)):
        return None
    reason = clue.fields.get("reason")
    return Verdict(
        tier=Tier.EXTERNAL,
        kind=clue.kind,
        message=clue.message,
        confidence="confirmed" if reason else "probable",
        why=(
            f"the scheduler gives the reason: {reason}"
            if reason
            else "it came before any error of a rank",
        ),
        clue=clue,
        host=clue.host,
    )


def _failed_before(evidence: Evidence, clue: Clue, *, given: bool) -> bool:
    """Whether the job had failed already; who cleans up after a failure gives no reason."""
    until = clue.seen - _SLACK_SECONDS if given else clue.seen + _SLACK_SECONDS / 5
    own = [
        fold.first.seen
        for fold in evidence.folds.values()
        if (fold.tier in (Tier.HARDWARE, Tier.LOCAL) or fold.kind in TIMEOUTS)
        and fold.kind != "nonfinite_metric"
    ]
    if not given:
        own += [death.clue.seen for death in evidence.deaths if death.exitcode not in _COLLATERAL]
    return min(own, default=float("inf")) <= until


def hardware(evidence: Evidence, local: Clue | None) -> Verdict | None:
    """A GPU, the kernel or storage of one machine; `local` is the best cause within a process.

    A process that tells of an error of its own, which the machine's fault does not look like,
    is the nearer cause: a kernel log is full of other people's trouble.
    """
    clues = [clue for fold in evidence.of_tier(Tier.HARDWARE) for clue in fold.clues]
    began = _hang_began(evidence)
    clues = [clue for clue in clues if clue.seen >= began - BEFORE_SECONDS]
    if local is not None:
        clues = [
            clue for clue in clues if _same_process(evidence, clue, local) or shows(clue, local)
        ]
    clue = min(clues, key=lambda each: each.order, default=None)
    if clue is None:
        return None
    clue = next((each for each in _same_moment(clues, clue) if each.pid is not None), clue)
    why, ranks = _who(evidence, clue, local)
    sources = {"kernel", *(reason for reason in why if ranks)}
    machine = clue.host or clue.node
    place = f" on {machine}" if machine else ""
    return Verdict(
        tier=Tier.HARDWARE,
        kind=clue.kind,
        message=clue.message,
        confidence=by_sources(sources, doubtful=bool(evidence.roster.facts) and len(ranks) != 1),
        why=(f"the machine itself reports it{place}", *why),
        ranks=frozenset(ranks),
        clue=clue,
        host=machine,
    )


def _same_moment(clues: list[Clue], first: Clue) -> list[Clue]:
    """The lines in which a machine reports one fault: the one with the process tells most."""
    until = first.seen + _SLACK_SECONDS
    same = [clue for clue in clues if clue.kind == first.kind and clue.seen <= until]
    return sorted(same, key=lambda each: each.order)


def shows(fault: Clue, local: Clue) -> bool:
    """Whether a process's own error is what a machine's fault looks like from within."""
    code = local.fields.get("exitcode")
    if any(fault.kind in kinds and code == signal for kinds, signal in _EXITS):
        return True
    return any(fault.kind in kinds and local.kind in seen for kinds, seen in _SHOWS)


def _same_process(evidence: Evidence, fault: Clue, local: Clue) -> bool:
    rank = evidence.roster.by_pid(fault.pid)
    return rank is not None and rank == local.rank


def _who(evidence: Evidence, clue: Clue, local: Clue | None) -> tuple[list[str], set[int]]:
    """The ranks that a machine's fault hit, and what tells so."""
    rank = evidence.roster.by_pid(clue.pid)
    if rank is not None:
        return [f"process {clue.pid} is rank {rank} by the launcher's table"], {rank}
    if local is not None and local.rank is not None:
        return [f"rank {local.rank} shows it: {local.message[:120]}"], {local.rank}
    signals = [signal for kinds, signal in _EXITS if clue.kind in kinds]
    killed = {
        evidence.roster.of_death(death)
        for death in evidence.deaths
        if death.exitcode in signals and _not_elsewhere(death.clue, clue)
    }
    if len(killed) == 1 and (only := killed.pop()) is not None:
        return [f"rank {only} is the only one that died of signal {-signals[0]}"], {only}
    ranks = evidence.roster.on_host(clue.host, clue.node)
    return ([f"ranks of that machine: {len(ranks)}"] if ranks else []), ranks


def _not_elsewhere(first: Clue, second: Clue) -> bool:
    return first.host is None or second.host is None or first.host == second.host


def _hang_began(evidence: Evidence) -> float:
    told = [fold.first.effective for fold in evidence.folds.values() if fold.kind in TIMEOUTS]
    return min(told, default=float("-inf"))


_LATE_SECONDS: Final = 1.0
_UNCATCHABLE: Final = frozenset({-9, -11, -7, -4, -8})
_CAUSED_EXITS: Final = frozenset({None, 0, -15, -2})


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended by itself: neither its launcher nor a lost peer ended it.

    `silent`: it printed no error. `heard`: had it printed one, it would stand in this file.
    """

    rank: int | None
    code: int
    clue: Clue
    silent: bool
    heard: bool

    @property
    def deadly(self) -> bool:
        """A signal that no program sends itself by mistake of another rank."""
        return self.code in _UNCATCHABLE


def own_exits(evidence: Evidence) -> list[Exit]:
    """Processes that died by themselves, one for each rank, the earliest first."""
    found: dict[int | None, Exit] = {}
    for death in sorted(evidence.deaths, key=lambda each: each.clue.order):
        rank = evidence.roster.of_death(death)
        if _is_own(evidence, rank, death.exitcode, death.pid, death.clue):
            ended = death.exitcode if death.exitcode is not None else 1
            clue = replace(death.clue, rank=rank)
            found.setdefault(rank, _exit(evidence, rank, ended, clue))
    tables = [fold.first for fold in evidence.of_kind("elastic_failure_table")]
    for rank, facts in sorted(evidence.roster.facts.items()):
        code = facts.exitcode
        if not tables or rank in found or not _is_own(evidence, rank, code, facts.pid, tables[0]):
            continue
        clue = replace(tables[0], kind="elastic_worker_failed", rank=rank, message=said(code))
        found[rank] = _exit(evidence, rank, code or 1, clue)
    return list(found.values())


def _exit(evidence: Evidence, rank: int | None, code: int, clue: Clue) -> Exit:
    silent = rank is not None and not evidence.roster.of(rank).told
    return Exit(rank, code, clue, silent, evidence.roster.hears(clue.position.path))


def _is_own(
    evidence: Evidence, rank: int | None, code: int | None, pid: int | None, clue: Clue
) -> bool:
    """Whether a process ended by itself, and before anyone had waited for too long."""
    if code in _CAUSED_EXITS or (clue.position.path, pid) in evidence.forced:
        return False
    late = evidence.first_timeout
    if late is not None and clue.seen > late + _LATE_SECONDS:
        return False
    return rank is None or not evidence.roster.of(rank).waited


def said(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "ended"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"left with exit code {code}"


def by_exit(evidence: Evidence, exits: list[Exit], standing: Standing) -> Verdict | None:
    """Only exit codes tell of it: a process that was killed prints nothing."""
    deadly = [each for each in exits if each.deadly]
    chosen = deadly or [each for each in exits if each.silent or each.rank is None]
    if not chosen:
        return None
    ranks = {each.rank for each in chosen if each.rank is not None}
    first = min(chosen, key=lambda each: (each.rank is None, *each.clue.order))
    if len(ranks) > 1 and 2 * len(ranks) >= participants(evidence, standing):
        return everywhere(first.clue, ranks)
    if not deadly and (len(chosen) > 1 or first.rank is None):
        return None
    return _of_exit(evidence, first, rivals=ranks - {first.rank})


def _of_exit(evidence: Evidence, first: Exit, *, rivals: set[int]) -> Verdict:
    rank = first.rank
    whose = "a process" if rank is None else f"rank {rank}"
    why = [f"{whose} {said(first.code)}" + (" and printed no error" if first.silent else "")]
    sources = {"its exit code"}
    others = [r for r, facts in evidence.roster.facts.items() if facts.waited and r != rank]
    if others:
        why.append(f"{named_all(others)} only waited for, or lost, another rank")
        sources.add("its peers")
    if any(claim.rank == rank for claim in evidence.claims):
        why.append("torchelastic names it too")
    if rivals:
        why.append(f"but rank {compressed(rivals)} died by itself as well")
    sure: Confidence = by_sources(sources, doubtful=bool(rivals) or rank is None)
    if not first.deadly and not (first.heard and others):
        sure = "weak"  # a launcher alone often blames the first that lost its peer
        why.append("only the launcher tells so: what this process printed is not collected")
    elif first.code == 1 and sure == "confirmed":
        sure = "probable"  # an exception would have left a traceback
    return Verdict(
        tier=Tier.LOCAL,
        kind=first.clue.kind,
        message=f"process {said(first.code).removeprefix('was ')}",
        confidence=sure,
        why=tuple(why),
        ranks=frozenset() if rank is None else frozenset({rank}),
        clue=replace(first.clue, fields={**first.clue.fields, "exitcode": first.code}),
    )


def everywhere(clue: Clue, ranks: set[int]) -> Verdict:
    """The same failure on most ranks: no single one is to blame."""
    same = f"the same on {len(ranks)} ranks ({compressed(ranks)})"
    return Verdict(
        tier=Tier.LOCAL,
        kind=clue.kind,
        message=clue.message,
        confidence="probable",
        why=(f"{same}: a fault of program, data or configuration rather than of one rank",),
        ranks=frozenset(ranks),
        clue=clue,
    )


def participants(evidence: Evidence, standing: Standing) -> int:
    """How many ranks the job has, as far as is known."""
    return max(len(evidence.roster.facts), len(standing.spoken), standing.world_size or 1)


def named_all(ranks: list[int]) -> str:
    """`rank 3`, `ranks 0-2,5`."""
    listed = compressed(ranks)
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"
