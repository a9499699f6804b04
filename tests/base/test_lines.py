"""Status and alerts on stdout, for people and for programs."""

import json
import math
from dataclasses import replace

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.records import Position
from ldlm_monitor.base.snapshot import ReasonView, RunView, Statistics
from ldlm_monitor.base.text.lines import SHOWN_RUNS, StatusLines, transition_json, transition_line
from tests.base.views import RUN, snapshot

NOW = 1_769_681_700.0
HEAD = "2026-01-29T10:15:00.000Z  STATUS    "
FIRING = Transition(
    time=NOW,
    alert="LossNaN",
    state="firing",
    previous="pending",
    reason="",
    labels={"run": "gpt", "rank": "3", "severity": "critical"},
    annotations={"summary": "gpt: loss is NaN"},
    value=math.nan,
    active_at=NOW,
    position=Position("logs/a.log", 12, 840),
    cause="gpu_xid",
)


def statistics(current: float) -> Statistics:
    return Statistics(current=current, mean=None, minimum=None, maximum=None, count=1, nonfinite=0)


def runs(count: int, **changes: object) -> list[RunView]:
    return [RUN.model_copy(update={"name": f"run{n}", **changes}) for n in range(count)]


def test_a_monitor_without_a_run_says_so() -> None:
    assert [*StatusLines().of(snapshot(), NOW)] == [HEAD + "no run yet"]


def test_the_line_of_a_run_has_all_that_is_known_of_it() -> None:
    run = RUN.model_copy(
        update={
            "settings": {"run": "exp-7"},
            "health": "WARNING",
            "step": 40,
            "total_steps": 100,
            "statistics": {"loss": statistics(2.345678), "grad_norm": statistics(0.5)},
            "last_progress_at": NOW - 90,
            "eta_seconds": 4320.0,
            "reasons": (
                ReasonView(kind="alert", severity="warning", text="rank 3\nis slow", since=None),
            ),
        }
    )
    assert [*StatusLines().of(snapshot(run), NOW)] == [
        HEAD
        + "gpt (exp-7)  WARNING running  step 40/100  loss 2.3457  grad_norm 0.5"
        + "  last step 1m 30s ago  1h 12m left  rank 3 is slow"
    ]


def test_the_line_of_a_run_lacks_what_is_not_known() -> None:
    run = RUN.model_copy(update={"step": 0})
    assert [*StatusLines().of(snapshot(run), NOW)] == [HEAD + "gpt  HEALTHY running  step 0"]


def test_the_one_active_run_has_its_line_each_time_and_stands_first() -> None:
    ended = RUN.model_copy(update={"name": "old", "state": "finished", "ended_at": 1.0})
    lines, state = StatusLines(), snapshot(RUN, ended)
    first, second = [*lines.of(state, NOW)], [*lines.of(state, NOW)]
    assert first == [HEAD + "gpt  HEALTHY running", HEAD + "old  HEALTHY finished"]
    assert second == [HEAD + "gpt  HEALTHY running"]


def test_several_runs_are_counted_and_only_changed_ones_have_a_line() -> None:
    lines = StatusLines()
    state = runs(3)
    assert next(lines.of(snapshot(*state), NOW)) == HEAD + "3 runs  3 HEALTHY running"
    assert [*lines.of(snapshot(*state), NOW)] == [HEAD + "3 runs  3 HEALTHY running"]
    state[1] = state[1].model_copy(update={"state": "stalled"})
    assert [*lines.of(snapshot(*state), NOW)] == [
        HEAD + "3 runs  2 HEALTHY running, 1 HEALTHY stalled",
        HEAD + "run1  HEALTHY stalled",
    ]
    state[1] = state[1].model_copy(update={"health": "CRITICAL"})
    assert [*lines.of(snapshot(*state), NOW)][1:] == [HEAD + "run1  CRITICAL stalled"]


def test_runs_that_have_all_ended_are_counted_by_their_ends() -> None:
    state = runs(3, state="finished", ended_at=1.0)
    state[0] = state[0].model_copy(update={"state": "crashed"})
    lines = StatusLines()
    found = [*lines.of(snapshot(*state), NOW)]
    assert found[0] == HEAD + "runs that have ended: 3 (2 finished, 1 crashed)"
    assert len(found) == 4
    assert [*lines.of(snapshot(*state), NOW)] == found[:1]


def test_of_many_changed_runs_the_twenty_worst_have_a_line() -> None:
    assert len([*StatusLines().of(snapshot(*runs(SHOWN_RUNS)), NOW)]) == 1 + SHOWN_RUNS
    many = runs(SHOWN_RUNS + 2)
    many[-1] = many[-1].model_copy(update={"health": "CRITICAL"})
    found = [*StatusLines().of(snapshot(*many), NOW)]
    assert found[1:3] == [HEAD + "run21  CRITICAL running", HEAD + "run0  HEALTHY running"]
    assert found[-1] == HEAD + "and 2 more have changed"
    assert (len(found), SHOWN_RUNS) == (22, 20)


def test_a_transition_is_one_line_with_its_place_and_cause() -> None:
    assert transition_line(FIRING) == (
        "2026-01-29T10:15:00.000Z  FIRING    LossNaN               critical  gpt/3"
        "  loss is NaN  logs/a.log:12  cause: gpu_xid"
    )


def test_a_transition_of_which_little_is_known_has_dashes() -> None:
    bare = replace(
        FIRING, time=None, labels={}, annotations={}, position=None, cause=None, state="pending"
    )
    assert transition_line(bare) == f"{'-':<24}  PENDING   {'LossNaN':<20}  {'-':<8}  -"


def test_the_cause_in_a_line_has_200_characters_at_most() -> None:
    shown = transition_line(replace(FIRING, cause="x" * 300)).partition("cause: ")[2]
    assert shown == "x" * 199 + "…"


def test_a_transition_for_programs_has_the_public_fields() -> None:
    assert json.loads(transition_json(FIRING)) == {
        "time": NOW,
        "alert": "LossNaN",
        "state": "firing",
        "reason": "",
        "labels": FIRING.labels,
        "annotations": FIRING.annotations,
        "value": "NaN",
        "position": {"path": "logs/a.log", "line": 12, "offset": 840},
    }


def test_a_transition_for_programs_may_lack_its_place_and_has_no_secret() -> None:
    secret = replace(FIRING, position=None, annotations={"summary": "password=abc"})
    written = json.loads(transition_json(secret))
    assert written["position"] is None
    assert written["annotations"] == {"summary": "password=[redacted]"}
