"""The monitor's state for its readers: a frozen `Snapshot`, whose JSON the HTTP API serves."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

from pydantic import FailFast, Field, InstanceOf

from ldlm_monitor.base.alert import Transition, alert_key
from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.base.incident_view import DecisionView, IncidentView, View
from ldlm_monitor.base.names import EndReason
from ldlm_monitor.base.points import Point
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.text.format import utc

_T = TypeVar("_T")
Many: TypeAlias = Annotated[tuple[_T, ...], FailFast()]
"""Of what a server sends; all that is wrong in a million of them would fill the memory."""


class ProcessView(View):
    """A rank's main process (`rank` None: of a run without ranks), with its descendants' memory.

    `state` is the kernel's letter (proc(5)); `cores`: CPU seconds over seconds since its start.
    """

    rank: int | None
    pid: int
    state: str
    cores: float
    resident_bytes: int


class DiskView(View):
    """The disk of the folder to which checkpoints go.

    `full_at` (Unix seconds): when nothing will be left at the pace of the last checkpoints; None if
    that is not known yet, or if free space does not fall with each of them.
    """

    folder: str
    free_bytes: int
    total_bytes: int
    full_at: float | None


class GpuView(View):
    """A GPU: its number (`gpu`) on its host, or the `rank` whose callback reports it.

    `values` have the names of the callback's rows (`gpu_power_watts`); unknown ones are absent.
    """

    gpu: str
    rank: int | None = None
    name: str = ""
    values: dict[str, float]


class HostView(View):
    """What was seen at `at` (Unix seconds) of a run on the monitor's own host.

    `without_gpus`: why there are no GPUs, or "".
    """

    at: float
    host: str
    processes: tuple[ProcessView, ...] = Field(description="by rank, bounded")
    memory_total_bytes: int
    memory_available_bytes: int
    disk: DiskView | None
    gpus: tuple[GpuView, ...] = ()
    without_gpus: str = ""


Health = Literal["READING", "HEALTHY", "WARNING", "UNHEALTHY", "CRITICAL"]
"""A run's health by the worst of its reasons: none or info, warning, error, critical. Of a run that
has ended, it is the one with which it ended. `READING`: its history is being read, and nothing was
judged; its reasons are what its newest lines say by themselves."""


class Statistics(View):
    """One quantity of a run over the last `count` samples, which are kept in memory.

    `mean`, `minimum` and `maximum` are of the finite values; None if there are none.
    `nonfinite` counts NaN and infinities of the whole run.
    """

    current: float
    mean: float | None
    minimum: float | None
    maximum: float | None
    count: int
    nonfinite: int


class VerdictView(View):
    """The verdict on a run without progress, and the observations that it rests on."""

    word: Literal["hung", "killed", "crashed", "finished", "ended", "silent"]
    reasons: tuple[str, ...]
    computes: bool = Field(
        default=False,
        description="one of its processes uses a CPU, and no probe found a rank that is missing",
    )

    def __str__(self) -> str:
        return f"{self.word}: {'; '.join(self.reasons)}" if self.reasons else self.word


class ReasonView(View):
    """A reason for a run's health: a firing alert, an incident, or what its log and host show.

    `severity` is of `names.SEVERITIES`; `info` does not lower the health. `since`: Unix seconds.
    """

    kind: Literal["alert", "incident", "finding"]
    severity: str
    text: str
    since: float | None
    is_symptom: bool = Field(default=False, description="an alert of an incident that is a reason")


OverBy = Literal["recovered", "restart", "run_end"]


class PastView(View):
    """An alert or incident of a run that is over: `over_by` says what ended it.

    `name`: of the alert, or the incident's id. `begin`, `end`: Unix seconds. `incident`: the id of
    the incident that an alert belongs to.
    """

    kind: Literal["alert", "incident"]
    name: str
    severity: str
    text: str
    begin: float
    end: float
    over_by: OverBy
    incident: str | None = None


class NotCheckedView(View):
    """Alerts (`check`) that had no input, `why`, and what to `log` to have it.

    `quantity`: the input that is missing.
    """

    check: str
    why: str
    log: str
    quantity: str

    def __str__(self) -> str:
        return f"{self.why}: {self.check} not looked for"


class NonfiniteView(View):
    """The first value of `quantity` that was NaN or infinite at a step; `rank` None if unknown."""

    step: int
    quantity: str
    rank: int | None


class RankView(View):
    """A rank's last step, last record's time (Unix seconds), and phase (None if not reported).

    `mesh`: its coordinates in the dimensions of parallelism, as text (`dp 1, pp stage 3`).
    """

    rank: int
    step: int | None
    seen_at: float
    phase: str | None
    mesh: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveView:
    """One quantity over a run, as columns of buckets in log order.

    The first sample of bucket `i` has step `steps[i]`, logged at `times[i]` (Unix seconds) on
    line `lines[i]`, byte `offsets[i]` of `files[origins[i]]`. `lows`, `highs` and `means` are
    of the bucket's finite values (NaN if it has none); `nonfinite` counts its other values.
    """

    steps: Sequence[int]
    times: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    means: Sequence[float]
    nonfinite: Sequence[int]
    lines: Sequence[int]
    offsets: Sequence[int]
    origins: Sequence[int]
    files: tuple[str, ...]

    def position(self, index: int) -> Position:
        """The position of a bucket's first line."""
        return Position(self.files[self.origins[index]], self.lines[index], self.offsets[index])


