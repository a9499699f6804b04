"""`ldlm-monitor report FILE... [-o OUT]`: the health report of finished logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.service.cli.flags import JudgeFlags, settings_for_inputs
from ldlm_monitor.service.cli.health_report import write_once

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
