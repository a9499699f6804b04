"""What is decided about alerts and ends, as functions of both and of time."""

import math
from dataclasses import replace

import pytest

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.incident_view import DecisionView
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import (
    AlertView,
    MonitorView,
    RunView,
    Snapshot,
    VerdictView,
)
from ldlm_monitor.host.supervise.reactions import END_LINE, Order, Reactions, Supervisor
from ldlm_monitor.judge.incidents.decision_table import DecisionFacts, decide

START = 1_000_000.0
HUNG = VerdictView(word="hung", reasons=("rank 1 sleeps",))
BUSY = VerdictView(word="silent", reasons=("pid 7 computes",), computes=True)


def snapshot(
    *alerts: AlertView,
    step: int = 10,
    limit: float = 30.0,
    last_progress_at: float | None = None,
    decision: DecisionView | None = None,
    verdict: VerdictView | None = HUNG,
    events: dict[str, int] | None = None,
) -> Snapshot:
    run = RunView(
        name="train",
        framework="",
        world_size=None,
        state="running",
        health="HEALTHY",
        step=step,
        total_steps=None,
        epoch=None,
        progress=None,
        eta_seconds=None,
        started_at=None,
        last_progress_at=last_progress_at,
        stall_limit_seconds=limit,
        ended_at=None,
        files=(),
        statistics={},
        event_counts=events or {},
        skipped_steps=0,
        settings={},
        decision=decision,
        verdict=verdict,
    )
    return Snapshot(
        version=1,
        at=START,
        runs=(run,),
        alerts=alerts,
        events=(),
        monitor=MonitorView.fresh(),
        points=(),
    )


def firing(name: str, at: float, *, run: str = "train", severity: str = "critical") -> AlertView:
    return AlertView(
        name=name,
        state="firing",
        labels={"run": run, "severity": severity},
        annotations={},
        value=1.0,
        active_at=at,
        fired_at=at,
        position=None,
    )


def supervisor(*on: str, budget: str = "5/24h") -> Supervisor:
    return Supervisor(Reactions.read(on, budget), "train", START)


def orders(of: Supervisor, seen: Snapshot, now: float) -> list[Order]:
    return list(of.observe(seen, now))


def again(of: Supervisor, now: float) -> None:
    """The command fails, and is started again."""
    order = of.ended(1, now)
    assert order.start_at
    of.begin(order.start_at)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hang",
        "hang=",
        "hang=restart",
        "crash=kill",
        "nan=stacks",
        "fire=stop",
        "crash=restart:",
        "hang=kill,,stop",
    ],
)
def test_an_unknown_reaction_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(UsageError, match=r"--on .*: is not known; there are hang="):
        Reactions.read([text], "5/24h")


@pytest.mark.parametrize("text", ["5", "5/24", "x/24h", "5/24q", "5/h"])
def test_a_budget_is_a_number_and_a_duration(text: str) -> None:
    with pytest.raises(UsageError, match="write it as 5/24h"):
        Reactions.read([], text)


def test_without_a_reaction_nothing_is_done() -> None:
    watching = supervisor()
    assert not orders(watching, snapshot(firing("TrainingStalled", START + 50)), START + 50)
    assert watching.ended(1, START + 60) == Order()


def test_a_hang_is_terminated_then_killed() -> None:
    acting = supervisor("hang=stacks,kill")
    seen = snapshot(firing("TrainingStalled", START + 50))
    (order,) = orders(acting, seen, START + 50)
    assert (order.number, order.evidence) == (15, seen.alerts[0])
    assert not orders(acting, seen, START + 59)
    (order,) = orders(acting, seen, START + 60)
    assert order.number == 9
    assert not orders(acting, seen, START + 70)


def killed_after(verdict: VerdictView | None, **events: int) -> float:
    """Seconds after the last step until a hang is killed that fires 30 s after it."""
    acting, alert = supervisor("hang=kill"), firing("TrainingStalled", START + 30)
    for second in range(30, 400):
        seen = snapshot(alert, last_progress_at=START, verdict=verdict, events=events)
        if orders(acting, seen, START + second):
            return second
    return math.inf


def test_a_pause_in_which_a_process_computes_may_be_an_evaluation_for_five_minutes() -> None:
    assert killed_after(BUSY) == killed_after(BUSY, run_started=1, eval_finished=1) == 300
    assert killed_after(BUSY, eval_started=1) == 30  # its log announces each


