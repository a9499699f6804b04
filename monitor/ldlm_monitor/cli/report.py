"""`ldlm-monitor report FILE... [-o OUT]`: the health report of finished logs."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ldlm_monitor.cli.flags import JudgeFlags, settings_for_inputs
from ldlm_monitor.cli.outcome import exit_code
from ldlm_monitor.errors import UsageError

if TYPE_CHECKING:
    from ldlm_monitor.config import Settings
    from ldlm_monitor.view import Snapshot

_FORMS = (".txt", ".md", ".json")


def report(
    *files: str,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    flags: JudgeFlags | None = None,
) -> int:
    """Prints the health report of a run, and exits with 3 where its health is bad.

    Parameters
    ----------
    files
        Files, folders or globs; - is standard input.
    output
        Write to this file instead: .txt, .md, or .json (the snapshot).
    """
    found = settings_for_inputs(flags, files, once=True)
    if output is None:
        return print_once(found)
    if output.suffix not in _FORMS:
        raise UsageError(
            f'cannot write a report as "{output.suffix}"',
            where=f"--output {output}",
            remedy=f"end the name in {', '.join(_FORMS[:-1])} or {_FORMS[-1]}",
        )
    snapshot = _read(found)
    text = _formed(snapshot, output.suffix)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot be written ({error.strerror})",
            where=f"--output {output}",
            remedy="name a file in a folder that you may write to",
        ) from error
    return exit_code(snapshot, found.fail_on)


def print_once(found: Settings) -> int:
    """Reads the files to their ends and prints the report; returns the exit code."""
    snapshot = _read(found)
    sys.stdout.write(_formed(snapshot, ".txt"))
    return exit_code(snapshot, found.fail_on)


def _read(found: Settings) -> Snapshot:
    from ldlm_monitor.replay import Replay

    replay = Replay(found)
    for notice in replay.notices:
        print(notice, file=sys.stderr)
    for _ in replay.transitions():
        pass
    return replay.snapshot()


def _formed(snapshot: Snapshot, suffix: str) -> str:
    if suffix == ".json":
        from ldlm_monitor.lines import snapshot_json

        return snapshot_json(snapshot) + "\n"
    from ldlm_monitor.report.health import health_report

    text = health_report(snapshot)
    return f"# Health report\n\n{textwrap.indent(text, '    ')}" if suffix == ".md" else text
