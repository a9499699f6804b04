"""The one answer to how a run is now: a level, and the reasons for it, which every view prints."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ldlm_monitor.base.alert import alert_key
from ldlm_monitor.base.incident_view import DecisionView
from ldlm_monitor.base.names import PAST_TIMES, RUN_FINISHED, STALL_ALERT, severity_rank
from ldlm_monitor.base.points import Point
from ldlm_monitor.base.records import Event
from ldlm_monitor.base.snapshot import AlertView, Health, ReasonView, RunView, Snapshot
from ldlm_monitor.judge.core.run_numbers import has_skipped_many, is_lost
from ldlm_monitor.judge.incidents import Incidents
from ldlm_monitor.judge.run.fleet import Fleet
from ldlm_monitor.judge.run.training_run import TrainingRun
from ldlm_promrules.alerting import ActiveAlert
from ldlm_promrules.promql import Expression
from ldlm_promrules.promql.expression import result_selectors

HEALTH: Final[tuple[Health, ...]] = ("HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL")
"""Best to worst, at the indices of their `SEVERITIES`; the index is `ldlm_run_health`."""
NONFINITE_ALERTS: Final = ("NonFiniteLoss", "NonFiniteGradient")
FiringByRun = Mapping[str, Sequence[ActiveAlert[Expression]]]
_ANSWERS_NO_CHECK: Final = ("ill", "untested", "finished_untested")
"""Rules of decisions that only say that a check failed."""
_AGE = re.compile(r"no step for [^,;]*")
"""An age in a text stands still while the run's own, which every view shows, goes on."""
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

    What is over counts as a warning while its alert fires, as everything that happened before a run
    finished; what its last values are stays. An ended run keeps the worst health since its end,
    because its alerts then resolve. `last_word`: the error that no step of a run followed, which
    counts once none can: the run has ended, or its logs have.
    """

    def __init__(
        self,
        fleet: Fleet,
        incidents: Incidents,
        last_word: Callable[[TrainingRun], Event | None],
    ) -> None:
        self._fleet = fleet
        self._last_word = last_word
        self._incidents = incidents
        self._of: dict[str, RunHealth] = {}
        self._ended: dict[str, float] = {}  # by run, the end of which `_of` has the health
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
            is_known = run.life.ended and self._ended.get(name) == run.life.ended_at
            kept = self.of(name) if is_known else _WELL
            self._of[name] = kept if kept.index > present.index else present
            if run.life.ended_at is not None:
                self._ended[name] = run.life.ended_at
        self._alerts = alerts

    def forget(self, name: str) -> None:
        """Drop a run."""
        self._of.pop(name, None)
        self._ended.pop(name, None)

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
        reasons = [
            _as_past(each) if of_numbers and not is_lost(run) else each
            for each, of_numbers in self._incidents.reasons(run.name, at)
        ]
        reasons += [] if reasons and run.life.ended else _finding(run)
        troubles = (each for each in alerts if each.rule.name != RUN_FINISHED)
        reasons += [
            _of_alert(
                each,
                is_over=self._is_over(run, each),
                is_symptom=bool(reasons) and self._incidents.has(run.name, _key(each)),
            )
            for each in troubles
        ]
        is_over = run.life.ended or run.is_read
        if not reasons and is_over and run.life.state != "finished":
            reasons += _last_words(self._last_word(run))
        if not reasons:
            return _WELL
        reasons.sort(key=lambda each: -_rank(each.severity))
        failed = self._incidents.failed_rank(run.name, at)
        return RunHealth(_rank(reasons[0].severity), tuple(reasons), failed)

    def _is_over(self, run: TrainingRun, alert: ActiveAlert[Expression]) -> bool:
        """Whether what an alert is about has passed, though it fires for some minutes more."""
        name = alert.rule.name
        if name in NONFINITE_ALERTS:
            return not is_lost(run)
        if run.life.state == "finished":
            return _is_of_moments(alert.rule.expr)
        return self._incidents.has_survived(run.name, _key(alert))


def _last_words(event: Event | None) -> Iterator[ReasonView]:
    """The error with which a log ends, where no alert had the time to fire."""
    if event is not None:
        severity = max(event.severity, "warning", key=_rank)
        yield ReasonView(kind="finding", severity=severity, text=event.message, since=event.time)


def _finding(run: TrainingRun) -> Iterator[ReasonView]:
    """What alerts don't say once a run ended: how it did, what it skipped and what it left out.

    Why it takes no step, by its host and log.
    """
    life = run.life
    if (failure := life.failed_after_end) is not None:
        text = f"failed after its last step: {failure.message}"
        yield ReasonView(kind="finding", severity="warning", text=text, since=life.ended_at)
    if has_skipped_many(run):
        of = f" of {run.progress.taken}" if run.progress.taken else ""
        text = f"{run.progress.skipped_of_launch}{of} steps were skipped"
        yield ReasonView(kind="finding", severity="warning", text=text, since=None)
    unseen = dict(run.values.missed()).get("loss") if life.state == "finished" else None
    if unseen is not None:
        yield ReasonView(kind="finding", severity="warning", text=unseen, since=None)
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


@lru_cache(maxsize=256)  # a choice: more than rule files have
def _is_of_moments(expr: Expression) -> bool:
    """Whether it is about what happened or was counted, and not about a value that still is."""
    read = {each.metric for each in result_selectors(expr.root)}
    return any(name in PAST_TIMES or name.endswith("_total") for name in read)


def _key(alert: ActiveAlert[Expression]) -> str:
    return alert_key(alert.rule.name, alert.labels)


def _of_alert(alert: ActiveAlert[Expression], *, is_over: bool, is_symptom: bool) -> ReasonView:
    name, run = alert.rule.name, alert.labels.get("run", "")
    summary = alert.annotations.get("summary", "").removeprefix(run).lstrip(": ")
    if name == STALL_ALERT:
        summary = _AGE.sub("no step", summary)
    found = ReasonView(
        kind="alert",
        severity=alert.labels.get("severity", "info"),
        text=f"{name}: {summary}" if summary else name,
        since=alert.fired_at,
        is_symptom=is_symptom,
    )
    return _as_past(found) if is_over else found


def _as_past(reason: ReasonView) -> ReasonView:
    """The reason as one of what is over: a warning at most."""
    worst = min(reason.severity, "warning", key=_rank)
    return reason.model_copy(update={"severity": worst, "text": f"{reason.text} (over)"})


def _rank(severity: str) -> int:
    """The index in `HEALTH` of a severity; an unknown one counts as info."""
    return max(severity_rank(severity), 0)


def decided_on(run: RunView, alert: str) -> DecisionView | None:
    """The run's decision about an alert ("": about its incident); None where it answers another.

    A decision to go on is about numbers that were not finite, and answers no other alert; that a
    check failed is no answer to its own.
    """
    found = run.decision
    if found is None or (alert and found.rule in _ANSWERS_NO_CHECK):
        return None
    answers = not alert or alert in NONFINITE_ALERTS
    return found if answers or found.decision != "GO_ON" else None


def what_now(run: RunView, alerts: Sequence[AlertView]) -> str:
    """What to do about an ill run: its decision, or what the first alert among its reasons advises.

    "" for a healthy run.
    """
    if not run.reasons:
        return ""
    worst = run.reasons[0]
    if decided := decided_on(run, "" if worst.kind == "incident" else worst.text.split(":")[0]):
        return decided.phrase
    own = {each.name: each for each in alerts if each.labels.get("run") == run.name}
    names = (reason.text.split(":")[0] for reason in run.reasons if reason.kind == "alert")
    advised = (own[name].annotations.get("action", "") for name in names if name in own)
    return next(filter(None, advised), "")


def worst_health(snapshot: Snapshot) -> Health:
    """The worst health of all runs that were judged; HEALTHY if there is none."""
    judged = (run.health for run in snapshot.runs if run.health != "READING")
    return max(judged, key=HEALTH.index, default="HEALTHY")
