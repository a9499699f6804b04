"""One health, with its reasons, in every view: screen, report, API, metric, status and message."""

import json

from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import RankView, RunView
from ldlm_monitor.base.text.lines import StatusLines
from ldlm_monitor.finished.report.plain_text import health_report
from ldlm_monitor.judge.core.headlines import headline_of
from ldlm_monitor.screen.draw import UNICODE
from ldlm_monitor.screen.ranks import grid
from ldlm_monitor.service.notify.content import news_of
from ldlm_monitor.service.notify.message import from_transition, message_of
from ldlm_monitor.service.serve.live_page import live_page
from ldlm_monitor.service.serve.pages import resource
from tests.service.daemon.failing_lines import NAN, TRACEBACK
from tests.together.monitor.test_health_of_ended_runs import BAR, DAY, START, run_of, trained


def kinds(run: RunView) -> list[str]:
    return [reason.kind for reason in run.reasons]


def test_a_healthy_run_has_no_reason() -> None:
    run = run_of(trained().monitor)
    assert (run.health, run.reasons, run.because) == ("HEALTHY", (), "")


def test_every_view_prints_the_level_and_why() -> None:
    log = trained()
    log.append(NAN, 20.0)
    log.monitor.tick(START + 25.0)
    snapshot = log.monitor.snapshot()
    run = run_of(log.monitor)
    assert run.health == "CRITICAL"
    assert set(kinds(run)) == {"incident", "alert"}
    assert all(reason.since is not None for reason in run.reasons)
    why = run.reasons[0].text
    (status,) = StatusLines().of(snapshot, snapshot.at)
    assert "CRITICAL" in status
    assert why[:60] in status
    found = headline_of(run, snapshot.alerts, snapshot.incidents)
    assert found is not None
    assert f"{found.what}{found.where} → " in live_page(snapshot, lambda text: text).decode()
    assert health_report(snapshot).count(f"Why          {found.what}{found.where}") == 1
    (reported,) = json.loads(resource(snapshot, "runs", str))["runs"]
    assert reported["health"] == "CRITICAL"
    assert reported["reasons"][0]["text"] == why
    assert "CRITICAL" in health_report(snapshot)
    levels = [point.value for point in snapshot.points if point.name == "ldlm_run_health"]
    assert levels == [3.0]
    (fired,) = (each for each in snapshot.transitions if each.state == "firing")
    assert ("Health", "CRITICAL") in news_of(message_of(from_transition(fired))).facts


def test_the_metric_follows_the_health_with_which_a_run_ended() -> None:
    log = trained()
    log.append(TRACEBACK, 20.0)
    log.monitor.tick(START + 120.0)
    log.monitor.tick(START + 800.0)
    assert run_of(log.monitor).health == "CRITICAL"
    points = log.monitor.snapshot().points
    assert [point.value for point in points if point.name == "ldlm_run_health"] == [3.0]


def test_what_a_probe_finds_is_a_reason_beside_the_alert() -> None:
    log = trained()
    asleep = Event(
        kind="log_silence", severity="info", run="a", message="asleep", position=Position("", 0, 0),
        fields={"probe": True, "processes": [{"pid": 7, "state": "sleeping", "cores": 0.0}]},
    )  # fmt: skip
    log.monitor.observe([asleep], START + 25.0)
    log.monitor.tick(START + DAY)
    run = run_of(log.monitor)
    assert (run.state, run.health) == ("stalled", "CRITICAL")
    assert {"finding", "alert"} <= set(kinds(run))
    assert any(reason.text.startswith("hung: pid 7 sleeps") for reason in run.reasons)


def test_ranks_are_not_called_in_step_where_the_run_is_ill() -> None:
    log = trained()
    seen = {"ranks": tuple(RankView(rank=n, step=19, seen_at=START, phase=None) for n in range(3))}

    def line() -> str:
        run = run_of(log.monitor).model_copy(update=seen)
        return "".join(span.text for span in grid(run, 80, 9, UNICODE)[0])

    assert line() == " 3 ranks   all in step"
    log.append(BAR.format(percent=1, step=20) + NAN, 20.0)
    assert line() == " 3 ranks"
