"""Cascades of many ranks in the exact shapes of real lines: their sources stand in the taxonomy.

Each is a list of (second, file, line): what the followed files of one run hold, and when it
came. `played` feeds them to a monitor as if live.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.parse.run_names import RunNames

START = 1_780_000_000.0
RUN = "job7"
Line = tuple[float, str, str]


def glog(second: float) -> str:
    """The header's time of torch's C++ logger: the month is not padded, there is no year."""
    moment = datetime.fromtimestamp(START + second, UTC)
    return f"{moment.month}{moment:%d %H:%M:%S}.{int(second * 1e9) % 1_000_000_000:09d}"


def trained(steps: int, path: str = "node0.log", rank: int | None = 0) -> list[Line]:
    """Steps, one a second, of the rank that prints them."""
    mark = "" if rank is None else f"[default{rank % 8}]:"
    return [(float(step), path, f"{mark}step {step} loss 2.31 lr 3e-4") for step in range(1, steps)]


def nccl_timeout(
    ranks: Iterable[int],
    at: float,
    *,
    torch: str = "2.8",
    seq: int = 7753,
    seconds: int = 600,
    group: str = "0",
    name: str = "default_pg",
    group_ranks: dict[int, int] | None = None,
    calls: dict[int, tuple[str, int]] | None = None,
    file_of=lambda rank: f"node{rank // 8}.log",
) -> list[Line]:
    """The ranks' watchdogs find that a collective did not end; the processes abort."""
    lines: list[Line] = []
    for order, rank in enumerate(ranks):
        when = at + order * 0.004
        path = file_of(rank)
        pg_rank = (group_ranks or {}).get(rank, rank)
        op, numel = (calls or {}).get(rank, ("_REDUCE_SCATTER_BASE", 544997376))
        ran = seconds * 1000 + 40 + rank
        work = (
            f"[Rank {pg_rank}] Watchdog caught collective operation timeout: "
            f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel // 8}, "
            f"Timeout(ms)={seconds * 1000}) ran for {ran} milliseconds before timing out."
        )
        if torch == "2.2":
            head, pg = "[E ProcessGroupNCCL.cpp:523] ", ""
        elif torch == "2.6":
            head = f"[rank{rank}]:[E{glog(when)} ProcessGroupNCCL.cpp:629] "
            pg = f"[PG ID 0 PG GUID {group}({name}) Rank {pg_rank}] "
        else:
            head = f"[rank{rank}]:[E{glog(when)} ProcessGroupNCCL.cpp:683] "
            pg = f"[PG ID 0 PG GUID {group}({name}) Rank {pg_rank}] "
        lines.append((when, path, head + work))
        if torch != "2.2":
            status = f"PG status: last enqueued work: {seq + 2}, last completed work: {seq - 1}"
            failure = f"{pg} failure detected by watchdog at work sequence id: {seq} {status}"
            lines.append((when, path, head + failure))
        if torch == "2.8":
            dump = (
                f"{pg}Received a dump signal due to a collective timeout from this local rank and "
                "we will try our best to dump the debug info. Last enqueued NCCL work: "
                f"{seq + 2}, last completed NCCL work: {seq - 1}."
            )
            lines.append((when + 0.1, path, head + dump))
            wrote = f"Finished writing Flight Recorder debug info to /ckpt/nccl_trace_rank_{rank}"
            lines.append((when + 2.0, path, head + wrote))
        teardown = (
            f"[Rank {pg_rank}] Some NCCL operations have failed or timed out.",
            f"[Rank {pg_rank}] To avoid data inconsistency, we are taking the entire process down.",
        )
        lines += [(when + 60.0, path, head + text) for text in teardown]
        died = "NCCL" if torch == "2.2" else "Process group"
        text = f"{pg}{died} watchdog thread terminated with exception: {work}"
        lines.append((when + 60.0, path, head + text))
        thrown = "terminate called after throwing an instance of 'c10::DistBackendError'"
        lines.append((when + 60.0, path, thrown))
        lines.append((when + 60.0, path, f"  what():  {text}"))
        lines.append((when + 60.0, path, "frame #0: c10::Error::Error + 0x98 (0x75505bd97648)"))
    return lines


