"""`ldlm-monitor bench --name NAME -- COMMAND...`: runs and records a command for `compare`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from ldlm_monitor.cli.flags import InputFlags, settings, shown_dash
from ldlm_monitor.model.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from ldlm_monitor.analysis.bench.bench_records import BenchRecord

GRACE_SECONDS = 10.0  # default of --grace: `docker stop` waits as long after SIGTERM
_Positive = Parameter(validator=Number(gt=0))


def bench(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    name: str | None = None,
    steps: Annotated[int | None, _Positive] = None,
    seconds: Annotated[float | None, _Positive] = None,
    grace: Annotated[float, Parameter(validator=Number(gte=0))] = GRACE_SECONDS,
    also: tuple[str, ...] = (),
    out: Path | None = None,
    replace: bool = False,
    quiet: bool = False,
    list_: Annotated[bool, Parameter(name="--list")] = False,
    state_dir: Path | None = None,
    flags: InputFlags | None = None,
) -> int:
    """Runs a training command, watches it, and keeps a record for `compare`.

    Exits with the command's code, or with 0 if a limit stopped it.

    Args:
        command: The command and its arguments, after --.
        name: Name of the record, by which `compare` finds it.
        steps: Stop this many steps after the first one logged.
        seconds: Stop after so many seconds.
        grace: Seconds from SIGTERM to SIGKILL when a limit stops the command.
        also: A file, folder or quoted glob that the command writes numbers into; repeatable. A
            training_log.jsonl near it is found.
        out: Keep the record in this folder instead.
        replace: Overwrite a record of that name.
        quiet: Do not show the command's output.
        list_: List the records that are kept.
        state_dir: Where records are kept (default: under $XDG_STATE_HOME/ldlm-monitor/).
    """
    from ldlm_monitor.analysis.bench.bench import bench as run
    from ldlm_monitor.analysis.bench.bench import listed, summary
    from ldlm_monitor.analysis.bench.bench_records import FILE, all_records, check_name, records_dir
    from ldlm_monitor.analysis.bench.watch import BenchLimits
    from ldlm_monitor.analysis.readings import STEPS

    found = settings(flags, state_dir=state_dir)
    if list_:
        for line in listed(all_records(found.state_dir)):
            print(line)
        if not any(records_dir(found.state_dir).glob(f"*/{FILE}")):
            print(f"no record in {records_dir(found.state_dir)}", file=sys.stderr)
        return 0
    _check(name, command)
    assert name is not None
    check_name(name)
    record = run(
        name,
        shown_dash(command),
        _folder(out or records_dir(found.state_dir) / name, replace=replace),
        found,
        BenchLimits(steps, seconds, grace),
        also=also,
        echo=lambda data: None if quiet else _show(data),
        notice=lambda text: print(text, file=sys.stderr),
    )
    print(f"bench {name}: {summary(record)}", file=sys.stderr)
    if not record.series.get(STEPS):
        print(
            "no step was found in the output; if the command writes numbers into a file, name it "
            "with --also FILE; `ldlm-monitor formats test` shows how a log is parsed",
            file=sys.stderr,
        )
    return _code(record)


def _check(name: str | None, command: tuple[str, ...]) -> None:
    if not command:
        raise UsageError("no command is given", where="bench", remedy="write it after --")
    if name is None:
        raise UsageError("is missing", where="--name", remedy="give the record a name")
    program = shown_dash(command)[0]
    if shutil.which(program) is None:
        raise UsageError(
            "cannot be started: no executable file has this name",
            where=program,
            remedy="write the command after --, as you would type it",
        )


def _folder(folder: Path, *, replace: bool) -> Path:
    from ldlm_monitor.analysis.bench.bench_records import FILE

    if (folder / FILE).exists() and not replace:
        raise UsageError(
            "contains a record already",
            where=str(folder),
            remedy="choose another --name, or overwrite it with --replace",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot be made ({error.strerror})",
            where=str(folder),
            remedy="name a folder that you may write to with --out",
        ) from error
    return folder


def _show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _code(record: BenchRecord) -> int:
    code = record.exit_code  # if negative, minus a signal, for which shells return 128 + signal
    codes = {"command": code if code >= 0 else 128 - code, "interrupt": INTERRUPTED}
    return codes.get(record.stopped_by, 0)
