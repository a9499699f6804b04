"""What `ldlm-monitor run` does to a run is in its incident as ours, with the reason for it."""

import json

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.snapshot import RunView, Snapshot
from ldlm_monitor.base.text.format import iso
from ldlm_monitor.judge.core.monitor import Monitor

START = 1_795_000_000.0
STEPS = 40


def note(second: float, text: str) -> str:
    return f"{iso(START + second)} ldlm-monitor run: {text}"


TORCHRUN = (
    (
        "W1118 08:54:16.503000 16999 torch/distributed/elastic/agent/server/api.py:753] "
        "Received 15 death signal, shutting down workers"
    ),
    (
        "W1118 08:54:16.504000 16999 torch/distributed/elastic/multiprocessing/api.py:1028] "
        "Sending process 17062 closing signal SIGTERM"
    ),
    "[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer",
    "RuntimeError: DataLoader worker (pid 31) is killed by signal: Terminated.",
)
"""What a launcher and its workers print of a SIGTERM."""


def evidence(kind: str, rank: int | None = None, **fields: object) -> str:
    """A row as `host/supervise/evidence.py` writes it into the log."""
    severity, message = fields.pop("severity", "info"), fields.pop("message", "")
    return json.dumps({
        "type": "event", "time": START + 45, "kind": kind, "severity": severity,
        "message": message, "fields": {"role": "evidence", **fields},
        **({} if rank is None else {"rank": rank}),
    })  # fmt: skip


STACKS = evidence(
    "stack_dump", 1, accused=True, missing_ranks=[1], what="in load at train.py:9, the others wait",
    message="rank 1 is not where the others wait for it", probe=True,
)  # fmt: skip
STALL = evidence("hang_no_progress", severity="critical", message="no step for 31s", role="root")


def played(*lines: str, loss: str = "2.5") -> tuple[Snapshot, set[tuple[str, str]]]:
    """The end of a log that goes on with `lines` after its steps, and all alerts that fired."""
    monitor = Monitor()
    steps = [f"{iso(START + each)} step {each} loss {loss}" for each in range(1, STEPS + 1)]
    text = "\n".join([note(0, "attempt 1 starts: []"), *steps, *lines, ""]).encode()
    changes = monitor.feed(Chunk("train.log", (1, 0, 0), 0, 1, text), START + 48)
    for second in range(49, 170):
        changes += monitor.tick(START + second)
    fired = {
        (each.alert, each.labels["severity"])
        for each in changes
        if each.state == "firing" and each.alert != "Watchdog"
    }
    return monitor.snapshot(), fired


def run_of(snapshot: Snapshot) -> RunView:
    (run,) = snapshot.runs
    return run


@pytest.mark.parametrize("end", ["exit code 1", "signal 9 (SIGKILL)"])
def test_the_cause_of_a_hang_that_we_ended_is_what_led_to_it(end: str) -> None:
    """The log alone has it: the live alert and the processes are gone."""
    verb = "ended with" if "code" in end else "was ended by"
    snapshot, fired = played(
        STACKS, STALL, note(45, "TrainingStalled, --on hang=kill,stacks: SIGTERM"), *TORCHRUN,
        note(47, f"the command {verb} {end}"),
    )  # fmt: skip
    (incident,) = snapshot.incidents
    assert (incident.root.kind, incident.root.rank) == ("stack_dump", 1)
    assert incident.decision is not None
    assert incident.decision.decision == "RESTART"
    assert "SIGTERM" not in incident.title
    assert run_of(snapshot).state == "killed"
    assert {alert for alert, _ in fired} == {"RunActed"}


def test_of_a_hang_without_stacks_the_alert_is_what_led_to_it() -> None:
    snapshot, _ = played(STALL, note(45, "TrainingStalled, --on hang=kill: SIGTERM"), *TORCHRUN)
    (incident,) = snapshot.incidents
    assert (incident.root.kind, incident.root.message) == ("hang_no_progress", "no step for 31s")
    assert run_of(snapshot).health == "CRITICAL"


def test_of_numbers_that_we_stopped_for_the_numbers_are_the_cause() -> None:
    snapshot, fired = played(
        note(41, "NonFiniteLoss, --on nan=stop: SIGTERM"), *TORCHRUN,
        note(42, "the command ended with exit code 1"), loss="nan",
    )  # fmt: skip
    (incident,) = snapshot.incidents
    assert incident.root.kind == "nonfinite_metric"
    assert incident.last_step == 1, "the first that was no number, not that of the kill"
    assert {alert for alert, _ in fired} == {"NonFiniteLoss", "RunActed"}


