"""What became of a run that takes no step, by what was found."""

from dataclasses import replace

import pytest

from ldlm_monitor.base.records import Event, Position, Sample, TimedRows
from ldlm_monitor.judge.run.lifecycle import Lifecycle
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.judge.run.training_run import TrainingRun
from ldlm_monitor.judge.run.verdict import Findings, verdict


def event(kind: str, message: str = "", **fields: object) -> Event:
    severity = fields.pop("severity", "info")
    return Event(
        kind=kind,
        severity=severity,
        run="r",
        message=message,
        fields={"role": "evidence", "probe": True, **fields},
        position=Position("train.log", 1, 0),
    )


def looks(*found: dict[str, object]) -> Event:
    processes = [{"rank": number, "pid": 100 + number, **each} for number, each in enumerate(found)]
    return event("log_silence", processes=processes)


BUSY = {"state": "running", "cores": 1.0}
IDLE = {"state": "sleeping", "cores": 0.0, "waits_in": "futex_wait"}
GONE = {"state": "gone"}
FAILED = event(
    "python_exception",
    "ValueError: bad batch",
    severity="error",
    role="root",
    traceback="...",
    probe=False,
)
MISSING = event("fr_dump", "rank 2 did not join it", severity="warning", missing_ranks=[2])
OOM = event("host_oom_kill", "the kernel killed 1", severity="critical", role="root")


def word(*events: Event, **how: bool) -> str | None:
    found = verdict(events, **how)
    return None if found is None else found.word


def test_where_nothing_was_found_nothing_is_said() -> None:
    assert verdict([]) is None


def test_alive_and_computing_is_silent() -> None:
    assert word(looks(BUSY, BUSY)) == "silent"


def test_alive_and_idle_stopped_or_waiting_for_a_disk_is_hung() -> None:
    for state in ({"state": "stopped"}, {"state": "disk sleep", "waits_in": "rpc_wait"}, IDLE):
        assert word(looks(BUSY, state)) == "hung"
    assert str(verdict([looks(IDLE)])) == (
        "hung: rank 0 (pid 100) sleeps in futex_wait without CPU time"
    )
    assert str(verdict([looks(IDLE, IDLE)])) == (
        "hung: rank 0 (pid 100), rank 1 (pid 101) sleep in futex_wait without CPU time"
    )


def test_a_collective_that_ranks_did_not_join_comes_first_of_the_reasons() -> None:
    found = verdict([looks(BUSY, IDLE), MISSING])
    assert found is not None
    assert (found.word, found.reasons[0]) == ("hung", "rank 2 did not join it")


def test_ranks_that_spin_in_a_collective_hang_where_a_flight_recorder_says_so() -> None:
    assert word(looks(BUSY, BUSY), MISSING) == "hung"


def test_that_ras_finds_nothing_never_vetoes() -> None:
    well = event("ras_status", "RAS finds nothing wrong", role="context")
    assert word(well) is None
    assert word(looks(IDLE), well) == "hung"
    assert word(looks(BUSY), well) == "silent"


def test_gone_without_a_message_is_killed_and_out_of_memory_is_reported_where_counted() -> None:
    assert word(looks(BUSY, GONE)) == "killed"
    assert word(looks(GONE)) == "ended"  # nobody writes any more: no line says why
    found = verdict([looks(BUSY, GONE), OOM])
    assert str(found) == ("killed: rank 1 (pid 101) is gone; out of memory: the kernel killed 1")


def test_gone_behind_a_traceback_is_crashed() -> None:
    assert str(verdict([FAILED, looks(BUSY, GONE)])) == "crashed: ValueError: bad batch"
    assert word(FAILED) == "crashed"


def test_a_traceback_that_all_processes_survived_was_caught() -> None:
    assert word(FAILED, looks(BUSY, BUSY)) == "silent"


def test_the_verdict_follows_the_exit_status() -> None:
    assert "SIGKILL" in str(verdict([looks({"state": "zombie", "status": 9})]))
    assert word(looks({"state": "zombie", "status": 1 << 8})) == "crashed"
    assert word(looks({"state": "zombie", "status": 0})) == "finished"


