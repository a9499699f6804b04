"""Records of benchmarks, as `bench` keeps them for `compare`."""

from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from ldlm_monitor.base.errors import InputError
from ldlm_monitor.base.incident_view import View
from ldlm_monitor.finished.readings import STEPS, Column, RunReadings

SCHEMA: Final = "ldlm.bench/1"  # the number rises with an incompatible change
FILE: Final = "record.json"  # its name in the run's folder
WATCHED = ("host_memory_bytes", "gpu_memory_bytes")
"""Quantities that are measured from outside the command, not logged by it."""


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


def read_record(path: Path) -> BenchRecord | None:
    """The record in this file or folder; None if it is none. Raises `InputError`."""
    file = path / FILE if path.is_dir() else path
    try:
        text = file.read_bytes() if file.suffix == ".json" else b""
        is_record = SCHEMA.encode() in text[:200]  # 200 bytes: `schema` is the first key
        return BenchRecord.model_validate_json(text) if is_record else None
    except OSError:
        return None
    except ValidationError as error:
        raise InputError(
            f"is no bench record of this version ({error.error_count()} errors)",
            where=str(file),
            remedy="make it anew with ldlm-monitor bench",
        ) from error