def test_processes_that_sleep_are_a_hang_at_once() -> None:
    assert killed_after(HUNG) == 30


def test_a_pause_in_which_no_process_is_seen_may_be_an_evaluation_for_five_minutes() -> None:
    assert killed_after(None) == 300


@pytest.mark.parametrize(
    "alert",
    [
        firing("TrainingStalled", START + 50, severity="warning"),
        firing("TrainingStalled", START + 50, run="another"),
        firing("LossSpike", START + 50),
        firing("TrainingStalled", START - 50),
    ],
    ids=["warning", "other run", "other alert", "of the attempt before"],
)
def test_other_alerts_are_no_hang(alert: AlertView) -> None:
    assert not orders(supervisor("hang=kill"), snapshot(alert), START + 20)


def test_an_alert_that_goes_on_after_a_restart_counts_when_the_new_attempt_waited_too() -> None:
    acting = supervisor("hang=kill")
    seen = snapshot(firing("TrainingStalled", START - 50), limit=30.0)
    assert not orders(acting, seen, START + 30)
    assert orders(acting, seen, START + 31)


def test_the_nan_of_the_attempt_before_is_no_reason_to_kill_this_one() -> None:
    acting = supervisor("nan=kill", "crash=restart:3")
    first = snapshot(firing("NonFiniteLoss", START + 5))
    assert orders(acting, first, START + 5)
    assert acting.ended(-15, START + 6).start_at == START + 7
    acting.begin(START + 8.5)
    assert not orders(acting, first, START + 8.75)
    assert orders(acting, snapshot(firing("NonFiniteLoss", START + 9)), START + 9)


def test_an_alert_that_is_not_resolved_yet_is_no_hang_of_an_attempt_with_steps() -> None:
    acting = supervisor("hang=kill")
    alert = firing("TrainingStalled", START - 50)
    stepping = snapshot(alert, limit=30.0, last_progress_at=START + 25)
    assert not orders(acting, stepping, START + 31)


def test_a_crash_starts_again_with_rising_pauses_until_the_restarts_made_no_step() -> None:
    acting = supervisor("crash=restart:2")
    first = acting.ended(1, START)
    assert (first.start_at, first.environment) == (START + 1, {"LDLM_ATTEMPT": "2"})
    second = acting.ended(1, START + 5)
    assert (second.start_at, second.environment) == (START + 7, {"LDLM_ATTEMPT": "3"})
    assert acting.ended(1, START + 9) == Order("no restart: 2 made no new step")


def test_new_steps_give_the_restarts_back() -> None:
    acting = supervisor("crash=restart:1")
    orders(acting, snapshot(step=10), START)
    again(acting, START)
    orders(acting, snapshot(step=11), START + 5)
    again(acting, START + 6)
    orders(acting, snapshot(step=11), START + 8)
    assert acting.ended(1, START + 9).start_at is None


def test_steps_that_are_read_after_an_end_are_of_the_attempt_that_ended() -> None:
    acting = supervisor("crash=restart:1")
    orders(acting, snapshot(step=10), START)
    assert acting.ended(1, START + 1).start_at
    orders(acting, snapshot(step=12), START + 1.5)
    acting.begin(START + 2)
    orders(acting, snapshot(step=12), START + 3)
    assert acting.ended(1, START + 4).note == "no restart: 1 made no new step"


def test_a_budget_ends_restarts_that_make_steps() -> None:
    acting = supervisor("crash=restart:1", budget="2/10m")
    for attempt in range(2):
        orders(acting, snapshot(step=10 + attempt), START + 10 * attempt)
        again(acting, START + 10 * attempt)
    orders(acting, snapshot(step=20), START + 20)
    assert acting.ended(1, START + 23).note == "no restart: the budget of 2 is used up"


def test_a_budget_is_of_the_last_hours() -> None:
    acting = supervisor("crash=restart:1", budget="1/10m")
    again(acting, START)
    orders(acting, snapshot(step=20), START + 10)
    assert acting.ended(1, START + 600).start_at


