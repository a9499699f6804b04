"""The health report as a person reads it."""

import math
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import (
    AlertView,
    HostView,
    ReasonView,
    RunView,
    Snapshot,
    Statistics,
)
from ldlm_monitor.finished.report.contents import what_to_do
from ldlm_monitor.finished.report.document import report
from ldlm_monitor.finished.report.html import page
from ldlm_monitor.finished.report.plain_text import WIDTH, health_report, markdown
from ldlm_monitor.judge.core.run_health import worst_health
from ldlm_monitor.judge.incidents.decision_table import DecisionFacts, decide

MakeRun = Callable[..., RunView]
MakeAlert = Callable[..., AlertView]
MakeEvent = Callable[..., Event]
MakeSnapshot = Callable[..., Snapshot]


def section(report: str, title: str) -> list[str]:
    """The lines below a title, up to the next empty line."""
    lines = report.splitlines()
    start = lines.index(title) + 1
    return lines[start : lines.index("", start)]


def test_a_healthy_run_shows_its_facts_and_nothing_to_worry_about(
    make_run: MakeRun, make_snapshot: MakeSnapshot
) -> None:
    assert health_report(make_snapshot(make_run())) == (
        """\
ldlm-monitor health report                               2026-01-29 10:15:00 UTC
================================================================================

HEALTHY  train_20260129_101500                                 running (mm-ldlm)
--------------------------------------------------------------------------------
Progress     [#######.......................]  25.0 %  step 250 of 1000
Time left    4m 12s
Started      2026-01-29 10:13:20 UTC
Last step    2026-01-29 10:14:48 UTC (12s ago)
Stall limit  35s
Ranks        2
Files        train_logs/train_20260129_101500_node0.log

--------------------------------------------------------------------------------
Read 1,200 lines (3.0 MiB), 404 records, 1 parse error, 7 evaluations of the
rules, dropped 2 (label_limit).
"""
    )


def test_the_age_of_the_last_step_is_that_of_now_only_where_the_host_was_looked_at(
    make_run: MakeRun, make_snapshot: MakeSnapshot
) -> None:
    """A log that was read to its end says nothing of now; its last step is older than that."""
    run = make_run()
    host = HostView(
        at=run.last_progress_at + 252,
        host="gpu01",
        processes=(),
        memory_total_bytes=1,
        memory_available_bytes=1,
        disk=None,
    )
    snapshot = make_snapshot(run)
    assert "10:14:48 UTC (12s ago)" in health_report(snapshot)
    assert "10:14:48 UTC (12s before the log's end)" in health_report(snapshot, ends=True)
    seen = make_snapshot(make_run(host=host))
    assert "10:14:48 UTC (4m 12s ago)" in health_report(seen, ends=True)


@pytest.mark.parametrize(("count", "said"), [(0, ""), (1, "line was"), (40, "lines were")])
def test_metric_like_lines_that_gave_nothing_are_counted_in_each_form(
    make_run: MakeRun, make_snapshot: MakeSnapshot, count: int, said: str
) -> None:
    snapshot = make_snapshot(make_run())
    monitor = snapshot.monitor.model_copy(update={"unread": count})
    found = report(snapshot.model_copy(update={"monitor": monitor}))
    for shown in (health_report(snapshot.model_copy(update={"monitor": monitor})), page(found)):
        words = " ".join(shown.split())
        assert (f"{count} metric-like {said} not understood" in words) == bool(count)
    assert markdown(found).count("not understood") == bool(count)


def test_statistics_stand_in_a_table_with_the_loss_first(
    make_run: MakeRun, make_snapshot: MakeSnapshot, make_statistics: Callable[..., Statistics]
) -> None:
    run = make_run(
        statistics={
            "accuracy": make_statistics(0.0001234),
            "loss": make_statistics(math.nan, mean=2.34567, minimum=1.5, maximum=5.25, nonfinite=3),
            "grad_norm": make_statistics(math.inf, mean=None, minimum=None, maximum=None),
            "memory_reserved_bytes": make_statistics(61.5 * 2**30, minimum=512.0),
        }
    )
    assert section(health_report(make_snapshot(run)), "Statistics over the last values") == [
        "                            current       mean        min        max  non-finite",
        "  loss                          NaN     2.3457        1.5       5.25           3",
        "  grad_norm                     Inf          -          -          -           0",
        "  accuracy                0.0001234  0.0001234  0.0001234  0.0001234           0",
        "  memory_reserved_bytes    61.5 GiB   61.5 GiB      512 B   61.5 GiB           0",
    ]


