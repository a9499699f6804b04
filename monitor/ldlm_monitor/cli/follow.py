"""`ldlm-monitor FILE_OR_GLOB...`: follow logs, raise alerts, serve metrics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ldlm_monitor.cli.flags import FollowFlags, settings_for_inputs

if TYPE_CHECKING:
    from ldlm_monitor.view import Snapshot


def follow(*files: str, flags: FollowFlags | None = None) -> int:
    """Follows training logs and says what goes wrong: NaN, crashes, hangs.

    Serves Prometheus metrics, too. To a file that is named like a command, say ./report.

    Parameters
    ----------
    files
        Files, folders or quoted globs; - is standard input.
    """
    found = settings_for_inputs(flags, files)
    if found.once:
        from ldlm_monitor.cli import report

        return report.print_once(found)
    from ldlm_monitor import daemon
    from ldlm_monitor.cli import logs

    logs.configure(found)
    return daemon.run(
        found,
        load=lambda: settings_for_inputs(flags, files),
        on_interrupt=_print_report,
    )


def _print_report(snapshot: Snapshot) -> None:
    """What one wants to know who ends it with Ctrl-C."""
    from ldlm_monitor.report.health import health_report

    sys.stdout.write("\n" + health_report(snapshot))
