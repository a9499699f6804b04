"""When alerts and events become an incident, join one, or end one."""

from __future__ import annotations

import pytest

from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.judge.incidents import RunFacts
from ldlm_monitor.judge.incidents.grouping import ATTACH_SECONDS, QUIET_SECONDS, WENT_ON_SECONDS
from tests.judge.incidents.book import AT, Book


@pytest.mark.parametrize("labels", [{}, {"rank": "3"}])
def test_an_alert_that_no_line_reports_is_the_cause_of_its_incident(labels: dict[str, str]) -> None:
    book = Book()
    book.alert("NonFiniteLoss", labels=labels, step=40)
    (incident,) = book.views()
    assert (incident.root.kind, incident.root.message) == (
        "nonfinite_metric", "NonFiniteLoss holds",
    )  # fmt: skip
    assert incident.root.rank == (3 if labels else None)
    assert (incident.alerts, incident.last_step, incident.events) == (("NonFiniteLoss",), 41, 1)


def test_an_alert_of_numbers_that_a_line_reports_adds_nothing_to_it() -> None:
    book = Book()
    book.event("nonfinite_metric", rank=2, family="numerics", quantity="loss", step=40)
    for labels in ({}, {"rank": "2"}, {"rank": "5"}):
        book.alert("NonFiniteLoss", labels=labels)
    (incident,) = book.views()
    assert (incident.events, incident.root.rank) == (1, 2)


def test_of_alerts_without_a_line_each_rank_counts_once() -> None:
    book = Book()
    for rank in ("3", "5", "3"):
        book.alert("NonFiniteLoss", labels={"rank": rank})
    (incident,) = book.views()
    assert incident.events == 2


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("NonFiniteLoss", {"severity": "warning"}),
        ("NonFiniteLoss", {"severity": "info"}),
        ("NonFiniteLoss", {"state": "pending"}),
        ("NonFiniteLoss", {"state": "resolved"}),
        ("LossSpike", {}),  # no failure by itself
        ("NonFiniteLoss", {"labels": {"run": ""}}),
    ],
)
def test_other_alerts_open_no_incident(name: str, change: dict[str, object]) -> None:
    book = Book()
    key = book.alert(name, **change)  # type: ignore[arg-type]
    assert book.views() == ()
    assert book.incidents.answer("r", key, AT) is None


def test_an_alert_joins_an_incident_while_it_is_open_and_shortly_after() -> None:
    book = Book()
    book.event("cuda_error", severity="critical")
    book.alert("LossSpike", AT + 5, "warning")
    book.alert("TrainingEnded", AT + 6, "info")
    book.alert("Watchdog", AT + 6, "none")
    book.facts = RunFacts(last_progress_at=AT + 2 * WENT_ON_SECONDS)
    near, late = AT + ATTACH_SECONDS, AT + ATTACH_SECONDS + 1
    book.alert("GradientSpike", near, "warning")
    book.alert("StepTimeRegression", late, "warning")
    (incident,) = book.views(late)
    assert (incident.state, incident.alerts) == ("recovered", ("LossSpike", "GradientSpike"))


def test_numbers_that_are_not_finite_recover_only_when_their_alert_is_over() -> None:
    book = Book()
    book.alert("NonFiniteLoss")
    later = AT + 10 * WENT_ON_SECONDS
    book.facts = RunFacts(last_progress_at=later)
    assert book.views(later)[0].state == "open"
    book.alert("NonFiniteLoss", later, state="resolved", previous="firing")
    assert (book.views(later)[0].state, book.views(later)[0].ended_at) == ("recovered", later)


def test_a_step_soon_after_a_failure_shows_no_recovery() -> None:
    book = Book()
    book.event("cuda_error", severity="critical")
    book.facts = RunFacts(last_progress_at=AT + WENT_ON_SECONDS)
    assert book.views(AT + 60)[0].state == "open"
    book.event("cuda_error", AT + 30, severity="critical")  # and again: the same incident
    (incident,) = book.views(AT + 60)
    assert (incident.events, incident.updated_at) == (2, AT + 30)


def test_events_after_a_long_quiet_time_are_of_another_failure() -> None:
    book = Book()
    book.event("cuda_error", severity="critical")
    book.event("cuda_error", AT + QUIET_SECONDS, severity="critical")
    book.event("cuda_error", AT + 2 * QUIET_SECONDS + 1, severity="critical")
    first, second = book.views(AT + 3 * QUIET_SECONDS)
    assert (first.id, first.state, first.ended_reason) == ("r/1", "ended", "quiet")
    assert (first.events, second.id, second.state) == (2, "r/2", "open")


def test_a_restart_ends_the_incidents_of_the_attempt_before() -> None:
    book = Book()
    book.event("python_exception")
    assert book.views() == ()  # a program may catch an exception
    book.facts = RunFacts(attempt=2)
    book.event("cuda_error", AT + 5, severity="critical")
    first, second = book.views(AT + 6)
    assert (first.state, first.ended_reason, first.attempt) == ("ended", "restarted", 1)
    assert (second.id, second.attempt) == ("r/2", 2)


@pytest.mark.parametrize(
    ("state", "severity"), [("crashed", "critical"), ("killed", "warning"), ("finished", None)]
)
def test_an_incident_ends_with_its_run(state: str, severity: str | None) -> None:
    book = Book()
    book.event("python_exception")
    book.facts = RunFacts(state=state, ended_at=AT + 2)
    found = book.views(AT + 3)
    assert [each.ended_reason for each in found] == (["run ended"] if severity else [])
    reasons = [reason for reason, _ in book.incidents.reasons("r", AT + 3)]
    assert [each.severity for each in reasons] == ([severity] if severity else [])


def test_a_fault_of_a_machine_in_a_kernel_log_joins_the_incident_of_its_processes() -> None:
    book = Book()
    book.incidents.take(
        Event(
            kind="gpu_xid", severity="critical", run="kern", message="Xid 79",
            fields={"role": "root", "family": "host", "host": "gpu01", "pid": 41},
            position=Position("kern.log", 1, 0),
        ),
        AT - 5,
    )  # fmt: skip
    book.event("cuda_error", rank=3, host="gpu01", pid=41, severity="critical")
    found = {each.run: each for each in book.views(AT + 10)}
    assert (found["r"].root.kind, found["r"].events) == ("gpu_xid", 2)


def test_that_processes_sleep_is_no_better_reason_than_that_no_step_comes() -> None:
    book = Book()
    book.alert("TrainingStalled", step=41)
    (before,) = book.views()
    book.event(
        "log_silence", at=AT + 5, family="progress", role="evidence", severity="info",
        message="pid 27883 sleeping", processes=[{"pid": 27883, "state": "sleeping"}],
    )  # fmt: skip
    (after,) = book.views(AT + 30)
    assert (after.title, after.root.kind) == (before.title, "hang_no_progress")
    assert "no step since step 41" in after.title


def test_a_rank_that_a_probe_names_is_a_better_reason_than_that_no_step_comes() -> None:
    book = Book(logged_ranks=frozenset(range(4)))
    book.alert("TrainingStalled", step=41)
    book.event(
        "ras_status", at=AT + 5, family="nccl", role="evidence", severity="warning",
        message="rank 2 is missing", missing_ranks=[2],
    )  # fmt: skip
    (after,) = book.views(AT + 30)
    assert after.root.rank == 2
