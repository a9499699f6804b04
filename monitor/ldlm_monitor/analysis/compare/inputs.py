"""From what a user names to the runs that are compared: files, folders, globs, bench records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ldlm_monitor.analysis.bench.bench_records import find_record
from ldlm_monitor.analysis.compare.sides import Side
from ldlm_monitor.analysis.readings import Readings, RunReadings
from ldlm_monitor.config import Settings
from ldlm_monitor.model.errors import InputError
from ldlm_monitor.parse import Parser
from ldlm_monitor.playback.finished_inputs import gather, refuse_unreadable
from ldlm_monitor.run.identity import RunNames


def sides_of(
    inputs: Sequence[Settings], warm_up: float | None, notice: Callable[[str], None]
) -> list[Side]:
    """One side for each input, under names that differ. Raises `InputError`."""
    found = [_read(each, notice) for each in inputs]
    names = [readings.name for readings in found]
    if len(set(names)) < len(names):
        names = [each.files[0] for each in inputs]
    unique = [
        name if name not in names[:index] else f"{name} ({index + 1})"
        for index, name in enumerate(names)
    ]
    return [Side(name, each, warm_up) for name, each in zip(unique, found, strict=True)]


def _read(settings: Settings, notice: Callable[[str], None]) -> RunReadings:
    """What one input holds, which must be one run."""
    (named,) = settings.files
    record = find_record(named, settings.state_dir)
    if record is not None:
        return record.readings()
    names = RunNames(settings.run)
    history, notices = gather(settings, names)
    for text in notices:
        notice(text)
    readings = Readings(Parser(settings.formats), names)
    for when, chunk, file in history.play():
        readings.feed(chunk, when, timed=file.timeline.timed)
    refuse_unreadable(history)
    readings.finish(file.path for file in history.files)
    found = [run for run in readings.runs.values() if run.first_step is not None]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(
            "has no steps with numbers",
            where=named,
            remedy="name the log of a training; `ldlm-monitor parse --stats` shows what is read",
        )
    listed = ", ".join(sorted(run.name for run in found)[:4])
    raise InputError(
        f"holds {len(found)} runs ({listed}{', …' if len(found) > 4 else ''})",
        where=named,
        remedy="name one file of each run to compare",
    )
