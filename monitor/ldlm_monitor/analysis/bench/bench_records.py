"""Records of benchmarks: a folder for each name, with `record.json` and the command's output."""

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from ldlm_monitor.analysis.column import Column
from ldlm_monitor.analysis.readings import STEPS, RunReadings
from ldlm_monitor.model.errors import InputError, UsageError
from ldlm_monitor.model.incident_view import View
from ldlm_monitor.state.state_dir import default_state_dir

SCHEMA: Final = "ldlm.bench/1"  # the number rises with an incompatible change
FILE, LOG = "record.json", "output.log"  # names of the record and of the command's output
WATCHED = ("host_memory_bytes", "gpu_memory_bytes")
"""Quantities that are measured from outside the command, not logged by it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
"""A record's and its folder's name: a choice of up to 100 characters that no shell must quote."""


class BenchSeries(View):
    """The values of a quantity in a record, with their steps and times (Unix seconds)."""

    steps: tuple[int, ...]
    times: tuple[float, ...]
    values: tuple[float, ...]


class BenchRecord(View):
    """One benchmark of `seconds` from `started_at` (Unix seconds).

    `series`: values by quantity, in bytes, seconds or per second. `stopped_by`: `command` if it
    ended by itself, otherwise the limit or Ctrl-C. `exit_code`: below 0 if a signal killed the
    command. `exact`: the steps have their own times.
    """

    schema_: Literal["ldlm.bench/1"] = Field(default=SCHEMA, alias="schema")
    name: str
    command: tuple[str, ...]
    started_at: float
    seconds: float
    stopped_by: Literal["command", "steps", "seconds", "interrupt"]
    exit_code: int
    steps: int = Field(description="from the first logged step to the last")
    settings: dict[str, str] = Field(default={}, description="settings that the command logged")
    exact: bool
    series: dict[str, BenchSeries]

    def readings(self) -> RunReadings:
        """The record as a log's readings; of `WATCHED`, only from the first step to the last."""
        readings = RunReadings(self.name, files={self.name: None}, settings=dict(self.settings))
        steps = self.series.get(STEPS)
        for quantity, series in self.series.items():
            column = Column(
                array("q", series.steps), array("d", series.times), array("d", series.values)
            )
            if steps is not None and quantity in WATCHED:
                first = bisect_left(column.times, steps.times[0])
                column = column.part(first, bisect_right(column.times, steps.times[-1]))
            readings.put(quantity, column, exact=self.exact and quantity == STEPS)
        return readings


def records_dir(state_dir: Path | None) -> Path:
    """Folder of the records: in `state_dir`, or (None) in `$XDG_STATE_HOME/ldlm-monitor/`."""
    return (state_dir or default_state_dir((), Path()).parent) / "bench"


def check_name(name: str) -> None:
    """Raise `UsageError` if a record cannot have this name, which is also its folder's."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "is no name for a record",
            where=f"--name {name}",
            remedy="use letters, digits and . _ + -, beginning with a letter or digit",
        )


def keep(record: BenchRecord, folder: Path) -> Path:
    """Write the record into `folder`, in place of an earlier one, atomically; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    fresh = folder / f".{FILE}.{os.getpid()}"
    fresh.write_text(record.model_dump_json() + "\n", encoding="utf-8")
    fresh.replace(path)
    return path


def find_record(named: str, state_dir: Path | None) -> BenchRecord | None:
    """The record with this file, folder or name; None if there is none.

    A file or folder at the path `named` takes precedence over a name. Raises `InputError`.
    """
    path = Path(os.path.expanduser(named))
    if path.is_dir() and (path / FILE).is_file():
        return _read(path / FILE)
    if path.is_file():
        return _read(path) if _is_record(path) else None
    kept = records_dir(state_dir) / named / FILE
    if not path.exists() and _NAME.fullmatch(named) and kept.is_file():
        return _read(kept)
    return None


def all_records(state_dir: Path | None) -> Iterator[BenchRecord]:
    """Every record that is kept, the oldest first. Raises `InputError`."""
    records = [_read(path) for path in records_dir(state_dir).glob(f"*/{FILE}")]
    yield from sorted(records, key=lambda record: record.started_at)


def _is_record(path: Path) -> bool:
    with path.open("rb") as file:
        return SCHEMA.encode() in file.read(200)  # 200 bytes: `schema` is the first key


def _read(path: Path) -> BenchRecord:
    try:
        return BenchRecord.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise InputError(
            f"is no bench record of this version ({error.error_count()} errors)",
            where=str(path),
            remedy="make it anew with ldlm-monitor bench",
        ) from error
