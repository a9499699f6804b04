"""What is known of finished logs: a truth file, read, checked, and matched to the logs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from ldlm_monitor.model.errors import TruthError

Severity: TypeAlias = Literal["failure", "warning", "benign"]
_SHOWN = 3
"""Names in one message: enough to recognise a wrong folder, short enough for one line."""
_FORM = (
    'it must be [{"file": "a.log", "truth": {"events": '
    '[{"kind": "nan", "line_number": 7, "severity": "failure"}]}}]'
)


class TrueEvent(BaseModel):
    """Something that happened at a line (1-based, counting `\\n`).

    `failure` and `warning` should raise an alert, `benign` none. An alert
    after `last_line` comes too late to count (None: it never does). `quote` is part
    of the line; in a line with many states of a progress bar, it selects one.
    """

    model_config = ConfigDict(frozen=True)

    kind: Annotated[str, Field(min_length=1)]
    line_number: Annotated[int, Field(ge=1, strict=True)]
    last_line: Annotated[int, Field(ge=1, strict=True)] | None = None
    severity: Severity
    quote: str = ""

    @model_validator(mode="after")
    def _ends_after_its_beginning(self) -> TrueEvent:
        if self.last_line is not None and self.last_line < self.line_number:
            raise ValueError("last_line lies before line_number")
        return self


class _Events(BaseModel):
    events: tuple[TrueEvent, ...]


class Truth(BaseModel):
    """All that is known of one log; without a failure or a warning it is healthy."""

    model_config = ConfigDict(frozen=True)

    file: Annotated[str, Field(min_length=1)]
    truth: _Events

    @property
    def events(self) -> tuple[TrueEvent, ...]:
        """All events of the log, in the order of the truth file."""
        return self.truth.events

    @property
    def expected(self) -> tuple[TrueEvent, ...]:
        """The events that should raise an alert."""
        return tuple(event for event in self.events if event.severity != "benign")


_FILE = TypeAdapter(tuple[Truth, ...])


def load_truth(path: Path, alerts: Collection[str]) -> tuple[Truth, ...]:
    """The entries of a truth file, a JSON list; `alerts` are the names that rules have.

    Raises TruthError that names the first place that is wrong.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise TruthError(
            f"cannot be read ({error.strerror})", where=f"--truth {path}", remedy="check its name"
        ) from error
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise TruthError(f"is no JSON: {error.msg}", where=where, remedy=_FORM) from error
    except UnicodeDecodeError as error:
        raise TruthError("is no UTF-8 text", where=str(path), remedy=_FORM) from error
    try:
        entries = _FILE.validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = f"{path}: {_place(document, first['loc'])}".rstrip(": ")
        what = first["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
        raise TruthError(what, where=where, remedy=_FORM) from None
    for number, entry in enumerate(entries, 1):
        _check(entry, f"{path}: entry {number} ({entry.file})", alerts)
    files = [entry.file for entry in entries]
    if twice := next((file for file in files if files.count(file) > 1), None):
        raise TruthError(
            f"{twice} has two entries", where=str(path), remedy="put its events into one entry"
        )
    return entries


def _place(document: object, loc: Sequence[int | str]) -> str:
    """`entry 3 (a.log), event 2, line_number`, as a person counts."""
    parts: list[str] = []
    before: int | str = "entry"
    for part in loc:
        if isinstance(part, int):
            parts.append(f"{str(before).removesuffix('s')} {part + 1}")
            entry = document[part] if before == "entry" and isinstance(document, list) else None
            if isinstance(entry, dict) and isinstance(entry.get("file"), str):
                parts[-1] += f" ({entry['file']})"
        elif part not in ("truth", "events") or part == loc[-1]:
            parts.append(part)
        before = part
    return ", ".join(parts)


def _check(entry: Truth, where: str, alerts: Collection[str]) -> None:
    for number, event in enumerate(entry.events, 1):
        if (
            event.severity != "benign"
            and event.kind not in DETECTED_BY
            and event.kind not in alerts
        ):
            raise TruthError(
                f"unknown kind {event.kind!r}",
                where=f"{where}, event {number}",
                remedy=f"write an alert's name, or one of {', '.join(sorted(DETECTED_BY))}",
            )


def match_logs(
    path: Path, truths: Sequence[Truth], logs: Sequence[Path]
) -> list[tuple[Truth, Path]]:
    """Each entry with its log, whose path ends in the entry's `file`.

    Raises TruthError where a log has no entry, an entry no log, or either has several.
    """
    pairs: list[tuple[Truth, Path]] = []
    for truth in truths:
        ends = PurePath(truth.file).parts
        fitting = [log for log in logs if log.absolute().parts[-len(ends) :] == ends]
        if len(fitting) > 1:
            raise TruthError(
                f"{truth.file} may be any of {_listed(map(str, fitting))}",
                where=str(path),
                remedy="write more of its path into the truth file, or name one of them only",
            )
        pairs += [(truth, log) for log in fitting]
    entries = {log: [truth.file for truth, each in pairs if each == log] for log in logs}
    found = {file for files in entries.values() for file in files}
    if missing := [truth.file for truth in truths if truth.file not in found]:
        raise TruthError(
            f"names {_listed(missing)}, not among the logs given",
            where=str(path),
            remedy="name these logs too, or take them out of the truth file",
        )
    if unknown := [str(log) for log, files in entries.items() if not files]:
        raise TruthError(
            f"has no entry for {_listed(unknown)}",
            where=str(path),
            remedy="add an entry for it (of no events, if it is healthy), or leave the log out",
        )
    for log, files in entries.items():
        if len(files) > 1:
            raise TruthError(
                f"{_listed(files)} are the same log, {log}",
                where=str(path),
                remedy="put its events into one entry",
            )
    return pairs


def _listed(found: Iterable[str]) -> str:
    names = list(found)
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def check_lines(path: Path, truth: Truth, lines: dict[int, str]) -> None:
    """Raises TruthError where the log's `lines` are not those that the events quote."""
    for number, event in enumerate(truth.events, 1):
        where = f"{path}: {truth.file}, event {number} ({event.kind})"
        remedy = "the log may be another version than the one that was judged"
        if event.line_number not in lines:
            raise TruthError(f"the log has no line {event.line_number}", where=where, remedy=remedy)
        if event.quote not in lines[event.line_number]:
            raise TruthError(
                f"line {event.line_number} does not hold {event.quote!r}",
                where=where,
                remedy=remedy,
            )


_DIED = ("TrainingCrashed", "JobKilled", "RankLost")
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
"""By kind, the alerts of the default pack any of which detects it."""

_FATAL = frozenset(DETECTED_BY) - {"nan", "loss_spike", "overflow_skip", "slow"}
_FATAL_ALERTS = frozenset({"OutOfMemory", "GpuError", "NcclTimeout", "NcclError", "DiskFull"})
KNOWN_ALERTS = frozenset(alert for alerts in DETECTED_BY.values() for alert in alerts)


def detected_by(kind: str) -> tuple[str, ...]:
    """The alerts that detect a kind of event; a kind that is an alert's name means that alert."""
    return DETECTED_BY.get(kind, (kind,))


def follow_from(kind: str) -> frozenset[str]:
    """The alerts that are true after such an event without detecting it: the run died of it."""
    fatal = kind in _FATAL or kind in _FATAL_ALERTS
    return frozenset(_DIED) if fatal else frozenset()
