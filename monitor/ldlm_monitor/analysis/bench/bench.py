"""One benchmark from command to record, and the records as text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from ldlm_monitor.analysis.bench.bench_records import LOG, BenchRecord, BenchSeries, keep
from ldlm_monitor.analysis.bench.watch import BenchLimits, Outputs, watch
from ldlm_monitor.analysis.compare.output import value
from ldlm_monitor.analysis.compare.sides import Side
from ldlm_monitor.analysis.readings import STEPS, Readings
from ldlm_monitor.config import Settings
from ldlm_monitor.parse import Parser
from ldlm_monitor.run.run_names import RunNames
from ldlm_monitor.text.format import counted, duration, utc
from ldlm_monitor.text.sanitize import plain


def bench(
    name: str,
    command: Sequence[str],
    folder: Path,
    settings: Settings,
    limits: BenchLimits,
    *,
    also: Sequence[str] = (),
    echo: Callable[[bytes], None] = lambda data: None,
    notice: Callable[[str], None] = lambda text: None,
) -> BenchRecord:
    """Run the command in the working folder, and keep its record in `folder`.

    `also`: files that the command writes and that are read. `echo` gets the command's output,
    `notice` messages. Raises `UsageError` (cannot start it) or `FormatError` (a definition file).
    """
    directory = Path.cwd()
    readings = Readings(Parser(settings.formats), RunNames(name), live=True)
    log = folder / LOG
    with Outputs(readings, name, log=log, directory=directory, also=also, notice=notice) as outputs:
        watched = watch(command, directory, outputs, limits, echo)
    run = outputs.run
    columns = {each: run.column(each) for each in run.quantities()}
    columns |= {STEPS: run.steps} | watched.memory
    record = BenchRecord(
        name=name,
        command=tuple(plain(word, 2000) for word in command),  # characters: a word may be a script
        started_at=watched.started_at,
        seconds=watched.seconds,
        stopped_by=watched.stopped_by,
        exit_code=watched.exit_code,
        steps=run.taken,
        settings={plain(key): plain(text) for key, text in run.settings.items()},
        exact=run.is_exact,
        series={
            each: BenchSeries(steps=(*kept.steps,), times=(*kept.times,), values=(*kept.values,))
            for each, kept in columns.items()
            if kept
        },
    )
    keep(record, folder)
    return record


def summary(record: BenchRecord) -> str:
    """A line about a record: steps and time, pace, memory, and how the command ended."""
    return ", ".join(_facts(record))


def listed(records: Iterable[BenchRecord]) -> Iterator[str]:
    """One line for each record."""
    for record in records:
        yield f"{plain(record.name, 30):<20}  {utc(record.started_at)}  {summary(record)}"


def _facts(record: BenchRecord) -> Iterator[str]:
    yield f"{counted(record.steps, 'step')} in {duration(record.seconds)}"
    side = Side(record.name, record.readings())
    for quantity, unit in (("step_seconds", "s"), ("samples_per_second", " samples/s")):
        if found := side.steady(quantity):
            yield value(median(found), unit) + (" a step" if unit == "s" else "")
    for quantity, words in (("gpu_memory_bytes", "GPU"), ("host_memory_bytes", "host")):
        if series := record.series.get(quantity):
            yield f"{value(max(series.values), 'B')} {words} memory at most"
    ended = {
        "command": "ended by itself",
        "steps": "stopped after its steps",
        "seconds": "stopped after its time",
        "interrupt": "interrupted",
    }
    code = record.exit_code
    yield f"{ended[record.stopped_by]}, exit code {code}" + (" (a signal)" if code < 0 else "")
