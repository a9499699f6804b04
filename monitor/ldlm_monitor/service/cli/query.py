"""`query` and `goodput`: questions to finished logs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter, Token

from ldlm_monitor.base.errors import INTERRUPTED, UsageError
from ldlm_monitor.base.text.format import utc
from ldlm_monitor.service.cli.flags import (
    InputFlags,
    JudgeFlags,
    check_chart,
    replay_of,
    settings_for_inputs,
    write_file,
)
from ldlm_monitor.service.cli.reading import read_to_end

SHOWN_VALUES = 250
"""Values of a series in a range query without a step. A choice: as many as a chart shows."""
Form: TypeAlias = Annotated[Literal["table", "json"], Parameter(name="--format")]


def _moment(_: Any, tokens: Sequence[Token]) -> float:
    from ldlm_promrules.query_answers import moment

    return moment(tokens[0].value)


def _duration(_: Any, tokens: Sequence[Token]) -> float:
    from ldlm_promrules.query_answers import duration

    return duration(tokens[0].value)


_Moment: TypeAlias = Annotated[float | None, Parameter(converter=_moment)]
_Duration: TypeAlias = Annotated[float | None, Parameter(converter=_duration)]


def query(
    expression: str,
    /,
    *files: str,
    form: Form = "table",
    start: _Moment = None,
    end: _Moment = None,
    step: _Duration = None,
    plot: Path | None = None,
    flags: JudgeFlags | None = None,
) -> int:
    """Evaluates a PromQL expression over finished logs: at their end, or every --step.

    Args:
        expression: PromQL over the metrics of docs/metrics.md, such as
            'max by (run) (ldlm_train_loss)'.
        files: Files, folders or globs; - is standard input.
        form: table: a line a series; json: the object that Prometheus' API gives as data.
        start: First time of a range query, as Unix seconds or RFC 3339 (default: of the logs).
        end: Last time of a range query (default: of the logs).
        step: Seconds between two values of a range query, or a duration such as 1m (default: 250
            values).
        plot: Draw a range query's values to this file: .svg.
    """
    from ldlm_monitor.base.text.sanitize import plain
    from ldlm_promrules.promql import parse
    from ldlm_promrules.promql.annotations import Notes
    from ldlm_promrules.query_answers import instant, over

    found = settings_for_inputs(flags, files, once=True)
    # A mistake is said before the logs are read.
    check_chart(plot)
    asked = parse(expression, any_type=True, experimental=found.promql_experimental)
    played = replay_of(found)
    engine = played.monitor.engine
    engine.retain(math.inf)
    _, is_interrupted = read_to_end(played)
    view, notes = engine.view(None, played.monitor.clock), Notes()
    if plot is not None or {start, end, step} != {None}:
        begin = view.first if start is None else start
        until = view.until if end is None else end
        every = step or max((until - begin) / SHOWN_VALUES, engine.interval)
        answer = over(view, asked, begin, until, _checked(begin, until, every), notes=notes)
    else:
        answer = instant(view, asked, view.until, notes)
    for note in notes.lines(asked):
        print(f"ldlm-monitor: {plain(note)}", file=sys.stderr)
    if plot is not None:
        _draw(expression, answer["result"], plot)
    if form == "json":
        print(json.dumps(answer))
    elif not (rows := _rows(answer)):
        print("no series: the expression selects nothing in these logs")
    else:
        _print_table(("value", "labels"), rows)
    return INTERRUPTED if is_interrupted else 0


def _checked(start: float, end: float, step: float) -> float:
    from ldlm_promrules.query_answers import MAX_STEPS

    if end < start or step <= 0 or (end - start) / step > MAX_STEPS:
        raise UsageError(
            f"asks for no time, or more than {MAX_STEPS:,}",
            where="--start, --end, --step",
            remedy="begin before the end, and make the step longer",
        )
    return step


def _rows(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """A row a series: its value, or the last of its values, and its labels."""
    if answer["resultType"] in ("scalar", "string"):
        return [(str(answer["result"][1]), "")]
    return [
        (str((each.get("value") or each["values"][-1])[1]), _labels(each["metric"]))
        for each in answer["result"]
    ]


def _draw(title: str, result: Sequence[dict[str, Any]], plot: Path) -> None:
    """Write the values of a range query as a chart over the seconds since the first of them."""
    from ldlm_monitor.finished.charts import Figure, Line, page

    start = min((each["values"][0][0] for each in result), default=0.0)
    lines = []
    for color, each in enumerate(result):
        xs = [at - start for at, _ in each["values"]]
        given = [float(value) for _, value in each["values"]]
        odd = [x for x, value in zip(xs, given, strict=True) if not math.isfinite(value)]
        values = [value if math.isfinite(value) else math.nan for value in given]
        curve = {"means": values, "lows": values, "highs": values, "nonfinite": odd}
        lines.append(Line(name=_labels(each["metric"]), xs=xs, color=color, **curve))
    figure = Figure(title=title, lines=lines, along=f"seconds since {utc(start)}")
    write_file(plot, page([figure]), "--plot")


def goodput(*files: str, form: Form = "table", flags: InputFlags | None = None) -> int:
    """Prints where the time of runs went: steps that were kept, and what the rest was lost to.

    Args:
        files: Files, folders or globs; - is standard input.
        form: table: a line a run; json: an object a run, with every loss.
    """
    from ldlm_monitor.base.text.format import duration
    from ldlm_monitor.finished.report.document import report

    settings = settings_for_inputs(flags, files, once=True)
    snapshot, is_interrupted = read_to_end(replay_of(settings, looks=True))
    if not snapshot.runs:
        raise UsageError("no training was found", where=" ".join(files), remedy="name its log")
    without = snapshot.model_copy(update={"curves": {}})
    runs = report(without, settings.gpu_hour_price).runs
    if form == "json":
        for run in runs:
            found = None if run.goodput is None else run.goodput.model_dump(mode="json")
            names = ("title", "opened_at", "lost_seconds")
            incidents = [{name: getattr(each, name) for name in names} for each in run.incidents]
            print(json.dumps({"run": run.name, "goodput": found, "incidents": incidents}))
        return INTERRUPTED if is_interrupted else 0
    rows: list[tuple[str, ...]] = []
    costs: list[tuple[str, ...]] = []
    for run in runs:
        spent = run.goodput
        if spent is None:
            steps = "fewer than three steps have times" if run.step else "no step was found"
            rows.append((run.name, *"------", f"not known: {steps}"))
            continue
        for incident in run.incidents:
            seconds = incident.lost_seconds
            if seconds is not None:
                amounts = map(_amount, spent.part(seconds))
                costs.append((run.name, duration(seconds), *amounts, incident.title))
        lost = ", ".join(f"{each.what} {duration(each.seconds)}" for each in spent.losses)
        rows.append(
            (
                run.name,
                run.about(run.started_at) + duration(spent.total_seconds),
                f"{100 * spent.share:.1f} %",
                f"{100 * spent.ettr:.1f} %",
                "-" if spent.mttf_seconds is None else duration(spent.mttf_seconds),
                _amount(spent.gpu_hours),
                _amount(spent.cost),
                lost or "-",
            )
        )
    heads = ("run", "time", "goodput", "ETTR", "MTTF", "GPU hours", "cost", "lost to")
    _print_table(heads, rows)
    for run in runs:
        if run.guess is not None and run.goodput is not None:
            print(f"≈ {run.name}: {run.guess.why}")
    if any(run.goodput is None and run.step for run in runs):
        print(
            "\nSteps without times are timed only while their log is followed;"
            " `ldlm-monitor run` keeps that in its report.txt."
        )
    if costs:
        print()
        _print_table(("run", "lost", "GPU hours", "cost", "incident"), costs)
    return INTERRUPTED if is_interrupted else 0


def _amount(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _labels(metric: Mapping[str, str]) -> str:
    from ldlm_monitor.base.text.sanitize import plain

    name, rest = metric.get("__name__", ""), {k: v for k, v in metric.items() if k != "__name__"}
    inner = ", ".join(f'{label}="{plain(text)}"' for label, text in rest.items())
    return f"{name}{{{inner}}}"


def _print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from ldlm_monitor.base.text.sanitize import plain

    lines = [tuple(heads), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
