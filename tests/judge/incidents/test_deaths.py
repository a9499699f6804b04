"""How a process died, on which machine, and who stopped the job: by codes, names and signals."""

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.judge.incidents import Incidents, RunFacts
from ldlm_monitor.logs.parse import Parser
from tests.judge.incidents.cascades import RUN, START, Line, incident_of, trained

AGENT = "E0528 20:27:41.000000 700 torch/distributed/elastic/multiprocessing/api.py:1002]"


def died(code: int, local_rank: int) -> Line:
    pid = 48000 + local_rank
    text = f"failed (exitcode: {code}) local_rank: {local_rank} (pid: {pid}) of binary: /bin/sh"
    return (61.0, "node0.log", f"{AGENT} {text}")


def test_a_shells_exit_code_137_is_signal_9() -> None:
    """A shell that started the worker reports the signal as 128 more."""
    by_shell, itself = (incident_of([*trained(60), died(code, 3)]) for code in (137, -9))
    assert by_shell.root.message == itself.root.message == "process killed by SIGKILL"
    assert (by_shell.root.rank, by_shell.confidence) == (3, itself.confidence)
    assert "exit code 160" in incident_of([*trained(60), died(160, 3)]).root.message


def looked(*processes: dict[str, object]) -> IncidentView:
    """The incident of a crashed run of which a probe of the host looked at these processes."""
    run = RunFacts(state="killed", ended_at=START, world_size=len(processes))
    book = Incidents({RUN: run}.__getitem__)
    look = Event(
        kind="log_silence", severity="error", run=RUN, message="no step",
        fields={"role": "evidence", "probe": True, "processes": [*processes]},
        position=Position("node0.log", 1, 0),
    )  # fmt: skip
    book.take(look, START)
    (incident,) = book.views(START + 60)
    return incident


@pytest.mark.parametrize(
    ("status", "message"),
    [(9, "process killed by SIGKILL"), (11, "process killed by SIGSEGV")],
)
def test_a_zombies_wait_status_is_the_signal_that_ended_it(status: int, message: str) -> None:
    alive = {"rank": 0, "pid": 100, "state": "sleeping"}
    incident = looked(alive, {"rank": 1, "pid": 101, "state": "zombie", "status": status})
    assert (incident.root.rank, incident.root.message) == (1, message)


def of_lines(texts: list[str], path: str = "node3.log") -> IncidentView:
    """The incident of a run that crashed with these lines."""
    run = RunFacts(state="crashed", ended_at=START, world_size=16)
    book, parser = Incidents({RUN: run}.__getitem__), Parser()
    data = "".join(f"{text}\n" for text in texts).encode()
    chunk = Chunk(path, (1, 1, 0), 0, 1, data, final=True)
    for record in parser.feed(chunk, Origin(RUN), START):
        if isinstance(record, Event):
            book.take(record, START)
    (incident,) = book.views(START + 60)
    return incident


def table(host: str) -> list[str]:
    """torchrun's table of the workers 8 to 10 of a machine, ended by their launcher."""
    rows = [
        text
        for index, rank in enumerate((8, 9, 10))
        for text in (
            *(["Root Cause (first observed failure):"] if index == 2 else []),
            f"[{index}]:",
            "  time      : 2026-05-28_20:37:40",
            f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {rank - 8})",
            f"  exitcode  : -15 (pid: {48000 + rank})  (SIGTERM)",
            "  error_file: <N/A>",
            f"  traceback : Signal 15 (SIGTERM) received by PID {48000 + rank}",
        )
    ]
    return ["=" * 60, "train.py FAILED", "-" * 60, "Failures:", *rows, "=" * 60]


@pytest.mark.parametrize(
    ("host", "ranks"),
    [
        ("node3.cluster", "8-10"), ("node3", "8-10"), ("NODE3.cluster.example", "8-10"),
        ("node31.cluster", ""),
    ],
)  # fmt: skip
def test_a_machine_is_known_by_its_name_without_the_domain(host: str, ranks: str) -> None:
    """The kernel prints the short name, torchrun's table the long one."""
    xid = (
        "Jan 21 04:41:44 node3 kernel: [ 1234.567890] NVRM: Xid (PCI:0000:9b:00): 79, "
        "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )
    incident = of_lines([*table(host), xid])
    assert (incident.root.tier, incident.root.host) == ("hardware", "node3")
    assert incident.root.ranks == ranks


def stopped(exception: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "/usr/lib/torch/distributed/elastic/agent/server/api.py", line 720, in run',
        f"{exception}",
    ]


SIGNALLED = (
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 700 got signal: 2"
)


def test_a_signal_exception_is_a_stop_from_outside() -> None:
    """torchrun raises it for Ctrl-C: no rank failed."""
    incident = of_lines(stopped(SIGNALLED))
    assert (incident.root.tier, incident.root.kind) == ("external", "python_exception")
    assert incident.root.rank is None


def test_a_worker_that_reports_the_interrupt_too_confirms_the_stop() -> None:
    """Two writers: the launcher raises SignalException, the worker KeyboardInterrupt."""
    worker = [f"[rank1]: {text}" for text in stopped("KeyboardInterrupt")]
    alone, both = of_lines(stopped(SIGNALLED)), of_lines([*stopped(SIGNALLED), *worker])
    assert (alone.confidence, both.confidence) == ("probable", "confirmed")
