"""Asks the ranks of a run to stop by themselves, all before the same step, and to save first.

The request is a file beside the callback's rows, which its writer's thread reads
(`ldlm_callback/stop_request.py`). It names a step in the future: a rank that left a step earlier
than others would let them wait in a collective.
"""

import json
import math
import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from ldlm_callback.stop_request import NAME, SCHEMA
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.host.probe import heartbeat
from ldlm_monitor.host.probe.heartbeat import Page
from ldlm_monitor.host.probe.run_processes import SKEW_SECONDS

MARGIN_SECONDS = 10.0
"""Seconds until the step at which ranks stop. A choice: ranks look each second, and a busy disk
answers late; longer trains on with numbers that are worth nothing."""
CACHED_SECONDS = 60.0
"""More of them where ranks are on other hosts than we: a client of NFS may know for so long which
names a folder has (nfs(5), `acdirmax`)."""
LEAST_STEPS = 2  # a rank may be within a step when it reads
SAVE_SECONDS = 600.0
"""Seconds after that step until the run must have ended, if no pause of it may be longer. A choice:
nobody knows how long its first save takes, and a signal during that loses it."""
ASK_SECONDS = 5.0
"""Seconds to ask in. A choice: a mount whose server is gone holds a call for ever, and a signal
must not wait for that; a disk that is only busy answers sooner."""
_ROWS = "health_rank"  # begins the names of the callback's files of rows


class Asked(NamedTuple):
    """A request: the step at which all ranks are to stop, and seconds until the run has ended."""

    step: int
    seconds: float


def ask(run: RunView, launch: str, reason: str, now: float) -> Asked | None:
    """Write the request, at `now` (Unix seconds); None where a rank would not heed it.

    That is where one has no callback or does not ask it, is another user's, or has unknown steps,
    and where the disk does not answer. `launch`: its name in the rows.
    """
    asked = list[Asked | None]()
    asking = Thread(target=lambda: asked.append(_ask(run, launch, reason, now)), daemon=True)
    asking.start()
    asking.join(ASK_SECONDS)
    return asked[0] if asked else None


def _ask(run: RunView, launch: str, reason: str, now: float) -> Asked | None:
    paces = _step_seconds(run)
    folders = {Path(file).parent for file in run.files if Path(file).name.startswith(_ROWS)}
    since = (run.last_progress_at or now) - SKEW_SECONDS  # older ones are of an earlier launch
    found = heartbeat.pages(folders)
    pages = [page for page in found if page.status == "running" and page.time >= since]
    if not paces or len(pages) < max(run.world_size or 1, 1) or not all(map(_heeds, pages)):
        return None
    step = _stop_step(pages, min(paces))
    said = {"schema": SCHEMA, "launch": launch, "step": step, "reason": reason, "time": now}
    try:
        for folder in {page.path.parent for page in pages}:
            _write(folder, json.dumps(said).encode() + b"\n")
    except OSError:
        return None
    ahead = step - min(page.step for page in pages)
    return Asked(step, ahead * max(paces) + max(SAVE_SECONDS, run.stall_limit_seconds or 0.0))


def _heeds(page: Page) -> bool:
    """Whether a rank reads our request: it asks for one, and takes it of its own user alone."""
    return bool(page.heeds_stop) and page.owner == os.geteuid()


def _stop_step(pages: Sequence[Page], pace: float) -> int:
    several = {page.host for page in pages} != {socket.gethostname()}
    seconds = MARGIN_SECONDS + (CACHED_SECONDS if several else 0.0)
    return max(page.step for page in pages) + max(LEAST_STEPS, math.ceil(seconds / pace))


def _step_seconds(run: RunView) -> list[float]:
    """Seconds of a step, the last and the mean.

    By a slow step alone the margin would be too short, by a fast one the wait for its end.
    """
    kept = run.statistics.get("step_seconds")
    known: Iterable[float | None] = (run.step_seconds, None if kept is None else kept.mean)
    return [each for each in known if each is not None and each > 0]


def _write(folder: Path, data: bytes) -> None:
    """Put the request into its place, whole at once; raises `OSError`.

    What is in its place is replaced and not followed. Bytes that a crash leaves half written are
    none of a request.
    """
    fresh = folder / f".{NAME}.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / NAME)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
