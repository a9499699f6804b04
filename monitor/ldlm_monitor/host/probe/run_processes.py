"""The processes of runs on this host: which are present, and that all of a run are gone."""

import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ldlm_monitor.base.records import Event, Scalar
from ldlm_monitor.base.snapshot import HostView
from ldlm_monitor.base.text.format import names_of
from ldlm_monitor.host.probe import heartbeat, host_events, process
from ldlm_monitor.host.probe.gpu import GpuReader
from ldlm_monitor.host.probe.heartbeat import Page
from ldlm_monitor.host.probe.host_facts import HostFacts
from ldlm_monitor.host.probe.process import Family, Scan
from ldlm_monitor.judge.run.verdict import ProbeCandidate

SKEW_SECONDS = 10.0
"""Seconds that a rank's clock may be behind: above NTP's error, below the time between launches."""
ENDED = ("gone", "zombie")  # "gone": no process of this pid and start time


def fresh_pages(case: ProbeCandidate) -> list[Page]:
    """The pages of a run's ranks; those older than its last step are an earlier launch's."""
    since = case.last_progress_at - SKEW_SECONDS
    found = heartbeat.pages(host_events.folders(case))
    return [page for page in found if page.status == "running" and page.time >= since]


def present(cases: Sequence[ProbeCandidate], now: float) -> dict[str, HostView]:
    """The views of the runs that have processes here at `now` (Unix seconds), without GPUs."""
    if not cases:
        return {}
    seen = process.scan()
    families = [(replace(case, reports_gpus=True), family_of(case, seen)) for case in cases]
    return HostFacts(process.PROC, GpuReader()).look(families, seen, now)


def departed(case: ProbeCandidate) -> Event | None:
    """An event if all processes of a run are gone that ran here, by heartbeats or its rows.

    None if one lives, ran in another host's or container's process table, or left neither.
    """
    pages = fresh_pages(case)
    gone: Mapping[int | None, int] = {page.rank: page.pid for page in pages}
    if any(map(heartbeat.may_live, pages)):
        return None
    if len(gone) < (case.world_size or 1):
        gone = _logged_and_gone(case)
    if len(gone) < (case.world_size or 1):
        return None
    return processes_event(
        case, [{"rank": rank, "pid": pid, "state": "gone"} for rank, pid in gone.items()]
    )


def _logged_and_gone(case: ProbeCandidate) -> dict[int | None, int]:
    """The pids by rank that the run's rows name, if all were of this host and none lives.

    Rows do not say in which process table a pid is valid: a container may have this host's name.
    So the run must be silent beyond its limit too, as no training is whose processes are unseen.
    """
    here = socket.gethostname()
    late = case.stalls_at is not None and time.time() > case.stalls_at
    if not (late and case.pids) or any(host != here for host, _ in case.pids.values()):
        return {}
    seen = process.among(pid for _, pid in case.pids.values())
    alive = any(
        pid in seen.table and seen.started_at(pid) <= case.last_progress_at
        for _, pid in case.pids.values()
    )
    return {} if alive else {rank: pid for rank, (_, pid) in case.pids.items()}


def processes_event(case: ProbeCandidate, looks: Collection[dict[str, Scalar]]) -> Event:
    """An event of a run's processes, each with its `state`; one is gone if its state is an end."""
    ordered = sorted(looks, key=lambda look: look["state"] not in ENDED)
    gone = sum(look["state"] in ENDED for look in looks)
    counts: dict[Scalar, list[dict[str, Scalar]]] = {}
    for look in looks:
        counts.setdefault(look["state"], []).append(look)
    return host_events.event(
        case,
        "processes gone" if gone else "silent processes",
        ", ".join(f"{_who(found)} {state}" for state, found in counts.items()),
        processes=ordered[: host_events.MAX_SHOWN],
        alive=len(looks) - gone,
    )


def _who(looks: Sequence[dict[str, Scalar]]) -> str:
    ranks = [rank for look in looks if isinstance(rank := look["rank"], int)]
    pids = ", ".join(f"pid {look['pid']}" for look in looks[:2])
    if not ranks:
        return pids
    return f"{names_of(ranks)} ({pids}{', ...' if len(looks) > 2 else ''})"


def family_of(
    case: ProbeCandidate, seen: Scan, openers: Collection[tuple[int, int]] = ()
) -> Family:
    """The run's processes; a logged pid counts if its process ran here at the last step.

    `openers`: see `Family`.
    """
    here = (socket.gethostname().partition(".")[0], "localhost")
    named = {
        rank: pid
        for rank, (host, pid) in case.pids.items()
        if host.partition(".")[0] in here
        and pid in seen.table
        and seen.started_at(pid) <= case.last_progress_at
    }
    pages = heartbeat.pages(host_events.folders(case))
    named |= {page.rank: page.pid for page in pages if heartbeat.is_process(page)}
    logs = {os.path.realpath(log) for log in case.files if log != "-"}
    return process.family(logs, named, seen, openers)
