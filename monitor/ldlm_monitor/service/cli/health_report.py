"""The health report of what was read, and of one run of a daemon."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ldlm_monitor.base.errors import INTERRUPTED, UsageError
from ldlm_monitor.service.cli.flags import exit_code, replay_of, write_file
from ldlm_monitor.service.cli.reading import read_to_end

_NAMED = 3  # files that an error names. A choice: more hide what to try

if TYPE_CHECKING:
    from ldlm_monitor.base.snapshot import Snapshot
    from ldlm_monitor.service.config import Settings


def write_once(found: Settings, output: Path | None = None) -> int:
    """Reads the files to their ends and writes the report (None: to stdout); the exit code.

    Raises UsageError, once the report is written, if no run was found.
    """
    snapshot, is_interrupted = read_to_end(replay_of(found, looks=True))
    suffix = output.suffix.lower() if output else ".txt"
    text = _rendered(snapshot, suffix, found.gpu_hour_price)
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text, "--output")
    if is_interrupted:
        return INTERRUPTED
    if not snapshot.runs:
        first = found.files[0] if found.files else "FILE"
        raise UsageError(
            "no training run was found",
            where=", ".join(found.files[:_NAMED]),
            remedy=f"see what is understood of it: ldlm-monitor parse --stats {first};"
            f" teach its lines: ldlm-monitor formats learn {first}",
        )
    return exit_code(snapshot, found.fail_on)


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
    return page(document(one, ticks=True), time.time()), policy(live=True)


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