def test_finished_needs_the_status_of_all_processes_that_left() -> None:
    left = {"state": "zombie", "status": 0}
    assert word(looks(left, left)) == "finished"
    assert word(looks(left, GONE)) == "ended"


def test_gone_after_the_last_step_there_was_is_finished() -> None:
    assert word(looks(GONE), complete=True) == "finished"


def test_the_last_look_counts() -> None:
    assert word(looks(IDLE), looks(BUSY)) == "silent"


def test_very_many_processes_are_counted_not_listed() -> None:
    assert "and 61 more" in str(verdict([looks(*[IDLE] * 64)]))


def test_that_who_only_hands_a_log_on_waits_is_no_sign() -> None:
    relay = {**IDLE, "usual_cores": 0.001}
    assert word(looks(relay)) is None
    assert word(looks({**IDLE, "usual_cores": 0.9})) == "hung"
    assert word(looks({**relay, "state": "stopped"})) == "hung"


def test_where_a_rank_stood_when_its_stacks_were_dumped_is_added() -> None:
    stack = event("stack_dump", "main thread in fetch (train.py:8)", frame="fetch (train.py:8)")
    found = verdict([looks(IDLE), replace(stack, rank=0)])
    assert found is not None
    assert found.reasons[-1] == "rank 0: main thread in fetch (train.py:8)"
    assert word(stack) is None


def test_a_verdict_survives_a_jump_of_the_clock() -> None:
    run = TrainingRun("r", 0.0, Stall(), Position("train.log", 1, 0))
    for step in range(100):
        line = Position("train.log", step + 1, 0)
        step_taken = Sample(run="r", step=step, values={}, position=line)
        run.observe([TimedRows(step_taken, (float(step),))], float(step))
    run.tick(300.0)
    run.observe([TimedRows(looks({"state": "stopped"}), (301.0,))], 301.0)
    before = run.verdict
    run.shift(3600.0)
    assert run.life.state == "stalled"
    assert run.verdict == before
    assert before is not None


@pytest.mark.parametrize(
    ("found", "hangs"),
    [
        ([BUSY, {"state": "zombie", "status": 9}], True),  # killed beside a living rank
        ([{"state": "disk sleep"}, {"state": "zombie", "status": 1 << 8}], True),  # crashed
        ([BUSY, IDLE], True),
        ([BUSY, {"state": "disk sleep"}], False),  # it may save
        ([BUSY, BUSY], False),
        ([BUSY, {"state": "zombie", "status": 0}], False),  # one had no more to do
    ],
)
def test_a_rank_that_is_gone_leaves_the_others_hanging(
    found: list[dict[str, object]], *, hangs: bool
) -> None:
    life = Lifecycle(0.0, Stall(), Position("train.log", 1, 0))
    findings = Findings(life)
    life.observe_event(event("config"), 0.0)
    findings.add(looks(*found))
    assert not findings.show_a_hang, "it does not stall"
    life.tick(601.0)
    assert findings.show_a_hang is hangs


def test_pids_are_bounded_and_those_of_a_restart_replace_the_old_ones() -> None:
    found = Findings(Lifecycle(0.0, Stall(), Position("train.log", 1, 0)))
    for rank in range(5000):
        found.note_process(rank, "gpu01", 1)
    found.note_process(0, "gpu01", 77)
    found.note_process(1, None, 78)
    assert found.pids[0] == ("gpu01", 77)
    assert found.pids[1] == ("gpu01", 1)
    assert len(found.pids) == 4096


def test_flight_records_are_looked_for_where_lines_say_that_they_were_written() -> None:
    found = Findings(Lifecycle(0.0, Stall(), Position("train.log", 1, 0)))
    found.add(replace(MISSING, rank=1))  # what a probe read of them has no path
    found.add(replace(event("stack_dump", path="/tmp/stacks"), rank=1))
    assert found.dumps == {}
    for rank in range(5000):
        found.add(replace(event("fr_dump", path=f"/tmp/nccl_{rank}"), rank=rank))
    assert (found.dumps[7], len(found.dumps)) == ("/tmp/nccl_7", 4096)


