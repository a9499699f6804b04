"""How a run is called whose end is long past: its alerts are over, what became of it is not."""

import json
import re

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.base.text.lines import StatusLines
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.screen.draw import UNICODE
from ldlm_monitor.screen.overview import summary
from ldlm_monitor.screen.page_context import PageContext
from ldlm_monitor.screen.run_columns import Layout, RunRow
from ldlm_monitor.screen.triage import triaged
from ldlm_monitor.service.serve.live_page import live_page
from ldlm_monitor.service.serve.pages import resource
from ldlm_promrules.alerting import RuleSet
from ldlm_promrules.promql import Expression
from tests.service.daemon.failing_lines import NAN, TRACEBACK

START = 1_769_681_700.0
DAY = 86_400.0
BAR = (
    "Training:   {percent}%|▏         | {step}/100 [00:07<9:00:00,  1.00it/s, "
    "Epoch=0/1, Progress=1.0%, Loss=2.5, Text=2.5]\r"
)
FINISHED = "Training complete! Time: 1.25h\n"
NO_RULES: RuleSet[Expression] = RuleSet(())


class Log:
    """One file of a monitor, to which text is appended."""

    def __init__(self, monitor: Monitor, name: str = "a.log", inode: int = 1) -> None:
        self.monitor = monitor
        self._name, self._id = name, (1, inode, 0)
        self._offset, self._line = 0, 1

    def append(self, text: str, second: float) -> None:
        data = text.encode()
        chunk = Chunk(self._name, self._id, self._offset, self._line, data)
        self.monitor.feed(chunk, START + second)
        self._offset += len(data)
        self._line += data.count(b"\n")

    def train(self, steps: int = 20, since: float = 0.0) -> None:
        for step in range(steps):
            self.append(BAR.format(percent=step, step=step + int(since)), since + step)


def trained(rules: RuleSet[Expression] | None = None) -> Log:
    log = Log(Monitor(rules=rules))
    log.train()
    return log


def run_of(monitor: Monitor) -> RunView:
    (run,) = monitor.snapshot().runs
    return run


def seen(monitor: Monitor) -> str:
    """All that people see of the run where they look over all runs."""
    snapshot = monitor.snapshot()
    shared = PageContext(None, lambda: snapshot.at, snapshot)  # a row asks no source
    columns = Layout.of(160, snapshot.runs, "")
    drawn = columns.row(RunRow(run_of(monitor), None, shared), chosen=False)
    line = [*drawn, *summary(snapshot, UNICODE)]
    page = re.sub("(?s)<style>.*?</style>", "", live_page(snapshot, str).decode())
    return "\n".join(
        ["".join(span.text for span in line), page, *StatusLines().of(snapshot, snapshot.at)]
    )


def test_a_run_that_crashed_stays_critical_when_its_alert_has_ended() -> None:
    log = trained()
    log.append(TRACEBACK, 20.0)
    log.monitor.tick(START + 120.0)
    assert (run_of(log.monitor).state, run_of(log.monitor).health) == ("crashed", "CRITICAL")
    log.monitor.tick(START + DAY)
    assert {alert.name for alert in log.monitor.snapshot().alerts} == {"Watchdog"}
    assert (run_of(log.monitor).state, run_of(log.monitor).health) == ("crashed", "CRITICAL")
    assert "HEALTHY" not in seen(log.monitor)
    (reported,) = json.loads(resource(log.monitor.snapshot(), "runs", str))["runs"]
    assert (reported["state"], reported["health"]) == ("crashed", "CRITICAL")


def test_a_run_that_finished_with_a_nan_is_not_called_healthy_for_it() -> None:
    log = trained()
    log.append(NAN, 20.0)
    log.append(FINISHED, 30.0)
    log.monitor.tick(START + DAY)
    assert (run_of(log.monitor).state, run_of(log.monitor).health) == ("finished", "CRITICAL")


def test_a_run_that_recovered_before_it_finished_is_healthy() -> None:
    log = trained()
    log.append(NAN, 20.0)
    log.train(20, since=1800.0)
    assert run_of(log.monitor).health == "HEALTHY"
    log.append(FINISHED, 1830.0)
    log.monitor.tick(START + DAY)
    assert (run_of(log.monitor).state, run_of(log.monitor).health) == ("finished", "HEALTHY")


def test_a_run_that_goes_on_after_its_end_is_judged_by_what_fires() -> None:
    log = trained()
    log.append(TRACEBACK, 20.0)
    log.monitor.tick(START + 120.0)
    log.train(20, since=DAY)
    log.monitor.tick(START + DAY + 25.0)
    assert (run_of(log.monitor).state, run_of(log.monitor).health) == ("running", "HEALTHY")
    log.append(FINISHED, DAY + 26.0)
    log.monitor.tick(START + 2 * DAY)
    assert (run_of(log.monitor).state, run_of(log.monitor).health) == ("finished", "HEALTHY")


def test_where_no_rule_is_about_the_end_the_incident_is_the_reason() -> None:
    log = trained(NO_RULES)
    log.append(TRACEBACK, 20.0)
    log.monitor.tick(START + 120.0)
    run = run_of(log.monitor)
    assert (run.state, run.health) == ("crashed", "CRITICAL")
    assert [reason.kind for reason in run.reasons] == ["incident"]
    assert "HEALTHY" not in seen(log.monitor)


def test_the_metric_is_the_worst_that_fires_and_ends_with_the_series() -> None:
    log = trained()
    log.append(TRACEBACK, 20.0)
    log.monitor.tick(START + DAY)
    names = {point.name for point in log.monitor.snapshot().points}
    assert "ldlm_run_health" not in names


def test_what_has_ended_is_counted_by_how_it_ended() -> None:
    monitor = Monitor()
    for number in range(3):
        Log(monitor, f"run{number}.log", number + 1).train()
    Log(monitor, "crash.log", 4).append(BAR.format(percent=1, step=1) + TRACEBACK, 20.0)
    monitor.tick(START + 40.0)
    monitor.tick(START + 45.0)
    reported = "".join(span.text for span in summary(monitor.snapshot(), UNICODE))
    assert reported == " 4 runs   ● 3 HEALTHY   1 crashed"
    snapshot = monitor.snapshot()
    assert triaged(PageContext(None, lambda: snapshot.at, snapshot))[0].name == "crash"


def test_when_all_have_ended_the_status_says_how() -> None:
    log = trained()
    log.append(TRACEBACK, 20.0)
    log.monitor.tick(START + DAY)
    line, _ = StatusLines().of(log.monitor.snapshot(), START + DAY)
    assert line.endswith("STATUS    runs that have ended: 1 (1 crashed)")
