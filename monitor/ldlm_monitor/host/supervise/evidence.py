"""What is kept of a failure before its processes are ended: incidents, events, and stacks.

All of it is in a file for people. What no log has otherwise goes into the run's log as well, so
that the incident has it after the end, and in each replay.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from ldlm_monitor.base.records import Event, FieldValue
from ldlm_monitor.base.snapshot import AlertView, Snapshot
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.host.probe.hang import RankReport, events_of
from ldlm_monitor.host.probe.heartbeat import Page
from ldlm_monitor.host.probe.stacks import stacks_of_py_spy
from ldlm_monitor.judge.run.endings import processes_of

STACK_SECONDS = 5.0
"""Seconds for the stacks of all processes, which are asked at once: a choice. py-spy needs a tenth
of one for a process; more would keep hung GPUs longer."""
MAX_PROCESSES = 64  # asked at once. A choice: the ranks of one host and some loaders
STACK_CHARACTERS = 20_000  # of one process. A choice: a hundred threads of ten frames fit in


SILENT: Final = {"TrainingStalled": "hang_no_progress"}
"""Alert -> kind of the failure, where no line of a log reports it."""
MAX_ROW = 32_000  # characters of an event in the log. A choice: a probe's without its stacks fits


def keep(
    path: Path, alert: AlertView, snapshot: Snapshot, own: Collection[int] = ()
) -> Iterator[str]:
    """Write the incidents of the alert's run, what its host showed and the stacks to `path`.

    `own`: the pids of the command's processes, among which are the ranks. Flight recorders and
    NCCL's RAS are among the events; stacks that the callback has not given are py-spy's, where it
    is installed and may trace. Yields the lines for the run's log.
    """
    run = alert.labels["run"]
    events = [each for each in snapshot.events if each.run == run]
    asked = dict(stacks(_pids(events, own)))
    kept = {
        "incidents": [
            each.model_dump(mode="json") for each in snapshot.incidents if each.run == run
        ],
        "events": [
            {"kind": each.kind, "rank": each.rank, "message": each.message, **each.fields}
            for each in events
        ],
        "stacks": asked,
    }
    with contextlib.suppress(OSError):  # a full disk: the incident stays in the outbox
        path.write_text(json.dumps(kept, indent=1, default=str), encoding="utf-8")
    yield from _lines(alert, events, asked)


def _lines(alert: AlertView, events: Sequence[Event], asked: Mapping[str, str]) -> Iterator[str]:
    """The findings since the last step as rows of the log, and what the alert says if no line does.

    A row has the form of the callback's events. `asked`: py-spy's answer for each process; where
    its rank is not known, it stays as it is.
    """
    found = [each for each in events if each.fields.get("probe")]
    newest = {(each.kind, each.rank): each for each in found if each.position == found[-1].position}
    known = {look.get("pid"): look.get("rank") for each in found for look in processes_of(each)}
    ranks = {pid: rank for pid in asked if isinstance(rank := known.get(int(pid)), int)}
    for each in [*newest.values(), *_compared(found, asked, ranks)]:
        yield _row(each.kind, each.severity, each.message, each.rank, each.fields)
    for pid in asked.keys() - ranks.keys():
        if text := asked[pid].partition("\n\n")[2]:  # after the command and version
            yield f"# stacks of pid {pid}"
            yield from text.splitlines()
    if kind := SILENT.get(alert.name):
        text = alert.annotations.get("summary", "").removeprefix(f"{alert.labels['run']}: ")
        yield _row(kind, "critical", text or alert.name, None, {"role": "root"})


def _compared(
    found: Sequence[Event], asked: Mapping[str, str], ranks: Mapping[str, int]
) -> list[Event]:
    """An event with the stacks of each rank, compared with the others'."""
    now, host = time.time(), socket.gethostname()
    reports = [
        RankReport(Page.of_process(rank, host, int(pid), now), known)
        for pid, rank in ranks.items()
        if (known := stacks_of_py_spy(asked[pid])).main  # py-spy may not trace all
    ]
    return events_of(reports, found[-1], now) if reports else []


def _row(
    kind: str, severity: str, message: str, rank: int | None, fields: Mapping[str, FieldValue]
) -> str:
    row: dict[str, Any] = {"type": "event", "time": time.time(), "kind": kind}
    row |= {"severity": severity, "message": message, "fields": dict(fields)}
    row |= {} if rank is None else {"rank": rank}
    text = json.dumps(_redacted(row))
    if len(text) > MAX_ROW:
        row["fields"].pop("threads", None)
        text = json.dumps(_redacted(row))
    return text


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [*map(_redacted, value)]
    if isinstance(value, dict):
        return {key: _redacted(each) for key, each in value.items()}
    return value


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


def _pids(events: Iterable[Event], own: Collection[int]) -> list[int]:
    """The processes that were looked at; where these are none of the command's, all of its own."""
    looks = (look.get("pid") for event in events for look in processes_of(event))
    found = [*dict.fromkeys(pid for pid in looks if isinstance(pid, int))]
    if own:
        found = [pid for pid in found if pid in own] or sorted(own)
    return found[:MAX_PROCESSES]