class GuessView(View):
    """Times of a run up to `to` (Unix seconds) are guesses, and `why`."""

    to: float
    why: str


class RunView(View):
    """The present state of one run; times are Unix seconds, None if unknown."""

    name: str
    framework: str
    world_size: int | None
    state: str
    health: Health
    reasons: tuple[ReasonView, ...] = Field(default=(), description="of the health, worst first")
    step: int | None
    total_steps: int | None
    epoch: float | None
    progress: float | None = Field(description="0..1")
    eta_seconds: float | None
    started_at: float | None
    last_progress_at: float | None
    stall_limit_seconds: float | None
    ended_at: float | None
    end_reason: EndReason | None = Field(default=None, description="what shows that it is over")
    end_position: Position | None = Field(default=None, description="the line that shows it")
    judged_to: float | None = Field(default=None, description="None: up to the snapshot's time")
    files: tuple[str, ...]
    statistics: dict[str, Statistics]
    event_counts: dict[str, int]
    skipped_steps: int
    settings: dict[str, str] = Field(description="what the log says of its configuration")
    failed_rank: int | None = Field(default=None, description="which its incident names")
    verdict: VerdictView | None = None
    attempt: int = Field(default=1, description="number of the present one, from 1")
    decision: DecisionView | None = Field(default=None, description="what to do about it now")
    ranks: tuple[RankView, ...] = Field(default=(), description="those that report their own steps")
    step_seconds: float | None = Field(default=None, description="per step, logged or derived")
    checkpoints: tuple[int, ...] = Field(default=(), description="steps of the last saved, rising")
    nonfinite: tuple[NonfiniteView, ...] = Field(
        default=(), description="of any rank, by step; bounded, and the first is always kept"
    )
    gpus: tuple[GpuView, ...] = Field(default=(), description="which the callback reports")
    host: HostView | None = Field(default=None, description="if it is the monitor's own")
    detected: dict[str, float] = Field(
        default={}, description="what detectors compute for the whole run, without their prefix"
    )

    guess: GuessView | None = Field(default=None, description="which of its times are guesses")
    goodput: Goodput | None = Field(default=None, description="None if the log has no times")
    resumed_at: tuple[int, ...] = Field(default=(), description="steps that training went back to")
    past: tuple[PastView, ...] = Field(default=(), description="what is over, by its begin")
    not_checked: tuple[NotCheckedView, ...] = Field(
        default=(), description="checks for which its log has no input"
    )

    @property
    def also_called(self) -> str | None:
        """The run's name in its own log, if it differs from `name`; otherwise None."""
        called = self.settings.get("run")
        return called if called and called != self.name else None

    def about(self, *times: float | None) -> str:
        """`≈`, to be printed before a time or duration, if it rests on a guess; otherwise ""."""
        to = -math.inf if self.guess is None else self.guess.to
        return "≈" if any(each is not None and each <= to for each in times) else ""

    def unjudged(self, at: Callable[[float], str] = utc) -> str:
        """Up to when a run was judged whose history is being read, else ""; `at` writes times."""
        return _judged(self.judged_to, at) if self.health == "READING" else ""

    @property
    def unseen(self) -> str:
        """Why nothing is to be said about the loss; "" where it is seen."""
        return next((each.why for each in self.not_checked if each.quantity == "loss"), "")

    @property
    def because(self) -> str:
        """The worst reason for the health, and what else is wrong: `... +1: RankStraggling`.

        "" without a reason. Alerts of an incident that is the reason are no others, nor is what the
        host shows.
        """
        if not self.reasons:
            return ""
        return f"{self.reasons[0].text}{self.others}"

    @property
    def others(self) -> str:
        """How many other reasons there are, and which: ` +1: RankStraggling`; "" without one."""
        more = self.reasons[1:]
        others = [each for each in more if not each.is_symptom and each.kind != "finding"]
        names = [each.text.partition(":")[0] for each in others if each.kind == "alert"]
        named = f": {', '.join(dict.fromkeys(names))}" if names else ""
        return f" +{len(others)}{named}" if others else ""