def test_what_was_found_of_collectives_and_memory_stands_beside_the_logged_end() -> None:
    own = event("my_record", "rank 3 is missing", meaning={"accuses": "missing", "is": "finding"})
    for finding, said in (
        (OOM, "out of memory: the kernel killed 1"),
        (MISSING, "rank 2 did not join it"),
        (event("ras_status", "RAS: rank 4 is lost", dead=[4]), "RAS: rank 4 is lost"),
        (own, "rank 3 is missing"),
    ):
        life = Lifecycle(0.0, Stall(), Position("train.log", 1, 0))
        findings = Findings(life)
        life.observe_event(FAILED, 1.0)
        findings.add(finding)
        life.tick(4000.0)
        assert str(findings.verdict(41, 100)) == f"crashed: ValueError: bad batch; {said}"
    findings.add(event("stack_dump", "rank 1 is in fetch", accused=True))
    assert "fetch" not in str(findings.verdict(41, 100))  # a look at stacks is no record


STOPPED, DISK = {"state": "stopped"}, {"state": "disk sleep", "waits_in": "rpc_wait"}


FIRST, BOTH = "rank 0 (pid 100)", "rank 0 (pid 100), rank 1 (pid 101)"
FILES = "for a disk, a file server or a driver"


def zombie(status: int) -> dict[str, object]:
    return {"state": "zombie", "status": status}


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        ([BUSY], f"silent: {FIRST} runs and computes, on 1.0 cores"),
        ([BUSY, {**BUSY, "cores": 2.5}], "silent: 2 processes run and compute, on up to 2.5 cores"),
        ([{**BUSY, "rank": None}], "silent: pid 100 runs and computes, on 1.0 cores"),
        ([{**BUSY, "cores": 0.05}], f"silent: {FIRST} runs and computes, on 0.1 cores"),
        ([{**BUSY, "cores": 0.04}], f"hung: {FIRST} sleeps without CPU time"),
        ([STOPPED], f"hung: {FIRST} is stopped; SIGCONT continues it"),
        ([STOPPED] * 2, f"hung: {BOTH} are stopped; SIGCONT continues them"),
        ([DISK], f"hung: {FIRST} waits {FILES} in rpc_wait"),
        ([DISK, {**DISK, "waits_in": "x"}], f"hung: {BOTH} wait {FILES}"),
        ([IDLE, BUSY], f"hung: {FIRST} is idle while the others compute in futex_wait"),
        ([IDLE, IDLE, BUSY], f"hung: {BOTH} are idle while the others compute in futex_wait"),
        ([GONE] * 4 + [BUSY], f"killed: {BOTH}, rank 2 (pid 102) and 1 more are gone"),
        ([zombie(15)], f"killed: {FIRST} was ended by SIGTERM"),
        ([zombie(9)] * 2, f"{BOTH} were ended by SIGKILL"),
        ([zombie(3 << 8)], f"crashed: {FIRST} ended with exit code 3"),
        ([zombie(0)], f"finished: {FIRST} ended without an error"),
        ([GONE], f"ended: {FIRST} is gone, and no line says why: a signal, or an end without"),
    ],
)
def test_a_verdict_names_the_processes_and_what_they_do(
    processes: list[dict[str, object]], said: str
) -> None:
    assert said in str(verdict([looks(*processes)]))


@pytest.mark.parametrize(
    ("found", "computes"), [([BUSY], True), ([{**BUSY, "cores": 0.04}], False)]
)
def test_whether_a_process_computes_is_part_of_the_verdict(
    found: list[dict[str, object]], *, computes: bool
) -> None:
    given = verdict([looks(*found)])
    assert given is not None
    assert given.computes is computes
    accused = verdict([looks(*found), MISSING])  # it spins in a collective
    assert accused is not None
    assert not accused.computes
