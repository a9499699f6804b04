"""Truth files, which list the events of finished logs: read, checked, and matched to the logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Literal

from pydantic import (
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from ldlm_monitor.base.errors import TruthError, first_problem

_FORM = (  # a truth file, as the remedy of errors shows it
    'it must be [{"file": "a.log", "truth": {"events": '
    '[{"kind": "nan", "line_number": 7, "severity": "failure"}]}}]'
)


class TrueEvent(BaseModel):
    """Something that happened at a line (from 1; only a line feed ends a line).

    `failure` and `warning` should raise an alert, `benign` none. An alert after `last_line` comes
    too late to count (None: no alert does). `quote` is part of the line (empty: no part is named);
    in a line with many states of a progress bar, the quote selects one.
    """

    model_config = ConfigDict(frozen=True)

    kind: Annotated[str, Field(min_length=1)]
    line_number: Annotated[int, Field(ge=1, strict=True)]
    last_line: Annotated[int, Field(ge=1, strict=True)] | None = None
    severity: Literal["failure", "warning", "benign"]
    quote: str = ""

    @model_validator(mode="after")
    def _ends_after_its_beginning(self) -> TrueEvent:
        if self.last_line is not None and self.last_line < self.line_number:
            raise ValueError("last_line lies before line_number")
        return self


class Truth(BaseModel):
    """The events of one log; without a failure or a warning the log is healthy."""

    model_config = ConfigDict(frozen=True)

    file: Annotated[str, Field(min_length=1)]
    events: tuple[TrueEvent, ...] = Field(validation_alias=AliasPath("truth", "events"))

    @property
    def expected(self) -> tuple[TrueEvent, ...]:
        """The events that should raise an alert."""
        return tuple(event for event in self.events if event.severity != "benign")


_FILE = TypeAdapter(tuple[Truth, ...])


def load_truth(path: Path, alerts: Collection[str]) -> tuple[Truth, ...]:
    """The entries of a truth file, a JSON list; `alerts`: names of the alerts that rules raise.

    Raises TruthError that names the first place that is wrong.
    """
    try:
        entries = _FILE.validate_json(path.read_bytes())
    except OSError as error:
        raise TruthError(
            f"cannot be read ({error.strerror})", where=f"--truth {path}", remedy="check the file"
        ) from error
    except ValidationError as error:
        place, what = first_problem(error)
        where = f"{path}: {place}" if place else str(path)
        raise TruthError(what, where=where, remedy=_FORM) from None
    known = DETECTED_BY.keys() | set(alerts)
    for entry in entries:
        for event in entry.expected:
            if event.kind not in known:
                raise TruthError(
                    f"unknown kind {event.kind!r}",
                    where=f"{path}: {entry.file}, line {event.line_number}",
                    remedy=f"write an alert's name, or one of {', '.join(sorted(DETECTED_BY))}",
                )
    return entries


def match_logs(
    path: Path, truths: Sequence[Truth], logs: Sequence[Path]
) -> list[tuple[Truth, Path]]:
    """Each entry with its log, whose path ends in the entry's `file`.

    Raises TruthError if a log has no entry, an entry has no log, or either has several.
    """
    found: dict[Path, Truth] = {}
    for truth in truths:
        ends = PurePath(truth.file).parts
        fitting = [log for log in logs if log.absolute().parts[-len(ends) :] == ends]
        if len(fitting) != 1:
            shown = ", ".join(map(str, fitting[:3])) or "none of the logs given"  # 3: one line
            raise TruthError(
                f"{truth.file} fits {shown}",
                where=str(path),
                remedy="name each log once; in the truth file, by enough of its path",
            )
        other = found.setdefault(fitting[0], truth)
        if other is not truth:
            raise TruthError(
                f"{other.file} and {truth.file} are the same log",
                where=str(path),
                remedy="put its events into one entry",
            )
    if unknown := [str(log) for log in logs if log not in found]:
        raise TruthError(
            f"has no entry for {unknown[0]}",
            where=str(path),
            remedy="add an entry for it (of no events, if it is healthy), or leave the log out",
        )
    return [(truth, log) for log, truth in found.items()]


def check_lines(path: Path, truth: Truth, lines: Mapping[int, str]) -> None:
    """Raise TruthError if `lines` lacks the line of an event, or the line lacks its quote."""
    for event in truth.events:
        line = lines.get(event.line_number)
        if line is None or event.quote not in line:
            number = event.line_number
            raise TruthError(
                f"line {number} does not hold {event.quote!r}" if line else f"has no line {number}",
                where=f"{path}: {truth.file}",
                remedy="the log may be another version than the one that was judged",
            )


_DIED = ("TrainingCrashed", "JobKilled", "RankLost")  # the alerts of a run that died
DETECTED_BY: Mapping[str, tuple[str, ...]] = {
    "nan": ("NonFiniteLoss", "NonFiniteGradient"),
    "loss_spike": ("LossSpike", "LossDiverging"),
    "overflow_skip": ("StepsSkipped", "LossScaleCollapsed"),
    "slow": ("ThroughputDrop", "RankStraggling"),
    "oom_cuda": ("OutOfMemory",),
    "oom_host": ("OutOfMemory", "JobKilled"),
    "xid": ("GpuError",),
    "traceback": ("TrainingCrashed",),
    "process_failed": ("TrainingCrashed", "RankLost"),
    "child_failed": ("TrainingCrashed", "RankLost"),
    "segfault": _DIED,
    "sigkill": _DIED,
    "signal": _DIED,
    "job_time_limit": ("JobKilled",),
    "job_cancelled": ("JobKilled",),
}
"""Kind of an event to the alerts of the default pack; any one of these detects the event."""

# Kinds of events that end a run: of those above all but four, and five names of alerts.
_FATAL = frozenset(DETECTED_BY) - {"nan", "loss_spike", "overflow_skip", "slow"}
_FATAL |= {"OutOfMemory", "GpuError", "NcclTimeout", "NcclError", "DiskFull"}
KNOWN_ALERTS = frozenset(alert for alerts in DETECTED_BY.values() for alert in alerts)
"""The alerts in `DETECTED_BY`; an alert of a user's rule counts at an event's own lines alone."""


def detected_by(kind: str) -> tuple[str, ...]:
    """The alerts that detect a kind of event; a kind that is an alert's name means that alert."""
    return DETECTED_BY.get(kind, (kind,))


def follow_from(kind: str) -> frozenset[str]:
    """The alerts that may follow an event because the run died of it; empty if it ends no run."""
    return frozenset(_DIED) if kind in _FATAL else frozenset()