class AlertView(View):
    """One pending or firing alert; times are Unix seconds, `fired_at` None while pending."""

    name: str
    state: Literal["pending", "firing"]
    labels: dict[str, str]
    annotations: dict[str, str]
    value: float
    active_at: float
    fired_at: float | None
    position: Position | None

    @property
    def key(self) -> str:
        """The identity of the alert instance, equal to `Transition.key`."""
        return alert_key(self.name, self.labels)

    @property
    def rank(self) -> str | None:
        """The rank of the rule's series, otherwise the one that the alert's incident names."""
        return self.labels.get("rank") or self.annotations.get("rank")


class MonitorView(View):
    """The monitor's counts since its start, and the seconds that its last evaluation took.

    `unread`: lines that look like metrics but gave none. `singly`: rows and bars that were read one
    by one, and not as columns.
    """

    lines: int
    bytes: int
    parse_errors: int
    unread: int = 0
    singly: int = 0
    evaluations: int
    evaluation_seconds: float
    records: dict[str, int]
    dropped: dict[str, int]

    @classmethod
    def fresh(cls) -> Self:
        """All counts at zero."""
        counts = dict.fromkeys(("lines", "bytes", "parse_errors", "evaluations"), 0)
        return cls(**counts, evaluation_seconds=0.0, records={}, dropped={})


def _judged(to: float | None, at: Callable[[float], str]) -> str:
    return f"judged up to {at(to)}" if to else "nothing judged yet"


class InputView(View):
    """A file or pattern that shows no run, and why: `lines` were read, None if not counted."""

    name: str
    state: Literal["waiting", "unreadable", "reading", "no training recognised"]
    lines: int | None = None


class Snapshot(View):
    """The whole state at one moment (`at`, Unix seconds), sharing nothing with the monitor.

    `version` changes with every change of the state. `points` are what `/metrics` exports for
    runs and alerts; `curves` are by run and quantity.
    """

    version: int
    at: float
    runs: Many[RunView]
    alerts: Many[AlertView]
    incidents: Many[IncidentView] = Field(default=(), description="the newest last, bounded")
    events: Many[Event] = Field(description="the newest last, bounded")
    transitions: Many[Transition] = Field(
        default=(), description="of alerts, the newest last, bounded"
    )
    monitor: MonitorView
    inputs: Many[InputView] = Field(default=(), description="without a run, bounded")
    reading: float | None = Field(
        default=None, description="share of history that was judged, 0..1; None: all of it"
    )
    judged_to: float | None = Field(
        default=None, description="up to when, while history is read; None before its first record"
    )
    points: tuple[Point, ...] = Field(exclude=True)
    curves: InstanceOf[Mapping[str, Mapping[str, CurveView]]] = Field(default={}, exclude=True)

    def unjudged(self, at: Callable[[float], str] = utc) -> str:
        """Such as `reading, 31 %: judged up to 2026-01-29 03:12:00 UTC`; `at` writes the time.

        "" where all history was judged.
        """
        if self.reading is None:
            return ""
        return f"reading, {100 * self.reading:.0f} %: {_judged(self.judged_to, at)}"
