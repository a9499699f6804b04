"""What is kept of a failure before its processes are ended: incidents, events, and stacks."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ldlm_monitor.base.records import Event
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.judge.run.endings import processes_of

STACK_SECONDS = 5.0
"""Seconds for the stacks of all processes, which are asked at once: a choice. py-spy needs a tenth
of one for a process; more would keep hung GPUs longer."""
MAX_PROCESSES = 64  # asked at once. A choice: the ranks of one host and some loaders
STACK_CHARACTERS = 20_000  # of one process. A choice: a hundred threads of ten frames fit in


def keep(path: Path, run: str, snapshot: Snapshot) -> None:
    """Write the run's incidents, what its host showed and the stacks of its processes to `path`.

    Flight recorders and NCCL's RAS are among the events; stacks that the callback has not given
    are py-spy's, where it is installed and may trace.
    """
    events = [each for each in snapshot.events if each.run == run]
    kept = {
        "incidents": [
            each.model_dump(mode="json") for each in snapshot.incidents if each.run == run
        ],
        "events": [
            {"kind": each.kind, "rank": each.rank, "message": each.message, **each.fields}
            for each in events
        ],
        "stacks": dict(stacks(_pids(events))),
    }
    with contextlib.suppress(OSError):  # a full disk: the incident stays in the outbox
        path.write_text(json.dumps(kept, indent=1, default=str), encoding="utf-8")


def stacks(pids: Sequence[int]) -> Iterator[tuple[str, str]]:
    """The stacks of processes on this host, by pid, as py-spy prints them or says why not."""
    program = shutil.which("py-spy")
    if program is None:
        return

    def asked(pid: int) -> str:
        try:
            said = subprocess.run(
                [program, "dump", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=STACK_SECONDS,
                check=False,
            ).stdout
        except subprocess.TimeoutExpired as late:
            said = late.stdout or b""
        return redact(said.decode("utf-8", "replace")[:STACK_CHARACTERS])

    with ThreadPoolExecutor(MAX_PROCESSES) as pool:
        yield from zip(map(str, pids), pool.map(asked, pids), strict=True)


def _pids(events: Iterable[Event]) -> list[int]:
    found = (look.get("pid") for event in events for look in processes_of(event))
    return [*dict.fromkeys(pid for pid in found if isinstance(pid, int))][:MAX_PROCESSES]
