"""The failure taxonomy as the specification: every kind, every sample, every trap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.records import Event
from ldlm_monitor.logs.parse import definitions

TAXONOMY = Path(__file__).resolve().parents[3] / "../shared/reference/taxonomy_patterns.json"
TRAPS = (Path(__file__).parent / "traps.log").read_text().splitlines()
"""Section 5, line by line, and more of the kind."""
pytestmark = pytest.mark.shared
KINDS: list[dict[str, Any]] = (
    json.loads(TAXONOMY.read_text())["kinds"] if TAXONOMY.is_file() else []
)

PROGRESS = {"train_step", "checkpoint_progress"}
"""Samples and lifecycle kinds say these."""
OF_VALUES = {"nonfinite_metric"}
"""Its samples are lines of numbers: the value that is not finite is the news."""
OF_BLOCKS = {
    ("elastic_failure_table", "  rank      : 2 (local_rank: 2)"),
    ("elastic_failure_table", "  exitcode  : -15 (pid: 14294)  (SIGTERM)"),
    ("elastic_failure_table", "  exitcode  : 1 (pid: 14292) "),
    ("elastic_failure_table", "Root Cause (first observed failure):"),
    ("python_exception", "[default1]:[rank1]: ValueError: bad batch at step 12"),
}
"""Lines that say nothing outside the block that they stand in."""
MORE_THAN_GENERIC = {("nccl_warn", "nccl_peer_closed"), ("nccl_warn", "nccl_ib_completion_error")}
"""Of kinds that fit, the first that is not generic counts (section 8)."""
FOLLOWS = {"skipped_step", "nonfinite_metric", "launcher_terminated"}
"""What a sample's event brings with it."""
SEVERITIES = {"fatal": "critical"}
OF_CODE = {"gpu_xid", "nvswitch_sxid"}
MILDER = {
    # An intended stop (section 5, trap 25).
    ("elastic_agent_signaled", "warning"),
    # Retries, of which only the last counts (trap 6).
    ("tcpstore_unreachable", "warning"),
    ("gloo_connect_failed", "info"),
    # Failed reads of a register (trap 11).
    ("host_nic_error", "info"),
    # Every rendezvous prints its ranks, the first one too.
    ("elastic_restart", "info"),
    # A traceback of one line only, cut off.
    ("python_exception", "info"),
}


def samples() -> list[Any]:
    return [
        pytest.param(kind, sample["line"], id=f"{kind['id']}-{index}")
        for kind in KINDS
        for index, sample in enumerate(kind["samples"])
        if kind["id"] not in PROGRESS | OF_VALUES and (kind["id"], sample["line"]) not in OF_BLOCKS
    ]


def test_every_kind_is_defined() -> None:
    loaded = [definitions.load(path) for path in definitions.packaged_files()]
    defined = {event.kind for definitions in loaded for event in definitions.events}
    assert {kind["id"] for kind in KINDS} - PROGRESS - defined == set()


@pytest.mark.parametrize(("kind", "line"), samples())
def test_every_sample_is_an_event_of_its_kind(parse, kind: dict[str, Any], line: str) -> None:
    events = [record for record in parse(line + "\n") if isinstance(record, Event)]
    (event,) = [event for event in events if event.kind not in FOLLOWS]
    if (kind["id"], event.kind) in MORE_THAN_GENERIC:
        return
    assert event.kind == kind["id"]
    assert event.fields["family"] in FAMILIES
    assert event.fields["role"] in ("root", "evidence", "victim", "death", "context", "progress")
    if kind["id"] not in OF_CODE and (kind["id"], event.severity) not in MILDER:
        assert event.severity == SEVERITIES.get(kind["severity"], kind["severity"])


FAMILIES = {
    "nccl_torch",
    "nccl",
    "elastic",
    "store",
    "collective",
    "cuda",
    "host",
    "process",
    "dataloader",
    "numerics",
    "scheduler",
    "resilience",
    "progress",
}


class TestTraps:
    """Section 5: what only looks like a failure raises nothing that could alert."""

    @pytest.mark.parametrize("line", TRAPS)
    def test_a_trap_raises_nothing_that_could_alert(self, parse, line: str) -> None:
        events = [record for record in parse(line + "\n") if isinstance(record, Event)]
        assert [(e.kind, e.severity) for e in events if e.severity in ("error", "critical")] == []

    def test_a_worker_that_the_end_of_the_interpreter_stops_is_no_failure(self, parse) -> None:
        text = (
            "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n"
            "Traceback (most recent call last):\n"
            '  File "/venv/torch/utils/data/dataloader.py", line 1479, in __del__\n'
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated. \n"
        )
        (event,) = [record for record in parse(text) if isinstance(record, Event)]
        assert (event.severity, event.fields["role"]) == ("info", "context")

    def test_a_flushed_completion_is_only_the_second_of_its_queue_pair(self, parse) -> None:
        head = "n:1:2 [4] ib.c:1 NCCL WARN NET/IB : Got completion from peer 1.2.3.4<5> with "
        lines = [
            f"{head}status={status} opcode=0 len=0 vendor err 129 (Recv)" for status in (12, 5)
        ]
        roles = [event.fields["role"] for event in parse("\n".join(lines) + "\n")]
        assert roles == ["root", "victim"]


def test_the_cascade_of_an_nccl_timeout_names_no_root(parse) -> None:
    """Section 4.1: what the waiting ranks say. The culprit is the one that says nothing."""
    text = (Path(__file__).parent / "nccl_timeout.log").read_text()
    events = [record for record in parse(text) if isinstance(record, Event)]
    assert [(event.kind, event.rank) for event in events if event.severity != "info"] == [
        ("nccl_collective_timeout", 0),
        ("nccl_collective_timeout", 1),
        ("nccl_work_failure_status", 0),
        ("nccl_watchdog_terminated", 0),
        ("cxx_terminate", None),
        ("fatal_python_error", None),
        ("elastic_worker_failed", None),
        ("nccl_api_error", 11),
    ]
    assert {event.fields["role"] for event in events} == {"victim", "evidence", "context", "death"}
    last = events[-1].fields
    assert last["nccl_result"] == "ncclRemoteError"
    assert last["last_error"] == (
        "socketProgress: Connection closed by remote peer gpu-node11<41232>"
    )