def test_the_pace_is_the_one_that_metrics_show(
    make_run: MakeRun, make_snapshot: MakeSnapshot, make_statistics: Callable[..., Statistics]
) -> None:
    """What the log reports, or else what was derived from the times of its steps."""
    labels = make_labels(run="train_20260129_101500")
    points = (
        Point("ldlm_train_step_seconds", make_labels(run="another"), 7.0),
        Point("ldlm_train_step_seconds", labels, 0.0459183),
    )
    derived = health_report(make_snapshot(make_run(), points=points))
    assert "\nPace         0.0459s a step\n" in derived
    statistics = {
        "step_seconds": make_statistics(0.05, mean=0.06),
        "samples_per_second": make_statistics(348.5),
    }
    reported = health_report(make_snapshot(make_run(statistics=statistics), points=points))
    assert "\nPace         0.06s a step, 348.5 samples/s\n" in reported


def test_a_firing_alert_tells_where_and_what_to_do(
    make_run: MakeRun, make_alert: MakeAlert, make_snapshot: MakeSnapshot
) -> None:
    labels = {"severity": "critical", "run": "train_20260129_101500", "rank": "1"}
    report = health_report(
        make_snapshot(make_run(health="CRITICAL"), alerts=(make_alert(labels=labels),))
    )
    assert section(report, "Firing") == [
        "  critical NonFiniteLoss  rank 1                         2026-01-29 10:14:30 UTC",
        "           The loss is NaN.",
        "           train_logs/train_20260129_101500_node0.log:250",
        "           -> Go back to a checkpoint.",
    ]


def test_the_worst_alert_comes_first_and_pending_ones_are_left_out(
    make_run: MakeRun, make_alert: MakeAlert, make_snapshot: MakeSnapshot
) -> None:
    alerts = (
        make_alert("GradientNormHigh", "warning"),
        make_alert("NcclError", "error"),
        make_alert("NcclTimeout", "critical"),
        make_alert("OutOfMemory", "critical", state="pending", fired_at=None),
    )
    firing = section(health_report(make_snapshot(make_run(), alerts=alerts)), "Firing")
    names = [line.split()[1] for line in firing if line.startswith("  ") and line[2] != " "]
    assert names == ["NcclTimeout", "NcclError", "GradientNormHigh"]


def test_recommendations_are_in_the_users_own_settings(
    make_run: MakeRun, make_alert: MakeAlert, make_snapshot: MakeSnapshot
) -> None:
    run = make_run(settings={"LEARNING_RATE": "5e-4", "training.warmup_steps": "100"})
    report = health_report(make_snapshot(run, alerts=(make_alert(),)))
    advice = " ".join(" ".join(section(report, "Recommendations")).split())
    assert "- LEARNING_RATE=0.00025 (now 5e-4): " in advice
    assert "- training.warmup_steps=200 (now 100): " in advice


def test_an_issue_that_repeats_is_told_once_with_its_count(
    make_run: MakeRun, make_event: MakeEvent, make_snapshot: MakeSnapshot
) -> None:
    """The newest first; information is not an issue."""
    events = (
        *(make_event("nonfinite_metric", message=f"loss nan at {step}") for step in (1, 2, 3)),
        make_event("checkpoint_saved", severity="info"),
        make_event("cuda_oom", rank=1, message="CUDA out of memory.", severity="critical"),
    )
    issues = section(health_report(make_snapshot(make_run(), events=events)), "Recent issues")
    assert [line.rstrip() for line in issues] == [
        "  critical cuda_oom rank 1: CUDA out of memory.",
        "           train_logs/train_20260129_101500_node0.log:250",
        "  error    nonfinite_metric, 3 times: loss nan at 3",
        "           train_logs/train_20260129_101500_node0.log:250",
    ]


