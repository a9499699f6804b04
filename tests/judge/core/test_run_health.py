"""How a run is, and what to do about it: by its alerts, incidents and host."""

from __future__ import annotations

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.histogram import Histogram
from ldlm_monitor.base.incident_view import DecisionView
from ldlm_monitor.base.points import make_labels
from ldlm_monitor.base.snapshot import DiskView, GpuView, HostView, ReasonView, Snapshot
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.core.run_health import decided_on, what_now, worst_health
from ldlm_monitor.judge.core.self_metrics import core_points, edge_points

NOW = 1_795_000_000.0


def judged(*losses: str, after: float = 10.0, rest: str = "") -> Snapshot:
    """A run of these losses, one a second, `after` seconds after the last."""
    monitor, log = Monitor(), ""
    offset = 0
    for number, loss in enumerate(losses):
        text = f"step {number} loss {loss} lr 0.001\n"
        chunk = Chunk("train.log", (1, 1, 0), offset, number + 1, text.encode())
        monitor.feed(chunk, NOW + number)
        offset, log = offset + len(text), log + text
    if rest:
        chunk = Chunk("train.log", (1, 1, 0), offset, len(losses) + 1, rest.encode())
        monitor.feed(chunk, NOW + len(losses))
    monitor.tick(NOW + len(losses) + after)
    return monitor.snapshot()


def reason(kind: str, text: str, severity: str = "critical") -> ReasonView:
    return ReasonView(kind=kind, severity=severity, text=text, since=None)  # type: ignore[arg-type]


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 3\n'


@pytest.mark.parametrize(
    ("losses", "after", "rest", "health", "first"),
    [
        (["2.5"] * 5, 10.0, "", "HEALTHY", ""),
        (["2.5", "nan"], 10.0, "", "CRITICAL", "incident"),
        (["2.5"] * 5, 4000.0, TRACEBACK, "CRITICAL", "incident"),
        (["2.5"] * 5, 4000.0, "", "WARNING", "alert"),
    ],
)
def test_a_runs_health_is_its_worst_reason(
    losses: list[str], after: float, rest: str, health: str, first: str
) -> None:
    snapshot = judged(*losses, after=after, rest=rest)
    (run,) = snapshot.runs
    assert run.health == worst_health(snapshot) == health
    ranks = [("info", "warning", "error", "critical").index(each.severity) for each in run.reasons]
    assert ranks == sorted(ranks, reverse=True)
    assert (run.reasons[0].kind if run.reasons else "") == first
    levels = [each.value for each in snapshot.points if each.name == "ldlm_run_health"]
    assert levels in ([], [("HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL").index(health)])
    assert levels or run.state == "crashed"  # the series of a run that ended goes after a while


def test_of_several_runs_the_worst_that_was_judged_counts() -> None:
    (run,) = judged("2.5").runs
    snapshot = judged("2.5")
    for healths, worst in (
        ((), "HEALTHY"),
        (("READING",), "HEALTHY"),
        (("WARNING", "READING", "HEALTHY"), "WARNING"),
        (("CRITICAL", "UNHEALTHY"), "CRITICAL"),
    ):
        runs = tuple(run.model_copy(update={"health": each}) for each in healths)
        assert worst_health(snapshot.model_copy(update={"runs": runs})) == worst


def test_what_to_do_is_the_decision_or_what_the_first_alert_advises() -> None:
    snapshot = judged("2.5", "nan")
    (run,) = snapshot.runs
    alerts = [each for each in snapshot.alerts if each.name == "NonFiniteLoss"]
    assert alerts
    decision = DecisionView(
        decision="STOP", confidence="probable", reasons=("x",), rule="r", if_wrong="w"
    )
    go_on = decision.model_copy(update={"decision": "GO_ON"})
    loss, other = reason("alert", "NonFiniteLoss: x"), reason("alert", "TrainingStalled: y")
    incident = reason("incident", "a title: b")

    def advised(*reasons: ReasonView, decided: DecisionView | None = None) -> str:
        return what_now(run.model_copy(update={"reasons": reasons, "decision": decided}), alerts)

    advice = alerts[0].annotations["action"]
    assert advised() == advised(decided=decision) == ""
    assert advised(incident, decided=decision) == decision.phrase
    assert advised(other, loss, decided=go_on) == advice  # it answers numbers alone
    assert advised(loss, decided=go_on) == advised(incident, decided=go_on) == go_on.phrase
    assert advised(other, loss) == advised(incident, loss) == advice
    assert advised(other) == ""
    assert decided_on(run.model_copy(update={"decision": None}), "") is None


def test_the_monitor_counts_its_own_work() -> None:
    snapshot = judged("2.5", "nan", rest="WARNING: x\n")
    points = {(each.name, each.labels): each.value for each in core_points(snapshot.monitor)}
    counted = {name: value for (name, labels), value in points.items() if not labels}
    assert counted["ldlm_monitor_lines_total"] == 3
    assert counted["ldlm_monitor_bytes_total"] == snapshot.monitor.bytes > 40
    assert points["ldlm_monitor_records_total", make_labels(record="heartbeat")] == 0
    assert points["ldlm_monitor_records_total", make_labels(record="sample")] == 2
    assert points["ldlm_monitor_dropped_total", make_labels(reason="label_limit")] == 0


def test_the_daemons_points_name_receivers_and_leave_out_what_is_pending() -> None:
    durations = Histogram((1.0,))
    durations.observe((0.5,))
    counts = {("slack", "sent"): 2, ("slack", "pending"): 1, ("webhook", "failed"): 3}
    points = [*edge_points(counts, 70, None, {"slack": durations})]
    assert {dict(each.labels)["receiver"] for each in points[:-3]} == {"slack"}
    assert [(each.name, each.value) for each in points[-3:]] == [
        ("ldlm_monitor_behind_bytes", 70),
        ("ldlm_monitor_notifications_total", 2),
        ("ldlm_monitor_notifications_total", 3),
    ]
    (free,) = (each for each in edge_points({}, 0, 9) if "free" in each.name)
    assert free.value == 9


def test_what_was_seen_of_a_runs_host_is_exported_while_it_lasts() -> None:
    monitor = Monitor()
    monitor.feed(Chunk("train.log", (1, 1, 0), 0, 1, b"step 1 loss 2.5\n"), NOW)
    host = HostView(
        at=NOW, host="gpu01", processes=(), memory_total_bytes=1, memory_available_bytes=1,
        disk=DiskView(folder="/ckpt", free_bytes=1, total_bytes=2, full_at=NOW + 100),
        gpus=(GpuView(gpu="1", values={"gpu_power_watts": 300.0, "ldlm_train_loss": 1.0}),),
    )  # fmt: skip
    monitor.note_edge([], {"train": host})
    monitor.tick(NOW + 40)
    points = {each.name: each for each in monitor.snapshot().points}
    assert points["ldlm_detect_checkpoint_disk_full_seconds"].value == 60
    assert points["ldlm_gpu_power_watts"].value == 300
    assert dict(points["ldlm_gpu_power_watts"].labels) == {"run": "train", "gpu": "1"}
