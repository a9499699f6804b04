"""Sixty-four ranks and one cause: the incident of a cascade, and what its log does not contain."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event
from ldlm_monitor.judge.incidents import Incidents, RunFacts
from ldlm_monitor.logs.parse import Parser
from tests.judge.incidents.cascades import (
    RUN,
    START,
    Line,
    agents,
    incident_of,
    nccl_timeout,
    played,
    trained,
)

ALL = range(64)
AT = 660.0
"""When the watchdogs give up: the last step was at second 59."""


def without(*missing: int) -> list[int]:
    return [rank for rank in ALL if rank not in missing]


@pytest.mark.parametrize("torch", ["2.2", "2.6", "2.8"])
def test_the_rank_that_did_not_join_is_named_out_of_64(torch: str) -> None:
    lines = trained(60) + nccl_timeout(without(37), AT, torch=torch)
    incident = incident_of(lines + agents(AT + 61, 8, terminated=[37]))
    assert incident.root.rank == 37
    assert (incident.root.tier, incident.root.kind) == ("silence", "rank_hang")
    assert incident.confidence == "probable"
    assert incident.root.host == "gpu-node04"
    assert incident.collective is not None
    assert incident.collective.op == "_REDUCE_SCATTER_BASE"
    assert (incident.collective.seq, incident.collective.timeout_seconds) == (7753, 600.0)
    assert (incident.collective.waiting, incident.collective.missing) == ("0-36,38-63", "37")
    assert incident.collective.began_at == pytest.approx(START + 59.9, abs=0.2)
    assert incident.last_step == 59
    # Each node's launcher blames the first of its ranks that died, which had waited.
    blamed = {claim.rank: claim.agrees for claim in incident.claims}
    assert blamed == dict.fromkeys(range(0, 64, 8), False)
    symptoms = {symptom.kind: symptom for symptom in incident.symptoms}
    assert symptoms["nccl_collective_timeout"].ranks == "0-36,38-63"
    assert symptoms["nccl_collective_timeout"].count == 63
    assert "NcclTimeout" in incident.alerts


def test_a_rank_that_ignores_sigterm_is_the_suspect_and_not_killed_by_itself() -> None:
    lines = trained(60) + nccl_timeout(without(37), AT) + agents(AT + 61, 8, forced=[37])
    incident = incident_of(lines)
    assert (incident.root.rank, incident.root.tier) == (37, "silence")
    assert any("ignored SIGTERM" in why for why in incident.root.why)


def test_silence_alone_is_weak_and_only_used_when_the_others_have_reported() -> None:
    lines = trained(60) + nccl_timeout(without(37), AT)
    early = played([line for line in lines if line[0] < AT + 1], silence=0.0)
    (incident,) = early.snapshot().incidents
    assert (incident.root.rank, incident.confidence) == (None, "none")
    assert incident_of(lines).confidence == "probable"  # 63 wrote a flight record, 37 did not
    older = trained(60) + nccl_timeout(without(37), AT, torch="2.6")
    assert (incident_of(older).root.rank, incident_of(older).confidence) == (37, "weak")


def test_where_all_joined_no_rank_is_named() -> None:
    incident = incident_of(trained(60) + nccl_timeout(ALL, AT) + agents(AT + 61, 8))
    assert (incident.root.rank, incident.root.ranks, incident.confidence) == (None, "", "none")
    assert incident.root.tier == "unattributed"
    assert "joined the collective" in incident.root.why[0]


def test_ranks_of_nodes_whose_logs_are_not_followed_are_not_called_silent() -> None:
    reported = nccl_timeout(range(32), AT) + agents(AT + 61, 4)
    incident = incident_of(trained(60) + reported)
    assert incident.root.rank is None
    assert incident.confidence == "none"


def test_a_node_without_lines_is_reported_as_missing_and_not_blamed() -> None:
    waiting = [rank for rank in ALL if rank // 8 != 3]
    incident = incident_of(trained(60) + nccl_timeout(waiting, AT))
    assert (incident.root.rank, incident.confidence) == (None, "none")
    assert incident.root.why[0].startswith("no line of ranks 24-31 was read")


def test_a_machine_that_all_others_lost_is_named_weakly() -> None:
    lines = trained(60)
    for rank in range(8):
        lost = (
            f"[rank{rank}]:[E528 20:27:40.118273645 ProcessGroupNCCL.cpp:542] [Rank {rank}] "
            "Collective WorkNCCL(SeqNum=18233, OpType=ALLREDUCE, NumelIn=67108864, "
            "NumelOut=67108864, Timeout(ms)=600000) raised the following async exception: NCCL "
            "error: remote process exited or there was a network error, NCCL version 2.27.5"
        )
        detail = (
            lost,
            "ncclRemoteError: A call failed possibly due to a network error.",
            "Last error:",
            "socketProgress: Connection closed by remote peer gpu-node11<41232>",
        )
        lines += [(60.0 + rank / 10, "node0.log", text) for text in detail]
    incident = incident_of(lines)
    assert (incident.root.host, incident.root.rank) == ("gpu-node11", None)
    assert (incident.root.tier, incident.confidence) == ("network", "weak")


def test_a_broken_link_comes_before_the_silence_that_follows_from_it() -> None:
    """The rank behind the link waits for ever and writes nothing; it is not the cause."""
    lines = trained(60)
    for rank in (3, 4):
        broken = (
            f"gpu-node07:4821{rank}:48990 [{rank}] transport/net_ib/p2p.cc:688 "
            "(ncclIbLogCompletionWithError) NCCL WARN NET/IB: Got completion from peer "
            "gpu-node04<41232> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) "
            "vendor_err=129  localGid fe80::1 remoteGidsfe80::2 hca mlx5_3"
        )
        lines.append((59.5, "node0.log", broken))
    lines += nccl_timeout(without(37), AT) + agents(AT + 61, 8, terminated=[37])
    incident = incident_of(lines)
    assert (incident.root.tier, incident.root.kind) == ("network", "nccl_ib_completion_error")
    assert incident.root.rank != 37
    alone = incident_of([line for line in lines if "NET/IB" not in line[2]])
    assert (alone.root.tier, alone.root.rank) == ("silence", 37)


def test_ctrl_c_is_reported_as_such_and_no_rank_lost_a_peer() -> None:
    lines = trained(60)
    for rank in range(4):
        lines += [
            (60.0, "node0.log", f"[rank{rank}]: Traceback (most recent call last):"),
            (60.0, "node0.log", f'[rank{rank}]:   File "/job/train.py", line 8, in <module>'),
            (60.0, "node0.log", f"[rank{rank}]: KeyboardInterrupt"),
        ]
    incident = incident_of(lines)
    assert incident.root.tier == "external"
    assert "lost peers" not in incident.title


def test_the_rank_that_called_something_else_is_named_by_the_others_majority() -> None:
    calls = dict.fromkeys(ALL, ("ALLREDUCE", 1024)) | {5: ("ALLGATHER", 512)}
    incident = incident_of(trained(60) + nccl_timeout(ALL, AT, calls=calls))
    assert (incident.root.rank, incident.root.kind) == (5, "collective_mismatch")
    assert incident.confidence == "probable"


def test_in_a_group_of_some_ranks_the_missing_one_is_found_by_the_spacing_of_the_others() -> None:
    members = {rank: index for index, rank in enumerate(range(3, 64, 8))}
    waiting = [rank for rank in members if rank != 27]
    timeouts = nccl_timeout(waiting, AT, group="21", name="DP", group_ranks=members)
    hint = (
        "[rank27]:[W528 20:26:12.538147679 reducer.cpp:1529] Warning: find_unused_parameters=True "
        "was specified in DDP constructor, but did not find any unused parameters"
    )
    unheard = incident_of(trained(60) + timeouts)
    assert unheard.root.rank is None  # its log may not be followed
    incident = incident_of([(0.5, "node3.log", hint), *trained(60), *timeouts])
    assert (incident.root.rank, incident.root.tier) == (27, "silence")
    assert incident.collective is not None
    assert incident.collective.group == "DP"


def test_a_watchdog_that_is_stuck_on_one_rank_names_it_before_the_timeouts_of_the_others() -> None:
    stuck = (
        "[rank12]:[E528 20:34:40.393067540 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID "
        "0(default_pg) Rank 12] ProcessGroupNCCL's watchdog got stuck for 480 seconds without "
        "making progress in monitoring enqueued collectives."
    )
    lines: list[Line] = [*trained(60), (540.0, "node1.log", stuck)]
    incident = incident_of(lines + nccl_timeout(without(12), AT))
    assert (incident.root.rank, incident.root.kind) == (12, "nccl_heartbeat_stuck")
    assert incident.confidence == "confirmed"
    assert incident.root.at == pytest.approx(START + 60)


def test_a_watchdog_that_is_stuck_everywhere_names_nobody() -> None:
    lines = trained(60)
    for rank in ALL:
        text = (
            f"[rank{rank}]:[E528 20:34:40.393067540 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID "
            f"0(default_pg) Rank {rank}] ProcessGroupNCCL's watchdog got stuck for 480 seconds "
            "without making progress in monitoring enqueued collectives."
        )
        lines.append((540.0 + rank / 100, f"node{rank // 8}.log", text))
    incident = incident_of(lines)
    assert (incident.root.rank, incident.confidence) == (None, "none")


def test_a_gpu_that_fell_off_the_bus_explains_the_hang_that_follows() -> None:
    xid = (
        "gpu-node04 kernel: NVRM: Xid (PCI:0000:9d:00): 79, pid=48037, "
        "name=python3, GPU has fallen off the bus."
    )
    lines: list[Line] = [*trained(60), (58.0, "kernel.log", f"May 28 20:27:38 {xid}")]
    lines += nccl_timeout(without(37), AT) + agents(AT + 61, 8, terminated=[37])
    incident = incident_of(lines)
    assert (incident.root.tier, incident.root.kind) == ("hardware", "gpu_xid")
    assert (incident.root.rank, incident.root.host) == (37, "gpu-node04")
    assert incident.confidence == "confirmed"


def test_a_machine_fault_elsewhere_in_the_past_is_not_the_cause() -> None:
    old = "May 28 10:00:00 gpu-node02 kernel: NVRM: Xid (PCI:0000:18:00): 31, pid=1, name=x, Ch 1"
    lines: list[Line] = [(1.0, "kernel.log", old)]
    lines += [(1000.0 + second, path, text) for second, path, text in trained(60)]
    lines += nccl_timeout(without(37), 1000.0 + AT) + agents(1000.0 + AT + 61, 8, terminated=[37])
    incidents = played(lines).snapshot().incidents
    assert incidents[-1].root.rank == 37
    assert incidents[-1].root.tier == "silence"


def test_the_hosts_memory_ran_out_and_the_kernel_killed_a_rank() -> None:
    killed = (
        "May 28 20:27:39 gpu-node01 kernel: Out of memory: Killed process 48009 (python3) "
        "total-vm:201326592kB, anon-rss:98304000kB, file-rss:0kB, shmem-rss:0kB, UID:0 "
        "pgtables:196608kB oom_score_adj:0"
    )
    failed = (
        "E0528 20:27:40.000000 701 torch/distributed/elastic/multiprocessing/api.py:1002] failed "
        "(exitcode: -9) local_rank: 1 (pid: 48009) of binary: /usr/bin/python3"
    )
    table = [
        *("train.py FAILED", "-" * 60, "Failures:", "  <NO_OTHER_FAILURES>", "-" * 60),
        *("Root Cause (first observed failure):", "[0]:", "  time      : 2026-05-28_20:27:40"),
        *("  host      : gpu-node01", "  rank      : 9 (local_rank: 1)"),
        *("  exitcode  : -9 (pid: 48009)  (SIGKILL)", "=" * 60),
    ]
    lines: list[Line] = [*trained(60), (59.5, "kernel.log", killed), (60.5, "node1.log", failed)]
    lines += [(60.5, "node1.log", text) for text in table]
    incident = incident_of(lines + nccl_timeout(without(9), AT))
    assert (incident.root.tier, incident.root.kind) == ("hardware", "host_oom_kill")
    assert (incident.root.rank, incident.confidence) == (9, "confirmed")


def test_a_killed_process_of_somebody_else_does_not_explain_an_exception() -> None:
    killed = "May 28 20:27:39 gpu-node01 kernel: Out of memory: Killed process 123 (chrome)"
    trace = [
        "[rank3]: Traceback (most recent call last):",
        '[rank3]:   File "/job/train.py", line 31, in <module>',
        "[rank3]: IndexError: Target 30521 is out of bounds.",
    ]
    lines: list[Line] = [*trained(60), (59.5, "kernel.log", killed)]
    lines += [(60.0, "node0.log", text) for text in trace]
    incident = incident_of(lines + nccl_timeout(without(3), AT))
    assert (incident.root.kind, incident.root.rank) == ("python_exception", 3)
    assert incident.title.startswith("IndexError: Target 30521 is out of bounds on rank 3")
    assert incident.title.endswith(" at step 59")


def test_a_step_that_the_line_itself_names_is_not_said_twice() -> None:
    lines: list[Line] = [
        *trained(60),
        (60.0, "node0.log", "ERROR: Invalid loss detected at step 60"),
    ]
    assert incident_of(lines).title.count("at step") == 1


def test_the_scheduler_ends_a_job_and_everything_after_is_a_consequence() -> None:
    limit = (
        "slurmstepd: error: *** JOB 48213 ON gpu-node07 CANCELLED AT 2026-05-28T20:27:40 "
        "DUE TO TIME LIMIT ***"
    )
    got = (
        "W0528 20:27:40.000000 700 torch/distributed/elastic/agent/server/api.py:753] "
        "Received 15 death signal, shutting down workers"
    )
    lines: list[Line] = [*trained(60), (60.0, "node0.log", limit)]
    lines += [(60.1, f"node{node}.log", got) for node in range(8)]
    for rank in range(1, 64):
        path, mark = f"node{rank // 8}.log", f"[rank{rank}]:"
        lines += [
            (60.4, path, f"{mark} Traceback (most recent call last):"),
            (60.4, path, f'{mark}   File "/job/train.py", line 8, in <module>'),
            (60.4, path, f"{mark} {CLOSED}"),
        ]
    lines.append((61.0, "node0.log", "srun: error: gpu-node03: task 3: Terminated"))
    incident = incident_of(lines)
    assert (incident.root.tier, incident.root.kind) == ("external", "slurm_cancelled")
    assert incident.confidence == "confirmed"
    assert "TIME LIMIT" in incident.title


def test_slurm_cleaning_up_after_a_failure_is_no_cause() -> None:
    cleaned = (
        "slurmstepd: error: *** STEP 48213.0 ON gpu-node07 CANCELLED AT 2026-05-28T20:39:00 ***"
    )
    lines = trained(60) + nccl_timeout(without(37), AT) + agents(AT + 61, 8, terminated=[37])
    incident = incident_of([*lines, (AT + 95, "node0.log", cleaned)])
    assert incident.root.rank == 37


def test_a_data_loader_worker_that_was_killed_on_one_rank() -> None:
    trace = [
        "[rank37]: Traceback (most recent call last):",
        '[rank37]:   File "/job/train.py", line 31, in <module>',
        "[rank37]: RuntimeError: DataLoader worker (pid 22559) is killed by signal: Killed. ",
    ]
    lines: list[Line] = [*trained(60), *((60.0, "node4.log", text) for text in trace)]
    incident = incident_of(lines + nccl_timeout(without(37), AT))
    assert (incident.root.kind, incident.root.rank) == ("dataloader_worker_killed", 37)
    assert incident.confidence == "confirmed"


def test_an_error_that_comes_of_the_teardown_is_not_the_cause() -> None:
    trace = [
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "/job/train.py", line 31, in <module>',
        "[rank2]: RuntimeError: CUDA error: unspecified launch failure",
    ]
    lines = trained(60) + nccl_timeout(without(37), AT)
    lines += [(AT + 62, "node0.log", text) for text in trace]
    incident = incident_of(lines + agents(AT + 65, 8, terminated=[37]))
    assert incident.root.rank == 37


def test_a_rank_that_left_by_exit_while_the_group_lived_is_known_by_its_last_line() -> None:
    """Its own exit code is lost: the process aborts (taxonomy, table 4.2)."""
    last = "[default1]:terminate called without an active exception"
    died = (
        "E0528 20:27:41.000000 700 torch/distributed/elastic/multiprocessing/api.py:1002] failed "
        "(exitcode: -6) local_rank: 1 (pid: 48001) of binary: /usr/bin/python3"
    )
    lines: list[Line] = [*trained(60), (60.0, "node0.log", last)]
    for rank in (0, 2, 3):
        lines += [
            (60.1, "node0.log", f"[rank{rank}]: Traceback (most recent call last):"),
            (60.1, "node0.log", f'[rank{rank}]:   File "/job/train.py", line 8, in <module>'),
            (60.1, "node0.log", f"[rank{rank}]: {CLOSED}"),
        ]
    incident = incident_of([*lines, (61.0, "node0.log", died)])
    assert (incident.root.kind, incident.root.rank) == ("cxx_terminate", 1)


def test_before_torch_2_3_lines_have_no_rank_and_a_launchers_guess_is_not_confirmed() -> None:
    trace = ["Traceback (most recent call last):", '  File "/job/train.py", line 8, in <module>']
    died = (
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 "
        "(pid: 48000) of binary: /usr/bin/python3"
    )
    lines = trained(60, rank=None)
    for _ in range(3):
        lines += [(60.1, "node0.log", text) for text in (*trace, CLOSED)]
    incident = incident_of([*lines, (61.0, "node0.log", died)])
    assert incident.confidence in ("weak", "none")


LOST = (
    "[rank0]:[W528 20:40:00.000000001 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0(default_pg) "
    'Rank 0] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut '
    "down too early), with error: failed to recv, got 0 bytes"
)
CLOSED = "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:4747"


def test_a_storm_of_100_000_lines_stays_one_small_incident() -> None:
    lines = trained(60)
    for rank in range(1024):
        if rank != 700:
            lines += nccl_timeout([rank], AT + rank / 1000, file_of=lambda _: "all.log")
    run = RunFacts(state="crashed", ended_at=START + AT)
    book, parser = Incidents({RUN: run}.__getitem__), Parser()
    data = "\n".join([*(text for _, _, text in lines), LOST]).encode()
    chunk = Chunk("all.log", (1, 1, 0), 0, 1, data, final=True)
    events = [each for each in parser.feed(chunk, Origin(RUN), 0.0) if isinstance(each, Event)]
    storm = [replace(events[-1], rank=number % 1024) for number in range(100_000 - len(lines))]
    assert events[-1].kind == "store_lost_during_monitoring"
    for event in events + storm:
        book.take(event, START + AT)
    (incident,) = book.views(START + AT + 200)
    assert incident.root.rank == 700
    assert incident.events > 95_000
    assert len(incident.symptoms) < 20
    assert len(incident.model_dump_json()) < 20_000
    assert len(pickle.dumps(book)) < 2_000_000


def test_a_cascade_of_256_ranks_is_judged_together_and_still_within_a_second() -> None:
    lines = trained(60)
    for rank in range(256):
        if rank != 179:
            lines += nccl_timeout([rank], AT + rank / 1000, file_of=lambda _: "all.log")
    monitor = played(lines)
    (incident,) = monitor.snapshot().incidents
    assert incident.root.rank == 179
    (fired,) = (each for each in monitor.alerts() if each.name == "NcclTimeout")
    assert fired.active_at == pytest.approx(START + AT, abs=1.0)
    assert monitor.snapshot().monitor.evaluations < 400


def test_a_silent_rank_without_any_line_is_called_that() -> None:
    lines = trained(60) + nccl_timeout(without(37), AT, torch="2.6")
    missing = "it has no line in the files that have lines of its neighbours"
    assert missing in incident_of(lines).root.why
    own = [(1.0, "node4.log", "[default5]:step 1 loss 2.31 lr 3e-4")]
    assert missing in incident_of(own + lines).root.why
    own = [(1.0, "node4.log", "[rank37]: step 1 loss 2.31 lr 3e-4")]
    assert missing not in incident_of(own + lines).root.why