def test_a_root_cause_stands_above_what_followed_from_it(
    make_run: MakeRun, make_event: MakeEvent, make_snapshot: MakeSnapshot
) -> None:
    events = (
        make_event("python_exception", rank=1, fields={"role": "root"}),
        make_event("gloo_peer_closed", rank=0, fields={"role": "victim"}),
    )
    issues = section(health_report(make_snapshot(make_run(), events=events)), "Recent issues")
    kinds = [line.split()[1].rstrip(":") for line in issues if line.startswith("  error")]
    assert kinds == ["python_exception", "gloo_peer_closed"]


def test_events_are_counted_in_one_paragraph(
    make_run: MakeRun, make_snapshot: MakeSnapshot
) -> None:
    counts = {"config": 9, "checkpoint_saved": 12, "run_started": 1} | dict.fromkeys(
        ("eval_started", "eval_finished", "skipped_step"), 2
    )
    report = health_report(make_snapshot(make_run(event_counts=counts)))
    assert section(report, "Events") == [
        "  checkpoint_saved 12, config 9, eval_finished 2, eval_started 2,",
        "  skipped_step 2, run_started 1",
    ]


def test_the_summary_of_an_alert_does_not_repeat_the_run_above_it(
    make_run: MakeRun, make_alert: MakeAlert, make_snapshot: MakeSnapshot
) -> None:
    alert = make_alert(annotations={"summary": "train_20260129_101500: the loss is NaN"})
    firing = section(health_report(make_snapshot(make_run(), alerts=(alert,))), "Firing")
    assert firing[1] == "           the loss is NaN"


def test_several_runs_begin_with_a_table_worst_first_and_healthy_ones_are_a_line(
    make_run: MakeRun, make_alert: MakeAlert, make_snapshot: MakeSnapshot
) -> None:
    why = ReasonView(kind="alert", severity="critical", text="word " * 30 + "end", since=None)
    runs = (
        make_run(name="first"),
        make_run(name="second", state="crashed", health="CRITICAL", reasons=(why,)),
        make_run(name="third", health="CRITICAL", last_progress_at=1769681700.0),
        make_run(name="fourth", health="WARNING"),
    )
    alert = make_alert("TrainingCrashed", labels={"severity": "critical", "run": "second"})
    report = health_report(make_snapshot(*runs, alerts=(alert,)))
    table = report.split("\n\n")[1].splitlines()
    assert report.splitlines()[2] == "4 runs: 2 CRITICAL, 1 WARNING, 1 HEALTHY"
    assert [line.split()[1] for line in table if line[0] != " "] == [
        *("third", "second", "fourth", "first")
    ]
    assert table[-1].endswith("running, step 250 of 1000")
    reason = " ".join(line.strip() for line in table if line.startswith(" " * 10))
    assert why.text in reason  # whole: wrapped, not cut
    assert report.count("first") == 1
    assert report.count("third") == 2
    assert "4 runs: 2 CRITICAL" in report.split("-" * WIDTH)[-1]


def test_one_run_of_several_has_its_newest_incident_whole_and_earlier_ones_as_lines(
    make_run: MakeRun, make_snapshot: MakeSnapshot, make_incident: Callable[..., IncidentView]
) -> None:
    incidents = [make_incident(title=f"failure {n}", action=f"mend {n}") for n in range(6)]
    snapshot = make_snapshot(make_run(health="CRITICAL"), make_run(name="other"))
    report = health_report(snapshot.model_copy(update={"incidents": tuple(incidents)}))
    assert "-> mend 5" in report
    assert "-> mend 4" not in report
    assert [n for n in range(6) if f"failure {n}" in report] == [2, 3, 4, 5]
    assert "and 2 more" in report