STOPPED = "stops at step 40 as ldlm-monitor run asked: NonFiniteLoss, --on nan=stop"


def test_a_training_that_stopped_where_we_asked_it_to_is_ended_by_us_for_its_numbers() -> None:
    """What it saved before its end is no checkpoint to go back to."""
    snapshot, fired = played(
        note(30, "NonFiniteLoss, --on nan=stop: stop at step 40"),
        evidence("run_action", 0, severity="warning", message=STOPPED, action=STOPPED),
        "successfully saved checkpoint at iteration 40",
        note(46, "the command ended with exit code 0"),
        loss="nan",
    )
    (incident,), run = snapshot.incidents, run_of(snapshot)
    assert incident.root.kind == "nonfinite_metric"
    assert STOPPED in {each.message for each in incident.symptoms}
    assert (run.state, run.end_reason) == ("killed", "words")
    assert run.checkpoints == (40,)
    assert run.decision is not None
    assert (run.decision.decision, run.decision.rollback_step) == ("STOP", None)
    assert {alert for alert, _ in fired} == {"NonFiniteLoss", "RunActed"}


@pytest.mark.parametrize("by", ["SIGINT", "ldlm-monitor stop"])
def test_an_end_that_a_person_asked_for_alerts_nobody(by: str) -> None:
    snapshot, fired = played(
        note(45, f"asked to end by {by}"), *TORCHRUN, note(47, "the command ended with exit code 1")
    )
    run = run_of(snapshot)
    assert not fired
    assert (run.state, run.health) == ("killed", "HEALTHY")
    assert run.decision is not None
    assert run.decision.phrase == "STOP (confirmed): a person ended it"


def test_an_error_before_a_person_ends_it_stays_the_cause() -> None:
    snapshot, _ = played(
        "Traceback (most recent call last):", '  File "/app/t.py", line 8, in <module>',
        "ValueError: no such shard", note(45, "asked to end by SIGINT"),
    )  # fmt: skip
    (incident,) = snapshot.incidents
    assert incident.root.message == "ValueError: no such shard"


@pytest.mark.parametrize("error", ["RuntimeError: CUDA error: device-side assert", "KeyError: 'a'"])
def test_an_error_that_no_signal_explains_is_not_hidden_by_a_request_to_end(error: str) -> None:
    snapshot, _ = played(
        note(45, "asked to end by ldlm-monitor stop"),
        "Traceback (most recent call last):", '  File "/app/t.py", line 8, in <module>', error,
        note(47, "the command ended with exit code 1"),
    )  # fmt: skip
    (incident,) = snapshot.incidents
    assert error.startswith(incident.root.message[:30])
    assert incident.confidence != "confirmed"
    assert run_of(snapshot).health != "HEALTHY"


@pytest.mark.parametrize(
    "error",
    [
        (
            "KeyboardInterrupt\n\nDuring handling of the above exception, another exception "
            'occurred:\n\nTraceback (most recent call last):\n  File "/app/t.py", line 9, in f\n'
            "RuntimeError: cannot schedule new futures after shutdown"
        ),
        "RuntimeError: DataLoader worker (pid(s) 7, 8) exited unexpectedly",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "concurrent.futures.process.BrokenProcessPool: A process in the pool was terminated",
    ],
)
def test_an_error_of_the_signal_itself_is_of_the_request_to_end(error: str) -> None:
    snapshot, fired = played(
        note(45, "asked to end by SIGINT"),
        "Traceback (most recent call last):", '  File "/app/t.py", line 8, in <module>', error,
        note(47, "the command ended with exit code 1"),
    )  # fmt: skip
    assert not fired
    assert run_of(snapshot).health == "HEALTHY"
    assert snapshot.incidents[-1].root.kind == "run_stopped"


def test_that_the_command_ended_alone_does_not_confirm_who_ended_it() -> None:
    snapshot, _ = played(
        note(45, "asked to end by SIGINT"), note(47, "the command ended with exit code 1")
    )
    assert snapshot.incidents[-1].confidence == "probable"


def test_a_signal_of_somebody_else_is_a_warning_as_before() -> None:
    _, fired = played(note(45, "asked to end by SIGTERM"), *TORCHRUN)
    assert ("JobKilled", "warning") in fired