def agents(
    at: float, nodes: int, *, terminated: Sequence[int] = (), forced: Sequence[int] = ()
) -> list[Line]:
    """Each node's torchrun notices, ends its workers and blames its local rank 0."""
    lines: list[Line] = []
    for node in range(nodes):
        path = f"node{node}.log"
        first = 8 * node
        moment = datetime.fromtimestamp(START + at, UTC)
        head = f"{moment:%m%d %H:%M:%S}.000000 {700 + node} torch/distributed/elastic/"
        agent = head + "multiprocessing/api.py:"
        pids = {rank: 48000 + rank for rank in range(first, first + 8)}
        for rank in range(first, first + 8):
            if rank in terminated or rank in forced:
                text = f"W{agent}1028] Sending process {pids[rank]} closing signal SIGTERM"
                lines.append((at, path, text))
            if rank in forced:
                text = f"Unable to shutdown process {pids[rank]} via 15, forcefully exiting via 9"
                lines.append((at + 30, path, f"W{agent}1047] {text}"))
        blamed = next(rank for rank in pids if rank not in (*terminated, *forced))
        failed = f"failed (exitcode: -6) local_rank: {blamed - first} (pid: {pids[blamed]})"
        lines.append((at + 30, path, f"E{agent}1002] {failed} of binary: /usr/bin/python3"))
        lines += [(at + 30, path, text) for text in _table(node, pids, blamed, terminated, forced)]
    return lines


def _table(
    node: int, pids: dict[int, int], blamed: int, terminated: Sequence[int], forced: Sequence[int]
) -> list[str]:
    def row(index: int, rank: int) -> list[str]:
        code, name = (
            (-9, "SIGKILL")
            if rank in forced
            else (-15, "SIGTERM")
            if rank in terminated
            else (-6, "SIGABRT")
        )
        return [
            f"[{index}]:",
            "  time      : 2026-05-28_20:37:40",
            f"  host      : gpu-node{node:02d}",
            f"  rank      : {rank} (local_rank: {rank % 8})",
            f"  exitcode  : {code} (pid: {pids[rank]})  ({name})",
            "  error_file: <N/A>",
            f"  traceback : Signal {-code} ({name}) received by PID {pids[rank]}",
        ]

    others = [rank for rank in pids if rank != blamed]
    body = [line for index, rank in enumerate(others, 1) for line in row(index, rank)]
    return [
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
        *body,
        "-" * 60,
        "Root Cause (first observed failure):",
        *row(0, blamed),
        "=" * 60,
    ]


def played(lines: Iterable[Line], *, silence: float = 30.0) -> Monitor:
    """A monitor that followed these lines live, each file at once when it grew."""
    monitor = Monitor(names=RunNames(RUN))
    offsets: dict[str, tuple[int, int]] = {}
    now = START
    ordered = sorted(lines, key=lambda line: line[0])
    index = 0
    while index < len(ordered):
        second, path = ordered[index][0], ordered[index][1]
        texts = []
        while index < len(ordered) and ordered[index][:2] == (second, path):
            texts.append(ordered[index][2])
            index += 1
        data = ("\n".join(texts) + "\n").encode()
        offset, number = offsets.get(path, (0, 1))
        now = START + second
        monitor.feed(Chunk(path, (1, len(path) + hash(path) % 997, 0), offset, number, data), now)
        offsets[path] = offset + len(data), number + len(texts)
    monitor.tick(now + silence)
    return monitor


def incident_of(lines: Iterable[Line]) -> IncidentView:
    """The only incident of these lines."""
    (incident,) = played(lines).snapshot().incidents
    return incident