def test_what_to_do_is_the_decision_or_the_alerts_advice_then_the_incidents_action(
    make_run: MakeRun,
    make_alert: MakeAlert,
    make_snapshot: MakeSnapshot,
    make_incident: Callable[..., IncidentView],
) -> None:
    alert = make_alert()
    worst = ReasonView(kind="alert", severity="critical", text=f"{alert.name}: NaN", since=None)
    ill = make_run(health="CRITICAL", reasons=(worst,))
    (run,) = report(make_snapshot(ill, alerts=(alert,))).runs
    assert what_to_do(run) == ("Go back to a checkpoint.", *run.recommendations)
    decision = decide(DecisionFacts(kind="python_exception", failed=True))
    decided = make_snapshot(ill.model_copy(update={"decision": decision}), alerts=(alert,))
    incidents = tuple(make_incident(action=action) for action in ("first", "second"))
    (run,) = report(decided.model_copy(update={"incidents": incidents})).runs
    assert what_to_do(run) == (decision.phrase, "second", *run.recommendations)
    (run,) = report(make_snapshot(make_run())).runs
    assert what_to_do(run) == ()


def test_a_run_that_ended_has_no_time_left_and_cannot_stall(
    make_run: MakeRun, make_snapshot: MakeSnapshot
) -> None:
    run = make_run(state="crashed", ended_at=1769681690.0, failed_rank=1)
    report = health_report(make_snapshot(run))
    assert "crashed (mm-ldlm)" in report
    assert "Failed rank  1" in report
    assert "Ended        2026-01-29 10:14:50 UTC" in report
    assert not [word for word in ("Time left", "Stall limit", " ago") if word in report]


def test_alerts_of_no_run_are_the_monitors_own(
    make_run: MakeRun, make_alert: MakeAlert, make_snapshot: MakeSnapshot
) -> None:
    alert = make_alert("MonitorBehind", "warning", labels={"severity": "warning"})
    report = health_report(make_snapshot(make_run(), alerts=(alert,)))
    assert "MonitorBehind" in section(report, "Firing on the monitor itself")[0]


def test_a_log_without_a_run_is_said_so(make_snapshot: MakeSnapshot) -> None:
    assert "No training run was found in the logs." in health_report(make_snapshot())


@pytest.mark.parametrize(
    ("healths", "worst"),
    [
        ((), "HEALTHY"),
        (("HEALTHY", "WARNING"), "WARNING"),
        (("CRITICAL", "UNHEALTHY", "HEALTHY"), "CRITICAL"),
    ],
)
def test_the_worst_run_decides(
    make_run: MakeRun, make_snapshot: MakeSnapshot, healths: tuple[str, ...], worst: str
) -> None:
    assert worst_health(make_snapshot(*(make_run(health=health) for health in healths))) == worst


@pytest.fixture(scope="module")
def report_on(
    make_run: MakeRun, make_alert: MakeAlert, make_event: MakeEvent, make_snapshot: MakeSnapshot
) -> Callable[[str, str], str]:
    """A report whose every text that comes from a log is `text`, and every path `path`."""

    def report(text: str, path: str) -> str:
        position = Position(path, 1, 0)
        run = make_run(
            name=text, framework=text, files=(path,), settings={"lr": text}, event_counts={text: 1}
        )
        labels = {"severity": "critical", "run": text, "rank": text}
        annotations = {"summary": text, "action": text}
        alert = make_alert(labels=labels, annotations=annotations, position=position)
        event = make_event(text, run=text, message=text, position=position)
        return health_report(make_snapshot(run, alerts=(alert,), events=(event,)))

    return report


@given(text=st.text(max_size=300), path=st.text(min_size=1, max_size=200))
def test_nothing_from_a_log_can_break_a_line_or_reach_the_terminal(
    report_on: Callable[[str, str], str], text: str, path: str
) -> None:
    report = report_on(text, path)
    assert report.count("\n") == len(report.splitlines())
    for line in report.splitlines():
        assert len(line) <= WIDTH
        assert not [char for char in line if unicodedata.category(char) in ("Cc", "Cf", "Cs")]
