"""Events made of what a host shows of a training; their kinds are those of logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ldlm_monitor.model.records import Event, FieldValue, Position, Scalar, Severity
from ldlm_monitor.probe.cgroup import MemoryGroup
from ldlm_monitor.probe.collectives import Finding
from ldlm_monitor.probe.collectives import describe as describe_finding
from ldlm_monitor.probe.nccl_ras import RasStatus
from ldlm_monitor.probe.nccl_ras import describe as describe_ras
from ldlm_monitor.text.format import names_of

MAX_SHOWN = 64
"""Processes in an event, those that are gone first."""
MAX_RANKS = 4096
"""Ranks in one field: an event stays below a few tens of KiB."""
MAX_MESSAGE = 1000
"""Characters; a message is one line of an alert."""
ENDED = ("gone", "zombie")


@dataclass(frozen=True, slots=True)
class Case:
    """A run to examine, as its logs describe it.

    `pids` by rank are of this host. `dumps` are files that the log names. `since` (Unix
    seconds) is the last step. Events get `position`.
    """

    run: str
    logs: tuple[str, ...]
    pids: dict[int | None, int]
    dumps: tuple[str, ...]
    world_size: int | None
    since: float
    position: Position


def of_processes(case: Case, looks: Collection[dict[str, Scalar]]) -> Event:
    """The state of the processes of a training without progress."""
    gone = [look for look in looks if look["state"] in ENDED]
    counts: dict[str, list[dict[str, Scalar]]] = {}
    for look in looks:
        counts.setdefault(str(look["state"]), []).append(look)
    message = ", ".join(f"{_who(found)} {state}" for state, found in counts.items())
    ordered = sorted(looks, key=lambda look: look["state"] not in ENDED)
    return _event(
        case,
        "exit_without_error" if gone else "log_silence",
        "info",
        message,
        family="progress",
        fields={"processes": ordered[:MAX_SHOWN], "alive": len(looks) - len(gone)},
    )


def _who(looks: Sequence[dict[str, Scalar]]) -> str:
    ranks = [rank for look in looks if isinstance(rank := look["rank"], int)]
    pids = ", ".join(f"pid {look['pid']}" for look in looks[:2])
    if not ranks:
        return pids
    return f"{names_of(ranks)} ({pids}{', ...' if len(looks) > 2 else ''})"


def _event(
    case: Case,
    kind: str,
    severity: Severity,
    message: str,
    *,
    family: str,
    role: str = "evidence",
    rank: int | None = None,
    fields: dict[str, FieldValue],
) -> Event:
    return Event(
        kind=kind,
        severity=severity,
        run=case.run,
        rank=rank,
        message=message[:MAX_MESSAGE],
        fields={**fields, "probe": True, "family": family, "role": role},
        position=case.position,
    )


def of_oom_kill(case: Case, rank: int | None, group: MemoryGroup, kills: int) -> Event:
    """A counter of the kernel that rose."""
    limit = "" if group.limit is None else f" with a limit of {group.limit >> 20} MiB"
    return _event(
        case,
        "host_oom_kill",
        "critical",
        f"the kernel killed {kills} of the control group {group.path.name}{limit} for memory",
        family="host",
        role="root",
        rank=rank,
        fields={
            "cgroup": str(group.path),
            "kills": kills,
            "limit_bytes": group.limit,
            "used_bytes": group.used,
        },
    )


def of_ras(case: Case, status: RasStatus) -> Event:
    """NCCL's RAS report. Where it finds nothing, the event is context and clears no rank."""
    fields: dict[str, FieldValue] = {}
    for what in ("missing", "unresponsive", "dead", "behind", "failed"):
        ranks = {each.rank for each in status.suspects if each.what == what}
        if listed := _scalars(rank for rank in ranks if rank is not None):
            fields[what] = listed
    found = [each for each in status.suspects if each.pid is not None]
    processes: list[dict[str, Scalar]] = [
        {"rank": each.rank, "pid": each.pid, "host": each.host, "gpu": each.gpu, "what": each.what}
        for each in found[:MAX_SHOWN]
    ]
    return _event(
        case,
        "ras_status",
        "info" if status.finds_nothing else "warning",
        describe_ras(status),
        family="nccl",
        role="context" if status.finds_nothing else "evidence",
        fields={**fields, "processes": processes},
    )


def of_finding(case: Case, finding: Finding, dumps: int, unread: Collection[int]) -> Event:
    """A hanging collective, by `dumps` flight recorders; those of `unread` ranks are missing."""
    accused = finding.missing or finding.mismatched
    frame = next((finding.frames[rank] for rank in accused if rank in finding.frames), None)
    return _event(
        case,
        "fr_dump",
        "warning",
        describe_finding(finding),
        family="nccl_torch",
        fields={
            "missing_ranks": _scalars(finding.missing),
            "mismatched_ranks": _scalars(finding.mismatched),
            "waiting_ranks": _scalars(finding.waiting),
            "ranks_without_dump": _scalars({*finding.without_dump} - {*unread}),
            "unread_ranks": _scalars(unread),
            "collective": finding.operation,
            "seq": finding.seq,
            "process_group": finding.group,
            "frame": frame,
            "dumps": dumps,
        },
    )


def _scalars(ranks: Iterable[int]) -> list[Scalar]:
    return [*sorted(ranks)[:MAX_RANKS]]
