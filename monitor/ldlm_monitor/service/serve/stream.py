"""`/api/v1/stream`: server-sent events for what changes between two snapshots.

Nothing is kept for a client: what it gets is the difference between the snapshot that it saw last
and the present one, which keeps a bounded number of transitions. One that reads slowly gets fewer
snapshots. https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.incident_view import View
from ldlm_monitor.base.snapshot import Health, Snapshot
from ldlm_monitor.base.text.sanitize import jsonable

MAX_STREAMS = 16
"""Clients at once: a choice, a quarter of the connections; the others are for requests."""
LOOK_SECONDS = 0.25  # between two looks at the snapshot, which is as often replaced
HEARTBEAT_SECONDS = 15.0  # of silence before a comment: as the standard advises against proxies


class SnapshotEvent(View):
    """Event `snapshot`: the state changed; each resource may have another answer."""

    version: int
    at: float


class RunEvent(View):
    """Event `run`: a run is new, or its state or health changed."""

    run: str
    state: str
    health: Health
    because: str
    step: int | None


def identity(transition: Transition) -> str:
    """The id of the event of a transition, by which a client goes on after it."""
    named = f"{transition.time} {transition.state} {transition.key}".encode("utf-8", "replace")
    return f"{zlib.crc32(named):08x}"


async def events(
    snapshot: Callable[[], Snapshot],
    redact: Callable[[str], str],
    last_id: str | None,
    since: float | None,
) -> AsyncIterator[str]:
    """The events from now on, and before them the kept transitions that the client lacks.

    These are the ones after the event `last_id` (all, if it is not kept any more) or after the
    time `since` (Unix seconds); none, if both are None.
    """
    seen = snapshot()
    for transition in _missed(seen.transitions, last_id, since):
        yield _event("transition", asdict(transition), redact, identity(transition))
    yield _event("snapshot", {"version": seen.version, "at": seen.at}, redact)
    quiet = 0.0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = snapshot()
        quiet += LOOK_SECONDS
        if now is seen and quiet < HEARTBEAT_SECONDS:
            continue
        if now is seen:
            yield ": heartbeat\n\n"
        else:
            for each in await asyncio.to_thread(_changes, seen, now, redact):
                yield each
        seen, quiet = now, 0.0


def _changes(before: Snapshot, now: Snapshot, redact: Callable[[str], str]) -> list[str]:
    known = {id(each) for each in before.transitions}
    runs = {run.name: (run.state, run.health) for run in before.runs}
    found = [
        _event("transition", asdict(each), redact, identity(each))
        for each in now.transitions
        if id(each) not in known
    ]
    for run in now.runs:
        if runs.get(run.name) != (run.state, run.health):
            said = {"because": run.because, "step": run.step}
            shown = {"run": run.name, "state": run.state, "health": run.health, **said}
            found.append(_event("run", shown, redact))
    return [*found, _event("snapshot", {"version": now.version, "at": now.at}, redact)]


def _missed(
    kept: Sequence[Transition], last_id: str | None, since: float | None
) -> Sequence[Transition]:
    if last_id is not None:
        seen = [index for index, each in enumerate(kept) if identity(each) == last_id]
        return kept[seen[-1] + 1 :] if seen else kept
    if since is not None:
        return [each for each in kept if each.time is None or each.time > since]
    return ()


def _event(
    name: str, data: Mapping[str, object], redact: Callable[[str], str], number: str = ""
) -> str:
    text = json.dumps(jsonable({**data}, redact), allow_nan=False)
    return f"event: {name}\n" + (f"id: {number}\n" if number else "") + f"data: {text}\n\n"
