"""`query` and `goodput`: questions to finished logs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from ldlm_monitor.cli.flags import InputFlags, JudgeFlags, settings_for_inputs
from ldlm_monitor.model.errors import UsageError

if TYPE_CHECKING:
    from ldlm_monitor.model.alert import VectorSample

Form: TypeAlias = Annotated[Literal["table", "json"], Parameter(name="--format")]


def query(
    expression: str, /, *files: str, form: Form = "table", flags: JudgeFlags | None = None
) -> int:
    """Evaluates a PromQL expression at the end of finished logs.

    Args:
        expression: PromQL over the metrics of docs/metrics.md, such as
            'max by (run) (ldlm_train_loss)'; ranges reach back six hours.
        files: Files, folders or globs; - is standard input.
        form: table: a line a series; json: the object that Prometheus' API gives as data.
    """
    from ldlm_monitor.playback.replay import Replay
    from ldlm_monitor.promql import parse

    asked = parse(expression)  # a mistake is said before the logs are read
    played = Replay(settings_for_inputs(flags, files, once=True))
    for notice in played.notices:
        print(notice, file=sys.stderr)
    for _ in played.played():
        pass
    found = played.monitor.query(asked, played.monitor.clock)
    if form == "json":
        print(json.dumps(_data(found, played.monitor.clock)))
    elif found:
        _print_table(("value", "labels"), [(repr(each.value), _labels(each)) for each in found])
    else:
        print("no series: the expression selects nothing at the end of these logs")
    return 0


def goodput(*files: str, form: Form = "table", flags: InputFlags | None = None) -> int:
    """Prints where the time of runs went: steps that were kept, and what the rest was lost to.

    Args:
        files: Files, folders or globs; - is standard input.
        form: table: a line a run; json: an object a run, with every loss.
    """
    from ldlm_monitor.cli.report import read
    from ldlm_monitor.report.document import report
    from ldlm_monitor.text.format import duration

    snapshot, readings = read(settings_for_inputs(flags, files, once=True))
    if not snapshot.runs:
        raise UsageError("no training was found", where=" ".join(files), remedy="name its log")
    runs = report(snapshot.model_copy(update={"curves": {}}), readings).runs
    if form == "json":
        for run in runs:
            found = None if run.goodput is None else run.goodput.model_dump(mode="json")
            print(json.dumps({"run": run.name, "goodput": found}))
        return 0
    rows = []
    for run in runs:
        spent = run.goodput
        lost = () if spent is None else spent.losses
        rows.append(
            (
                run.name,
                "-" if spent is None else duration(spent.total_seconds),
                "-" if spent is None else f"{100 * spent.share:.1f} %",
                ", ".join(f"{each.what} {duration(each.seconds)}" for each in lost) or "-",
            )
        )
    _print_table(("run", "time", "goodput", "lost to"), rows)
    return 0


def _data(found: Sequence[VectorSample], at: float) -> dict[str, object]:
    """https://prometheus.io/docs/prometheus/latest/querying/api/#instant-vectors"""
    result = [{"metric": dict(each.labels), "value": [at, _number(each.value)]} for each in found]
    return {"resultType": "vector", "result": result}


def _number(value: float) -> str:
    """As Prometheus spells it."""
    spelled = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
    return spelled.get(repr(value), repr(value))


def _labels(sample: VectorSample) -> str:
    from ldlm_monitor.text.sanitize import plain

    labels = dict(sample.labels)
    name = labels.pop("__name__", "")
    return name + "{" + ", ".join(f'{key}="{plain(text)}"' for key, text in labels.items()) + "}"


def _print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from ldlm_monitor.text.sanitize import plain

    lines = [tuple(heads), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
