"""Finds the rank that the others wait for, from the ranks' heartbeats and stacks."""

import os
import socket
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ldlm_monitor.base.records import Event, Heartbeat, Scalar
from ldlm_monitor.host.probe import host_events
from ldlm_monitor.host.probe.heartbeat import Page, is_process, pages
from ldlm_monitor.host.probe.run_processes import SKEW_SECONDS, fresh_pages
from ldlm_monitor.host.probe.stacks import StackFrame, Stacks, ask, may_ask
from ldlm_monitor.judge.run.verdict import ProbeCandidate

ASKED_AT_ONCE = 16
"""Requests for stacks in flight: all of a usual host's 8 to 16 ranks; each only waits."""
MAX_ASKED = 256
"""Ranks of this host that are asked at most: more than a host has; anyone may write a page."""
_MAX_SHOWN = 8  # threads in an event: the main thread, and the first of the loader's and autograd's


@dataclass(frozen=True, slots=True)
class RankReport:
    """A rank's heartbeat page, its stacks (None: it wrote none), and whether it could be asked."""

    page: Page
    stacks: Stacks | None
    asked: bool = True


def look(case: ProbeCandidate, now: float, seconds: float) -> list[Event | Heartbeat]:
    """The heartbeats of a run's ranks, and events with the stacks of those on this host.

    `now`: Unix seconds. `seconds`: the time within which the ranks must answer.
    """
    until = time.monotonic() + seconds
    found = [
        page
        for page in pages(host_events.folders(case))
        if page.status == "running" and not _is_left_behind(page, case)
    ]
    here = [page for page in found if is_process(page)][:MAX_ASKED]
    with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="stacks") as pool:
        asked = [pool.submit(ask, page, until - time.monotonic()) for page in here]
        stacks = {page.rank: each.result() for page, each in zip(here, asked, strict=True)}
    ranks = [RankReport(page, stacks.get(page.rank), asked=may_ask(page)) for page in found]
    beats = [page.record(case.run) for page in found if page.step >= 0]
    return [*beats, *events_of(ranks, case, now)]


def _is_left_behind(page: Page, case: ProbeCandidate) -> bool:
    """Whether a page is an earlier launch's: old, and its process on this host has ended."""
    is_old = page.time < case.last_progress_at - SKEW_SECONDS
    return is_old and page.host == socket.gethostname() and not is_process(page)


def beats(case: ProbeCandidate) -> list[Heartbeat]:
    """The heartbeats of a run's ranks that have taken a step."""
    return [page.record(case.run) for page in fresh_pages(case) if page.step >= 0]


def accused(ranks: Sequence[RankReport]) -> tuple[frozenset[int], str]:
    """The ranks that the others wait for, and the reason in words; no ranks if unknown.

    The first of these rules that finds ranks decides: they are some steps behind; they do not
    answer while others do; they are outside of the collective or backward in which others wait;
    they are the smallest group in one place. Of several ranks, at most half are accused.
    """
    steps = {each.page.rank: each.page.step for each in ranks}
    behind = frozenset(rank for rank, step in steps.items() if step < max(steps.values()))
    if behind and 2 * len(behind) <= len(steps):
        return behind, "is behind the others"
    seen = [each for each in ranks if each.stacks is not None]
    silent = frozenset(each.page.rank for each in ranks if each.asked and each.stacks is None)
    if silent and len(silent) <= len(seen):
        return silent, "does not answer"
    waiting = {each.page.rank for each in seen if each.stacks and each.stacks.wait}
    absent = frozenset(each.page.rank for each in seen) - waiting
    if waiting and absent and 2 * len(absent) <= len(seen):
        return absent, "is not where the others wait for it"
    places = defaultdict(set)
    for each in seen:
        place = each.stacks.place if each.stacks else None
        places[each.page.phase, str(place)].add(each.page.rank)
    if len(places) > 1:
        smallest = min(places.values(), key=len)
        if 2 * len(smallest) < len(seen):
            return frozenset(smallest), "is at another place than the others"
    if len(ranks) == 1:
        return frozenset(steps), "takes no step"
    return frozenset(), ""


def events_of(ranks: Sequence[RankReport], case: host_events.Standing, now: float) -> list[Event]:
    """One `stack_dump` event per rank that has stacks or is accused, the accused first."""
    guilty, why = accused(ranks)
    waits = [each.stacks.wait for each in ranks if each.stacks and each.page.rank not in guilty]
    called = sorted({wait.function.removeprefix("_engine_run_") for wait in waits if wait})
    others = f"the others wait in {called[0]}" if guilty and called else ""
    ordered = sorted(ranks, key=lambda each: (each.page.rank not in guilty, each.page.rank))
    return [
        _event(each, case, now, guilty, (why, others))
        for each in ordered
        if each.stacks is not None or each.page.rank in guilty
    ]


def _event(
    each: RankReport,
    case: host_events.Standing,
    now: float,
    guilty: frozenset[int],
    why: tuple[str, str],
) -> Event:
    """The event of a rank. `why`: the reason that `guilty` are accused, and what others do."""
    page = each.page
    place = each.stacks.place if each.stacks is not None else None
    is_accused = page.rank in guilty
    message = f"rank {page.rank} {why[0]}," if is_accused else f"rank {page.rank} is"
    phase = f"in {page.phase}" + (f" after step {page.step}" if page.step >= 0 else "")
    known = (phase if page.phase else "", f"at {place}" if place is not None else "")
    message = f"{message} {', '.join(filter(None, known))}"
    message += f"; {why[1]}" if is_accused and place and why[1] else ""
    return host_events.event(
        case,
        "stacks",
        message,
        rank=page.rank,
        pid=page.pid,
        host=page.host,
        phase=page.phase,
        phase_seconds=round(max(now - page.phase_since, 0.0), 1),
        step=page.step,
        frame=None if place is None else str(place),
        accused=is_accused,
        missing_ranks=host_events.listed(guilty) if is_accused else None,
        what=_fault(place, *why) if is_accused else None,
        threads=_threads(each.stacks),
    )


def _fault(place: StackFrame | None, why: str, others: str) -> str | None:
    """Where an accused rank is, to follow "rank 1 is"; None if that is not known."""
    if place is None:
        return why.removeprefix("is ") if why.startswith("is ") else None
    where = f"in {place.function} at {os.path.basename(place.file)}:{place.line}"
    return f"{where}, {others}" if others else where


def _threads(stacks: Stacks | None) -> list[dict[str, Scalar]]:
    return [
        {"name": name, "frames": "\n".join(map(str, frames))}
        for name, frames in (stacks.threads[:_MAX_SHOWN] if stacks is not None else ())
    ]
