"""Which processes of a run are here, and that all of them are gone."""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ldlm_callback import rank as written
from ldlm_callback.rank import pid_namespace, start_ticks
from ldlm_monitor.host.probe import process
from ldlm_monitor.host.probe.heartbeat import may_live, read
from ldlm_monitor.host.probe.run_processes import departed, family_of, present, processes_event
from ldlm_monitor.judge.run.verdict import ProbeCandidate
from tests.host.probe.made_proc import BOOTED, add, host

Case = Callable[..., ProbeCandidate]
HERE = socket.gethostname()
NOBODY = 2**22 + 1  # above the kernel's largest pid


def silent(**more: Any) -> dict[str, Any]:
    """Beyond its limit without a step."""
    now = time.time()
    return {"files": (), "last_progress_at": now - 60, "stalls_at": now - 1, **more}


def test_ranks_of_rows_whose_processes_have_left_this_host_are_gone(case: Case) -> None:
    pids = {0: (HERE, NOBODY), 1: (HERE, NOBODY + 1)}
    event = departed(case(**silent(pids=pids, world_size=2)))
    assert event is not None
    assert (event.kind, event.fields["alive"]) == ("exit_without_error", 0)
    assert event.message == f"ranks 0-1 (pid {NOBODY}, pid {NOBODY + 1}) gone"


def test_a_pid_that_another_process_got_since_the_last_step_is_not_the_ranks(case: Case) -> None:
    pids = {None: (HERE, os.getpid())}
    long_ago = time.time() - 10 * 365 * 86400
    assert departed(case(**silent(pids=pids, last_progress_at=long_ago))) is not None
    assert departed(case(**silent(pids=pids, last_progress_at=time.time() - 0.001))) is None


@pytest.mark.parametrize(
    "more",
    [
        {"pids": {}},
        {"pids": {0: (HERE, NOBODY)}, "world_size": 2},
        {"pids": {0: (HERE, NOBODY), 1: ("elsewhere", NOBODY)}},
        {"pids": {0: (HERE, NOBODY)}, "stalls_at": None},
        {"pids": {0: (HERE, NOBODY)}, "stalls_at": time.time() + 3600},
    ],
    ids=["no rows", "a rank is unknown", "another host", "no limit", "not late yet"],
)
def test_nothing_is_known_of_processes_that_may_live_elsewhere_or_go_on(
    case: Case, more: dict[str, Any]
) -> None:
    assert departed(case(**silent(**more))) is None


@pytest.fixture
def page(tmp_path: Path) -> Callable[..., Any]:
    def make(rank: int, **changes: Any) -> Any:
        facts = {
            "pid": os.getpid(), "stack_signal": 0, "started": start_ticks(), "rank": rank,
            "pid_namespace": pid_namespace(), "host": HERE.encode(), "stack_file": b"",
            "recorder_socket": b"",
        }  # fmt: skip
        path = tmp_path / f"heartbeat_rank{rank}"
        writer = written.HeartbeatPage(path, written.Identity(**{**facts, **changes}))
        writer.beat(written.Beat(step=4, time=time.time()))
        writer.sync()
        return read(path)

    return make


def test_a_page_may_be_of_a_living_process_unless_this_host_would_see_it(
    page: Callable[..., Any],
) -> None:
    own = page(0)
    assert may_live(own)
    dead = replace(own, pid=NOBODY)
    assert not may_live(dead)
    for unseen in ({"host": "elsewhere"}, {"pid_namespace": 1}, {"pid": 0}, {"pid": -1}):
        assert may_live(replace(dead, **unseen))


def test_heartbeats_of_dead_ranks_show_that_a_run_is_gone_at_once(
    case: Case, page: Callable[..., Any], tmp_path: Path
) -> None:
    page(0, pid=NOBODY)
    page(1, pid=NOBODY + 1)
    run = {"files": (str(tmp_path / "health_rank0.jsonl"),), "last_progress_at": time.time()}
    event = departed(case(**run, world_size=2))
    assert event is not None
    assert [each["state"] for each in event.fields["processes"]] == ["gone", "gone"]
    assert departed(case(**run, world_size=3)) is None, "a rank has left no page"
    page(1)
    assert departed(case(**run, world_size=2)) is None, "one lives"


def look(state: str, rank: int | None, pid: int) -> dict[str, Any]:
    return {"state": state, "rank": rank, "pid": pid}


def test_the_event_of_processes_counts_them_by_state_the_ended_first(case: Case) -> None:
    states = [("sleeping", 0), ("gone", 1), ("sleeping", 2), ("zombie", 3), ("sleeping", 4)]
    event = processes_event(case(), [look(state, rank, 10 + rank) for state, rank in states])
    assert (event.kind, event.fields["alive"]) == ("exit_without_error", 3)
    assert [each["rank"] for each in event.fields["processes"]] == [1, 3, 0, 2, 4]
    assert event.message == (
        "ranks 0,2,4 (pid 10, pid 12, ...) sleeping, rank 1 (pid 11) gone, rank 3 (pid 13) zombie"
    )
    alive = processes_event(case(), [look("running", None, 7), look("running", None, 8)])
    assert (alive.kind, alive.message) == ("log_silence", "pid 7, pid 8 running")
    many = processes_event(case(), [look("running", n, n) for n in range(100)])
    assert (len(many.fields["processes"]), many.fields["alive"]) == (64, 100)


def test_a_pid_of_a_row_is_the_ranks_if_its_process_ran_here_at_the_last_step(
    case: Case, tmp_path: Path
) -> None:
    proc = host(tmp_path / "proc")
    add(proc, 10, started=100 * process.TICKS)
    add(proc, 11, started=300 * process.TICKS)
    seen = process.scan(proc)
    short = HERE.partition(".")[0]
    pids = {0: (f"{short}.cluster", 10), 1: ("localhost", 11), 2: (short, 99), 3: ("other", 10)}
    for at, expected in ((BOOTED + 100.0, {0: 10}), (BOOTED + 300.0, {0: 10, 1: 11})):
        run = case(files=("-",), pids=pids, last_progress_at=at)
        assert {rank: each.pid for rank, each in family_of(run, seen).ranks.items()} == expected
    assert family_of(case(files=(), pids=pids, last_progress_at=BOOTED + 99.0), seen).ranks == {}


def test_runs_with_processes_here_have_a_view_without_gpus(
    case: Case, train: Callable[..., Any]
) -> None:
    training = train("sleep", rank=1)
    views = present([case(), case(run="other", files=())], time.time())
    assert [*views] == ["r"]
    assert [each.pid for each in views["r"].processes] == [training.pid]
    assert (views["r"].gpus, views["r"].without_gpus) == ((), "")
    assert present([], 0.0) == {}
