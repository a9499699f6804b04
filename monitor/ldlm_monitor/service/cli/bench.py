"""`ldlm-monitor bench --name NAME -- COMMAND...`: a run that is measured for `compare`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.service.cli.flags import InputFlags, settings, shown_dash

if TYPE_CHECKING:
    from ldlm_monitor.finished.bench_record import BenchRecord

_Positive = Parameter(validator=Number(gt=0))


def bench(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    name: str | None = None,
    steps: Annotated[int | None, _Positive] = None,
    seconds: Annotated[float | None, _Positive] = None,
    grace: Annotated[float, Parameter(validator=Number(gte=0))] = 10.0,  # as `docker stop`
    also: tuple[str, ...] = (),
    log_dir: Path = Path("train_logs"),
    quiet: bool = False,
    list_: Annotated[bool, Parameter(name="--list")] = False,
    flags: InputFlags | None = None,
) -> int:
    """Runs a training command as `run` does, measures it, and keeps a record for `compare`.

    Exits with the command's code, or with 0 if a limit stopped it.

    Args:
        command: The command and its arguments, after --.
        name: Name of the record, by which `compare` finds it.
        steps: Stop this many steps after the first one logged.
        seconds: Stop after so many seconds.
        grace: Seconds from SIGTERM to SIGKILL when a limit stops the command.
        also: A file, folder or quoted glob that the command writes numbers into; repeatable. A
            training_log.jsonl near it is found.
        log_dir: Folder of the log NAME_TIME.log.
        quiet: Do not show the command's output.
        list_: List the records that are kept.
    """
    from ldlm_monitor.finished.bench_measuring import BenchLimits, BenchReader, Measuring
    from ldlm_monitor.finished.bench_record import FILE
    from ldlm_monitor.host.supervise import launch, run_folder, started_in

    found = settings(flags)
    if list_:
        return _list()
    if name is None:
        raise UsageError("is missing", where="--name", remedy="give the record a name")
    words = shown_dash(command)
    reader = BenchReader(name, found.formats, also, lambda text: print(text, file=sys.stderr))
    run, front, link = launch.start(words, name, log_dir, echo=not quiet, reports=True)
    reader.begin(Path(run.log))
    measuring = Measuring(link, reader, BenchLimits(steps, seconds, grace))
    works = measuring.follow, lambda: started_in.describe(run)
    threads = [Thread(target=work, name="bench") for work in works]
    for thread in threads:
        thread.start()
    code = front.wait(words[0])
    for thread in threads:
        thread.join()
    run_folder.keep(run, exit_code=code, ended_at=time.time())
    if measuring.exit_code is None:  # it could not be started
        return code
    record = measuring.record(name, run.command, run.started_at)
    (run.folder / FILE).write_text(record.model_dump_json() + "\n", encoding="utf-8")
    print(f"bench {name}: {_summary(record)}", file=sys.stderr)
    if not record.steps:
        print(
            "no step was found in the output; if the command writes numbers into a file, name it "
            "with --also FILE; `ldlm-monitor formats test` shows how a log is parsed",
            file=sys.stderr,
        )
    return 0 if record.stopped_by in ("steps", "seconds") else code


def _list() -> int:
    from ldlm_monitor.base.text.format import utc
    from ldlm_monitor.base.text.sanitize import plain
    from ldlm_monitor.finished.bench_record import read_record
    from ldlm_monitor.host.supervise.run_folder import all_runs

    records = [record for run in all_runs() if (record := read_record(run.folder))]
    for record in reversed(records):
        name = plain(record.name, 30)
        print(f"{name:<20}  {utc(record.started_at)}  {_summary(record)}")
    if not records:
        print("no run was measured by bench", file=sys.stderr)
    return 0


def _summary(record: BenchRecord) -> str:
    """A line about a record: steps and time, pace, memory, and how the command ended."""
    return ", ".join(_facts(record))


def _facts(record: BenchRecord) -> Iterator[str]:
    from statistics import median

    from ldlm_monitor.base.text.format import counted, duration
    from ldlm_monitor.finished.compare.output import value
    from ldlm_monitor.finished.compare.sides import Side

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
