"""`ldlm-monitor report FILE... [-o OUT]`: the health report of finished logs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ldlm_monitor.base.errors import INTERRUPTED, UsageError
from ldlm_monitor.service.cli.flags import (
    JudgeFlags,
    exit_code,
    replay_of,
    settings_for_inputs,
    write_file,
)
from ldlm_monitor.service.cli.reading import read_to_end

if TYPE_CHECKING:
    from ldlm_monitor.base.snapshot import Snapshot
    from ldlm_monitor.service.config import Settings

_FORMS = (".html", ".md", ".json", ".txt")  # suffixes of --output, each a form of the report


def report(
    *files: str,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    flags: JudgeFlags | None = None,
) -> int:
    """Prints the health report of runs; exits with 3 if a health is as bad as --fail-on, or worse.

    Args:
        files: Files, folders or globs; - is standard input.
        output: Write to this file instead: .html (one page, with charts), .md, .json or .txt.
    """
    found = settings_for_inputs(flags, files, once=True)
    if output is not None and output.suffix.lower() not in _FORMS:
        raise UsageError(
            f'cannot write a report as "{output.suffix}"',
            where=f"--output {output}",
            remedy=f"end the name in {', '.join(_FORMS[:-1])} or {_FORMS[-1]}",
        )
    return write_once(found, output)


def write_once(found: Settings, output: Path | None = None) -> int:
    """Reads the files to their ends and writes the report (None: to stdout); the exit code."""
    snapshot, is_interrupted = read_to_end(replay_of(found, looks=True))
    suffix = output.suffix.lower() if output else ".txt"
    text = _rendered(snapshot, suffix, found.gpu_hour_price)
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text, "--output")
    return INTERRUPTED if is_interrupted else exit_code(snapshot, found.fail_on)


def run_page(snapshot: Snapshot, name: str) -> tuple[str, str] | None:
    """The HTML report of one run and its policy, for the daemon; None if no run has this name."""
    from ldlm_monitor.base.text.sanitize import plain, redact
    from ldlm_monitor.finished.report.document import report as document
    from ldlm_monitor.finished.report.figures import is_charted
    from ldlm_monitor.finished.report.html import page, policy

    runs = snapshot.runs  # a name is as `run_path` writes it, or as the API gives it
    run = next((each for each in runs if name in (plain(each.name), redact(each.name))), None)
    if run is None:
        return None
    alerts = [each for each in snapshot.alerts if each.labels.get("run", run.name) == run.name]
    curves = snapshot.curves.get(run.name, {})
    charted = {name: curves[name] for name in curves if is_charted(name)}
    parts = {"runs": (run,), "alerts": alerts, "curves": {run.name: charted}}
    one = snapshot.model_copy(update=parts)
    return page(document(one)), policy()


def _rendered(snapshot: Snapshot, suffix: str, price: float | None) -> str:
    from ldlm_monitor.finished.report.plain_text import health_report, markdown

    if suffix == ".txt":
        return health_report(snapshot, price, ends=True)
    from ldlm_monitor.finished.report.document import report as document
    from ldlm_monitor.finished.report.html import page

    found = document(snapshot, price, ends=True)
    if suffix == ".json":
        return found.model_dump_json(indent=2) + "\n"
    return page(found) if suffix == ".html" else markdown(found)
