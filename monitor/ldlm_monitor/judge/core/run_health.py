"""The one answer to how a run is: a level, and the reasons for it, which every view prints."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ldlm_monitor.base.names import severity_rank
from ldlm_monitor.base.points import Point
from ldlm_monitor.base.snapshot import AlertView, Health, ReasonView, RunView, Snapshot
from ldlm_monitor.judge.incidents import Incidents
from ldlm_monitor.judge.run.fleet import Fleet
from ldlm_monitor.judge.run.training_run import TrainingRun
from ldlm_promrules.alerting import ActiveAlert
from ldlm_promrules.promql import Expression

HEALTH: Final[tuple[Health, ...]] = ("HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL")
"""Best to worst, at the indices of their `SEVERITIES`; the index is `ldlm_run_health`."""
NONFINITE_ALERTS: Final = ("NonFiniteLoss", "NonFiniteGradient")
FiringByRun = Mapping[str, Sequence[ActiveAlert[Expression]]]
_ILL: Final = frozenset({"stalled", "crashed", "killed"})  # states that are a reason by themselves


@dataclass(frozen=True, slots=True)
class RunHealth:
    """A run's level as an index of `HEALTH`, its reasons, the worst first, and its failed rank."""

    index: int = 0
    reasons: tuple[ReasonView, ...] = ()
    failed_rank: int | None = None

    @property
    def level(self) -> Health:
        """The level in one word."""
        return HEALTH[self.index]


_WELL: Final = RunHealth()


class HealthBook:
    """The health of all runs: by firing alerts, incidents that are not over, and findings.

    An ended run keeps the worst health since its end, because its alerts then resolve.
    """

    def __init__(self, fleet: Fleet, incidents: Incidents) -> None:
        self._fleet = fleet
        self._incidents = incidents
        self._of: dict[str, RunHealth] = {}
        self._firing: FiringByRun = {}
        self._alerts: dict[str, tuple[int, ...]] = {}  # by run, the ids of its firing alerts
        self._points: tuple[list[tuple[str, int]], list[Point]] = ([], [])

    def update(self, firing: FiringByRun, at: float, touched: Container[str] | None = None) -> None:
        """Judge the runs at `at` (Unix seconds): all, or those `touched` and those with new alerts.

        What only time changes, such as an alert's text, is then as old as the last update of all.
        """
        alerts = self._alerts
        if firing is not self._firing:
            self._firing = firing
            alerts = {name: tuple(map(id, each)) for name, each in firing.items()}
        for run in self._fleet:
            name = run.name
            is_same = alerts.get(name) == self._alerts.get(name)
            if touched is not None and name not in touched and is_same:
                continue
            present = self._judge(run, firing.get(name, ()), at)
            kept = self.of(name) if run.life.ended else _WELL
            self._of[name] = kept if kept.index > present.index else present
        self._alerts = alerts

    def of(self, name: str) -> RunHealth:
        """The health of a run at the last `update`."""
        return self._of.get(name, _WELL)

    def failed_ranks(self) -> dict[str, int]:
        """The rank that its incident names, by run."""
        found = self._of.items()
        return {run: each.failed_rank for run, each in found if each.failed_rank is not None}

    def points(self, at: float) -> list[Point]:
        """`ldlm_run_health` of the shown runs; the same object until one changes."""
        found = [(run, self.of(run.name).index) for run in self._fleet.shown(at)]
        shown = [(run.name, index) for run, index in found]
        if shown != self._points[0]:
            points = [Point("ldlm_run_health", run.labels, index) for run, index in found]
            self._points = shown, points
        return self._points[1]

    def _judge(
        self, run: TrainingRun, alerts: Iterable[ActiveAlert[Expression]], at: float
    ) -> RunHealth:
        reasons = [*self._incidents.reasons(run.name, at)]
        reasons += [] if reasons and run.life.ended else _finding(run)
        reasons += map(_of_alert, alerts)
        if not reasons:
            return _WELL
        reasons.sort(key=lambda each: -_rank(each.severity))
        failed = self._incidents.failed_rank(run.name, at)
        return RunHealth(_rank(reasons[0].severity), tuple(reasons), failed)


def _finding(run: TrainingRun) -> Iterator[ReasonView]:
    """Why the run takes no step, by its host and log; how it ended, if no incident shows that."""
    life = run.life
    verdict = run.verdict if life.state in _ILL else None
    if life.state not in _ILL or (life.state == "stalled" and verdict is None):
        return
    step = "" if run.progress.step is None else f" at step {run.progress.step}"
    text = str(verdict) if verdict is not None else f"{life.state}{step}"
    # A kill may be wanted (a person's Ctrl-C), so that only alerts make more than a warning of it.
    word = verdict.word if verdict is not None else life.state
    severity = {"crashed": "critical", "hung": "critical", "killed": "warning"}.get(word, "info")
    since = life.ended_at if life.ended else life.last_progress_at
    yield ReasonView(kind="finding", severity=severity, text=text, since=since)


def _of_alert(alert: ActiveAlert[Expression]) -> ReasonView:
    name, run = alert.rule.name, alert.labels.get("run", "")
    summary = alert.annotations.get("summary", "").removeprefix(run).lstrip(": ")
    return ReasonView(
        kind="alert",
        severity=alert.labels.get("severity", "info"),
        text=f"{name}: {summary}" if summary else name,
        since=alert.fired_at,
    )


def _rank(severity: str) -> int:
    """The index in `HEALTH` of a severity; an unknown one counts as info."""
    return max(severity_rank(severity), 0)


def decided_on(run: RunView, alert: str) -> str:
    """The run's decision about an alert ("": about its incident); "" where it answers another.

    A decision to go on is about numbers that were not finite, and answers no other alert.
    """
    found = run.decision
    answers = not alert or alert in NONFINITE_ALERTS
    return found.phrase if found is not None and (answers or found.decision != "GO_ON") else ""


def what_now(run: RunView, alerts: Sequence[AlertView]) -> str:
    """What to do about an ill run: its decision, or what the first alert among its reasons advises.

    "" for a healthy run.
    """
    if not run.reasons:
        return ""
    worst = run.reasons[0]
    if decided := decided_on(run, "" if worst.kind == "incident" else worst.text.split(":")[0]):
        return decided
    own = {each.name: each for each in alerts if each.labels.get("run") == run.name}
    names = (reason.text.split(":")[0] for reason in run.reasons if reason.kind == "alert")
    advised = (own[name].annotations.get("action", "") for name in names if name in own)
    return next(filter(None, advised), "")


def worst_health(snapshot: Snapshot) -> Health:
    """The worst health of all runs that were judged; HEALTHY if there is none."""
    judged = (run.health for run in snapshot.runs if run.health != "READING")
    return max(judged, key=HEALTH.index, default="HEALTHY")
