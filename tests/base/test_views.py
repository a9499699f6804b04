"""What the readers of a snapshot get: incidents, decisions, runs, alerts, curves."""

import json
import math

import pytest
from pydantic import ValidationError

from ldlm_monitor.base.points import Point
from ldlm_monitor.base.records import Position
from ldlm_monitor.base.snapshot import (
    AlertView,
    CurveView,
    MonitorView,
    ReasonView,
    Statistics,
    VerdictView,
)
from tests.base.views import DECISION, INCIDENT, ROOT, RUN, snapshot

ALERT = AlertView(
    name="LossNaN",
    state="pending",
    labels={"run": "gpt"},
    annotations={},
    value=1.0,
    active_at=1.0,
    fired_at=None,
    position=None,
)


@pytest.mark.parametrize(
    ("changes", "order"),
    [
        ({}, "RESTART"),
        ({"decision": "RESTART_WITHOUT", "node": "n1"}, "RESTART_WITHOUT n1"),
        ({"decision": "RESTART_WITHOUT"}, "RESTART_WITHOUT the node"),
        ({"node": "n1"}, "RESTART"),
        ({"decision": "ROLLBACK"}, "ROLLBACK"),
        ({"decision": "ROLLBACK", "rollback_step": 0}, "ROLLBACK to step 0"),
        (
            {"decision": "ROLLBACK", "rollback_step": 30, "skip_steps": (31, 35)},
            "ROLLBACK to step 30 skipping 31-35",
        ),
        ({"decision": "ROLLBACK", "skip_steps": (31, 35)}, "ROLLBACK skipping 31-35"),
    ],
)
def test_an_order_names_what_is_known_of_node_and_steps(
    changes: dict[str, object], order: str
) -> None:
    decision = DECISION.model_copy(update=changes)
    assert decision.order == order
    assert decision.phrase == f"{order} (probable): the GPU failed"


def test_an_incident_began_with_its_first_cause_or_when_it_opened() -> None:
    assert INCIDENT.began_at == 990.0
    at_epoch = ROOT.model_copy(update={"at": 0.0})
    assert INCIDENT.model_copy(update={"root": at_epoch}).began_at == 0.0
    unknown = ROOT.model_copy(update={"at": None})
    assert INCIDENT.model_copy(update={"root": unknown}).began_at == 1000.0


def test_advice_is_the_decision_and_what_to_try() -> None:
    assert (INCIDENT.is_to_mend, INCIDENT.advice) == (True, "Replace the GPU.")
    decided = INCIDENT.model_copy(update={"decision": DECISION})
    assert decided.is_to_mend
    assert decided.advice == ("Decision: RESTART (probable): the GPU failed. Replace the GPU.")


def test_there_is_nothing_to_mend_where_the_run_may_go_on() -> None:
    goes_on = DECISION.model_copy(update={"decision": "GO_ON"})
    incident = INCIDENT.model_copy(update={"decision": goes_on})
    assert not incident.is_to_mend
    assert incident.advice == "Decision: GO_ON (probable): the GPU failed."


def test_a_view_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        INCIDENT.title = "other"


def test_a_view_writes_numbers_that_are_not_finite_as_text() -> None:
    known = Statistics(
        current=math.nan, mean=None, minimum=None, maximum=math.inf, count=1, nonfinite=1
    )
    written = json.loads(known.model_dump_json())
    assert (written["current"], written["maximum"]) == ("NaN", "Infinity")


def test_a_verdict_is_read_with_its_reasons() -> None:
    assert str(VerdictView(word="hung", reasons=())) == "hung"
    verdict = VerdictView(word="killed", reasons=("no process", "signal 9"))
    assert str(verdict) == "killed: no process; signal 9"
    assert verdict.computes is False


def reason(text: str) -> ReasonView:
    return ReasonView(kind="alert", severity="critical", text=text, since=None)


def test_the_worst_reason_stands_for_the_others() -> None:
    assert RUN.because == ""
    texts = ("loss is NaN", "rank 3 is slow", "a checkpoint is old")
    shown = [
        RUN.model_copy(update={"reasons": tuple(map(reason, texts[:count]))}).because
        for count in (1, 2, 3)
    ]
    assert shown == [
        "loss is NaN",
        "loss is NaN +1: rank 3 is slow",
        "loss is NaN +2: rank 3 is slow, a checkpoint is old",
    ]


def test_a_run_is_also_called_as_its_own_log_says() -> None:
    called = [
        RUN.model_copy(update={"settings": settings}).also_called
        for settings in ({}, {"run": ""}, {"run": "gpt"}, {"run": "exp-7"})
    ]
    assert called == [None, None, None, "exp-7"]


def test_an_alert_has_the_identity_of_its_transitions() -> None:
    assert ALERT.key == "LossNaN{run=gpt}"


def test_the_rank_of_the_series_goes_before_the_one_of_the_incident() -> None:
    ranks = [
        ALERT.model_copy(update={"labels": labels, "annotations": annotations}).rank
        for labels, annotations in (
            ({}, {}), ({"rank": "0"}, {}), ({}, {"rank": "3"}), ({"rank": "0"}, {"rank": "3"}),
        )
    ]  # fmt: skip
    assert ranks == [None, "0", "3", "0"]


def test_a_bucket_of_a_curve_has_the_place_of_its_first_line() -> None:
    curve = CurveView(
        steps=[1, 5], times=[1.0, 5.0], lows=[1.0, 1.0], highs=[2.0, 2.0], means=[1.5, 1.5],
        nonfinite=[0, 0], lines=[10, 3], offsets=[400, 90], origins=[1, 0],
        files=("b.log", "a.log"),
    )  # fmt: skip
    assert [curve.position(index) for index in (0, 1)] == [
        Position("a.log", 10, 400), Position("b.log", 3, 90),
    ]  # fmt: skip


def test_a_monitor_that_has_just_begun_has_counted_nothing() -> None:
    fresh = MonitorView.fresh()
    counts = (fresh.lines, fresh.bytes, fresh.parse_errors, fresh.evaluations, fresh.unread)
    assert counts == (0, 0, 0, 0, 0)
    assert (fresh.evaluation_seconds, fresh.records, fresh.dropped) == (0.0, {}, {})


def test_the_json_of_a_snapshot_lacks_points_and_curves() -> None:
    state = snapshot(RUN).model_copy(update={"points": (Point("ldlm_alerts", (), 1.0),)})
    written = json.loads(state.model_dump_json())
    assert written.keys().isdisjoint({"points", "curves"})
    assert [run["name"] for run in written["runs"]] == ["gpt"]


def test_a_run_without_what_logs_rarely_say_is_in_its_first_attempt() -> None:
    assert (RUN.attempt, RUN.failed_rank, RUN.verdict, RUN.decision) == (1, None, None, None)
    assert (RUN.ranks, RUN.checkpoints, RUN.detected, RUN.resumed_at) == ((), (), {}, ())
    assert INCIDENT.attempt == 1
