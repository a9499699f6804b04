"""What `ldlm-monitor compare` says of two trainings, by what the callback wrote in each."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ldlm_monitor.finished.compare.comparison import compare
from ldlm_monitor.finished.compare.sides import Side
from ldlm_monitor.finished.readings import STEPS, Column, RunReadings

TOLD = ("loss", "step_seconds", "cpu_seconds")


def steps_of(health: Path) -> list[dict[str, Any]]:
    """The steps of a `health_rank*.jsonl`, with what is asked of them here."""
    rows = (json.loads(line) for line in health.read_text().splitlines())
    return [
        {name: row[name] for name in TOLD if name in row} for row in rows if row["type"] == "step"
    ]


def said(
    base: Sequence[Sequence[dict[str, Any]]],
    own: Sequence[Sequence[dict[str, Any]]],
    *,
    seconds: str,
    warm_up: int,
) -> dict[str, str]:
    """Verdicts on `step_seconds` and `loss`, in compare's words, for some trainings of each.

    All trainings of one stand one behind the other. Speed is judged by the value `seconds`
    of their steps after `warm_up`, the loss by all their steps, of which compare takes the
    last half.
    """
    sides = [
        _side(name, trainings, seconds, warm_up)
        for name, trainings in (("baseline", base), ("change", own))
    ]
    return {row.quantity: row.cells[1].said for row in compare(sides).rows}


def _side(
    name: str, trainings: Sequence[Sequence[dict[str, Any]]], seconds: str, warm_up: int
) -> Side:
    readings = RunReadings(name)
    pace = [step[seconds] for steps in trainings for step in steps[warm_up:]]
    readings.put(STEPS, _column([0.0] * len(pace)))
    readings.put("step_seconds", _column(pace))
    readings.put("loss", _column([step["loss"] for steps in trainings for step in steps]))
    return Side(name, readings, warm_up=0)


def _column(values: Sequence[float]) -> Column:
    """Values of the steps from 1 on; when they were written is not asked."""
    column = Column()
    column.extend(range(1, len(values) + 1), [math.nan] * len(values), values)
    return column
