"""What stands in front of a line, and whose the line is by it (taxonomy, section 3)."""

from __future__ import annotations

import pytest

from ldlm_monitor.base.records import Event
from ldlm_monitor.logs.parse.envelope import peel
from ldlm_monitor.logs.parse.triggers import compiled

BROKEN = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("prefix", "rank", "node"),
    [
        ("", None, None),
        ("[rank1]: ", 1, None),
        ("[default3]:[rank27]: ", 27, None),
        ("[default3]:", None, None),
        (" 3: [rank27]: ", 27, None),
        ("104: ", None, None),
        ("[2]<stderr>:", 2, None),
        ("[1,3]<stderr>:", 3, None),
        ("(WorkerX pid=4009) ", None, None),
        ("(MegatronPolicyWorker[rank=97] pid=3421713, ip=10.1.2.206) [rank97]: ", 97, "10.1.2.206"),
        ("(WorkerDict pid=77, ip=10.1.2.206) ", None, "10.1.2.206"),
        ("[2026-06-11 11:44:19,104] [INFO] [logging.py:107:log_dist] [Rank 5] ", 5, None),
        ("[pod/llama-worker-12/trainer] ", None, "llama-worker-12"),
        ("llama-worker-12 trainer ", None, "llama-worker-12"),
        ("llama-worker-12 trainer › ", None, "llama-worker-12"),
        ("trainer-1  | ", None, None),
        ("gpu-node07: ", None, "gpu-node07"),
        ("worker-1: [rank9]: ", 9, "worker-1"),
        ("10.0.0.4: ", None, "10.0.0.4"),
        ("localhost: ", None, "localhost"),
        ("ip-10-0-0-4: ", None, "ip-10-0-0-4"),
        ("Jan 21 04:41:44 gpu-node07 torchrun[4711]: ", None, "gpu-node07"),
        ("2025-01-21T04:41:44+0000 gpu-node07 torchrun[4711]: [rank3]: ", 3, "gpu-node07"),
        ("2025-01-21T04:41:44.123456789Z stderr F [rank3]: ", 3, None),
        ("2026-06-11T11:44:19.104Z ", None, None),
    ],
)
def test_a_prefix_tells_rank_and_node(parse, prefix: str, rank: int | None, node: str) -> None:
    (event,) = [r for r in parse(f"{prefix}{BROKEN}\n") if isinstance(r, Event)]
    assert (event.kind, event.rank, event.node) == ("no_space_left", rank, node)
    assert event.message == BROKEN


def test_a_pods_name_of_any_bytes_is_bounded_text() -> None:
    assert peel(b"[pod/a\xff/c] x").node == "a\ufffd"
    assert peel(b"a" * 5000 + b"-node1: x").node == "a" * 253


@pytest.mark.parametrize("text", ["[Rank 3] step 120", "[RANK 3] loading", "Rank 3: step 120"])
def test_the_rank_that_a_trainer_prints_is_read_and_left_in_its_text(text: str) -> None:
    envelope = peel(text.encode())
    assert (envelope.rank, envelope.start) == (3, 0)


@pytest.mark.parametrize(
    "line",
    [
        "gpu-node07:48213:48990 [3] misc/socket.cc:58 (socketProgress) NCCL WARN x",
        "[2026-06-11 11:44:19] gpu-node07:48213:48990 [3] misc/socket.cc:58 NCCL WARN x",
        "[rank3]: gpu-node07:48213:48990 [3] NCCL WARN x",
    ],
)
def test_nccls_own_header_names_the_host_and_stays_in_the_text(line: str) -> None:
    envelope = peel(line.encode())
    assert envelope.node == "gpu-node07"
    assert line.encode()[envelope.start :].startswith(b"gpu-node07:48213")


@pytest.mark.parametrize(
    "line",
    [
        "[E1121 07:31:02.551120034 ProcessGroupNCCL.cpp:683] [Rank 6] Watchdog caught x",
        "[rank97]:[E323 05:14:22.969036376 ProcessGroupNCCL.cpp:683] [Rank 6] Watchdog caught x",
        "[E ProcessGroupNCCL.cpp:828] [Rank 6] Watchdog caught x",
    ],
)
def test_the_rank_inside_torchs_own_message_is_never_the_global_one(line: str) -> None:
    assert peel(line.encode()).rank != 6


@pytest.mark.parametrize(
    "text",
    [
        "epoch1: loss 0.3",
        "val-top1: 0.71",
        "step10: 0.5",
        "mlx5_0: link up",
        "node_rank0: 0",
        "gpt-2 model loaded",
        "RuntimeError: bad batch",
        "multi-node training started",
        "2026-06-11 11:44:19 INFO train: epoch 3",
        "Mon loss 0.3",
        "[0.123] loss",
        "ranking: 3",
    ],
)
def test_a_text_that_only_looks_prefixed_is_left_whole(text: str) -> None:
    envelope = peel(text.encode())
    assert text.encode()[envelope.start :] in (text.encode(), b"INFO train: epoch 3")
    assert (envelope.rank, envelope.node) == (None, None)


@pytest.mark.parametrize(
    ("line", "time", "node"),
    [
        ("[ 1234.567890] {}", None, None),
        ("<4>[ 1234.567890] {}", None, None),
        ("[  +0.000316] {}", None, None),
        ("[Sun Feb 23 16:24:18 2025] {}", None, None),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 {}", 1737434504.283302, None),
        ("kern  :err   : [Sun Feb 23 16:24:18 2025] {}", None, None),
        ("Jan 21 04:41:44 gpu-node07 kernel: [ 1234.567890] {}", None, "gpu-node07"),
        ("Jan  1 04:41:44 gpu-node07 kernel: {}", None, "gpu-node07"),
        ("2025-01-21T04:41:44+0000 gpu-node07 kernel: {}", 1737434504.0, "gpu-node07"),
    ],
)
def test_the_kernels_stamps_are_peeled(parse, line: str, time: float, node: str) -> None:
    oom = "Memory cgroup out of memory: Killed process 123077 (python) total-vm:48205792kB"
    (event,) = parse(line.format(oom) + "\n")
    assert (event.kind, event.message, event.time) == ("host_oom_kill", oom, time)
    assert event.node == node


def test_the_trainers_own_bars_need_no_peeling() -> None:
    bars = compiled().bars
    bar = b" 50%|##8 | 5/10 [00:43<17:14,  2.64it/s]"
    assert bars.alone(b"Training:" + bar)
    assert bars.alone(b"Eval:" + bar)
    for prefix in (b"worker-1: ", b"[rank0]: ", b"E1022 10:15:00.1 12 a.cc:5] ", b" 3: "):
        assert bars.alone(prefix + b"Training:" + bar) is None