@pytest.mark.parametrize(("code", "why"), [(0, "it succeeded"), (-15, "a person ended it")])
def test_a_wanted_end_starts_nothing(code: int, why: str) -> None:
    acting = supervisor("crash=restart:3")
    if code:
        acting.interrupted()
    assert acting.ended(code, START) == Order(), why


def test_a_nan_that_stops_is_no_crash() -> None:
    acting = supervisor("nan=stop", "crash=restart:3")
    (order,) = orders(acting, snapshot(firing("NonFiniteLoss", START + 5)), START + 5)
    assert order.number == 15
    assert acting.ended(-15, START + 6) == Order()


def asked_to_stop() -> Supervisor:
    acting = supervisor("nan=stop", "crash=restart:3")
    (order,) = orders(acting, snapshot(firing("NonFiniteLoss", START + 5)), START + 5)
    assert order.asks == "NonFiniteLoss, --on nan=stop"
    acting.wait_for_stop(START + 50)
    return acting


def test_a_training_that_was_asked_to_stop_gets_a_signal_only_when_it_does_not() -> None:
    acting, seen = asked_to_stop(), snapshot(firing("NonFiniteLoss", START + 5))
    assert not acting.kills
    assert not orders(acting, seen, START + 49)
    (order,) = orders(acting, seen, START + 50)
    assert (order.number, order.note) == (15, "the command did not stop: SIGTERM")
    assert not orders(acting, seen, START + 59)
    (order,) = orders(acting, seen, START + 60)
    assert order.number == 9


def test_a_training_that_stopped_as_asked_is_over_and_gets_no_signal() -> None:
    acting = asked_to_stop()
    assert acting.ended(0, START + 20) == Order()
    assert not orders(acting, snapshot(firing("NonFiniteLoss", START + 5)), START + 100)


@pytest.mark.parametrize("on", ["nan=kill", "hang=stop"])
def test_who_is_killed_or_hangs_is_asked_for_nothing(on: str) -> None:
    alert = "TrainingStalled" if "hang" in on else "NonFiniteLoss"
    (order,) = orders(supervisor(on), snapshot(firing(alert, START + 5)), START + 5)
    assert (order.number, order.asks) == (15, "")


def test_a_command_that_we_kill_and_that_exits_with_0_is_started_again() -> None:
    acting = supervisor("hang=kill", "crash=restart:1")
    assert orders(acting, snapshot(firing("TrainingStalled", START + 50)), START + 50)
    assert acting.ended(0, START + 51).start_at


def failure(kind: str, message: str, **facts: object) -> DecisionView:
    return decide(DecisionFacts(kind=kind, message=message, failed=True, **facts))  # type: ignore[arg-type]


def test_a_crash_that_is_decided_stop_is_not_restarted() -> None:
    run = supervisor("crash=restart:3")
    due = run.ended(1, START + 9)
    assert due.start_at is not None
    seen = snapshot(decision=failure("python_exception", "TypeError: x"))
    found = run.reconsidered(due, seen)
    assert found.start_at is None
    assert found.note.startswith("no restart: STOP")


def test_a_restart_gets_the_node_to_leave_out() -> None:
    run = supervisor("crash=restart:3")
    due = run.ended(1, START + 9)
    broken = failure("cuda_error", "CUDA error: uncorrectable ECC error encountered", node="gpu07")
    found = run.reconsidered(due, snapshot(decision=broken))
    assert found.start_at
    assert found.environment == {"LDLM_ATTEMPT": "2", "LDLM_EXCLUDE_NODES": "gpu07"}


def test_what_a_killed_hang_printed_does_not_forbid_its_restart() -> None:
    run = supervisor("hang=kill", "crash=restart:3")
    assert orders(run, snapshot(firing("TrainingStalled", START + 9)), START + 9)
    due = run.ended(-15, START + 10)
    seen = snapshot(decision=failure("python_exception", "RuntimeError: worker died"))
    assert run.reconsidered(due, seen).start_at == due.start_at


def test_an_end_without_a_known_failure_is_restarted() -> None:
    run = supervisor("crash=restart:3")
    due = run.ended(1, START + 9)
    found = run.reconsidered(due, snapshot())
    assert (found.start_at, found.note) == (due.start_at, due.note)


def decided(**more: object) -> DecisionView:
    facts = {"confidence": "probable", "reasons": ("a spike",), "rule": "spike", "if_wrong": ""}
    return DecisionView.model_validate({"decision": "ROLLBACK", **facts, **more})


def test_a_restart_gets_the_step_to_go_back_to_and_those_to_leave_out() -> None:
    run = supervisor("crash=restart:3")
    due = run.ended(1, START + 9)
    back = decided(rollback_step=400, skip_steps=(410, 420))
    found = run.reconsidered(due, snapshot(decision=back))
    assert found.environment == {
        "LDLM_ATTEMPT": "2", "LDLM_RESUME_STEP": "400", "LDLM_SKIP_STEPS": "410-420",
    }  # fmt: skip
    assert found.note == f"{due.note}, from step 400; decided: {back.phrase}"
    assert found.start_at == due.start_at


def test_nodes_that_failed_stay_left_out_and_a_fifth_ends_the_run() -> None:
    run = supervisor("crash=restart:9", budget="9/24h")
    for number in range(1, 6):
        due = run.ended(1, START + number)
        found = run.reconsidered(due, snapshot(decision=decided(node=f"gpu{number}")))
        nodes = ",".join(f"gpu{each}" for each in range(1, number + 1))
        if number < 5:
            assert found.environment["LDLM_EXCLUDE_NODES"] == nodes
            run.begin(START + number)
    assert found == Order("no restart: 5 nodes failed")
    assert run.ended(1, START + 9).environment["LDLM_EXCLUDE_NODES"] == nodes


def test_the_pauses_before_restarts_double_up_to_five_minutes() -> None:
    run = supervisor("crash=restart:20", budget="20/24h")
    pauses = []
    for _ in range(11):
        due = run.ended(1, START)
        assert due.start_at is not None
        pauses.append(due.start_at - START)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_the_note_of_a_restart_says_why_and_how_many_there_were() -> None:
    run = supervisor("crash=restart:5", budget="3/2h")
    assert run.ended(-9, START).note == "restart 1 of 3 in 2h: signal 9, after 1 s"
    run.begin(START + 1)
    orders(run, snapshot(step=0), START + 2)
    assert run.ended(7, START + 3).note == "restart 2 of 3 in 2h: exit code 7 at step 0, after 1 s"
    assert supervisor("crash=restart").ended(1, START).start_at, "once, where no number is given"


def test_of_another_run_nothing_is_done() -> None:
    acting = supervisor("hang=kill")
    other = snapshot(firing("TrainingStalled", START + 50)).runs[0]
    seen = snapshot(firing("TrainingStalled", START + 50)).model_copy(
        update={"runs": (other.model_copy(update={"name": "other"}),)}
    )
    assert not orders(acting, seen, START + 50)


def test_the_end_of_a_log_is_read_with_its_line_of_this_attempt() -> None:
    acting = supervisor("crash=restart:3")
    end = Event(
        run="train", rank=None, time=START, kind="elastic_worker_failed", severity="error",
        message=f"{END_LINE}ended with exit code 1", fields={}, position=Position("a.log", 1, 0),
    )  # fmt: skip

    def read(event: Event) -> bool:
        return acting.has_read_end(snapshot().model_copy(update={"events": (event,)}))

    assert read(end)
    assert not read(replace(end, time=START - 0.001)), "of the attempt before"
    assert not read(replace(end, time=None))
    assert not read(replace(end, run="other"))
    assert not read(replace(end, message="the command ended with exit code 1"))
    acting.begin(START + 5)
    assert not read(end)


def test_a_kill_is_due_until_it_was_ordered() -> None:
    acting = supervisor("hang=kill")
    assert not acting.kills
    seen = snapshot(firing("TrainingStalled", START + 50))
    orders(acting, seen, START + 50)
    assert acting.kills
    (order,) = orders(acting, seen, START + 60)
    assert (order.note, acting.kills) == ("the command did not end: SIGKILL", False)


def test_stacks_alone_end_nothing() -> None:
    acting = supervisor("hang=stacks", "crash=restart:1")
    seen = snapshot(firing("TrainingStalled", START + 50))
    (order,) = orders(acting, seen, START + 50)
    assert (order.number, order.note) == (None, "TrainingStalled, --on hang=stacks")
    assert order.evidence is not None
    assert not acting.kills
    assert not orders(acting, seen, START + 70)
