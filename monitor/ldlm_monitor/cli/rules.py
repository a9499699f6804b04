"""`ldlm-monitor rules check|list`: rule files, validated and shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cyclopts import App

from ldlm_monitor.cli.flags import RuleFlags, settings
from ldlm_monitor.errors import UsageError

app = App(name="rules", help="Checks and lists rule files.")


@app.command
def check(*files: Path, flags: RuleFlags | None = None) -> int:
    """Checks rule files: their form, their templates, and that every expression is supported.

    Every problem is one line that names file, group, rule, and the place in its expression.

    Parameters
    ----------
    files
        Rule files or folders of them; none: those that --rules or the configuration names.
    """
    from ldlm_monitor.alerts import check_rules
    from ldlm_monitor.promql import parse

    wrong = False
    for path in _paths(files, flags):
        rules, problems = check_rules(path, parse)
        for problem in problems:
            print(f"ldlm-monitor: {problem}", file=sys.stderr)
        if not problems:
            print(f"{path}: {len(rules)} rule{'' if len(rules) == 1 else 's'}, all fine")
        wrong = wrong or bool(problems)
    return UsageError.exit_code if wrong else 0


@app.command(name="list")
def listed(*files: Path, flags: RuleFlags | None = None) -> int:
    """Lists the rules: alert, severity, how long it must hold, and its file.

    Parameters
    ----------
    files
        Rule files or folders of them; none: those that --rules or the configuration names.
    """
    from ldlm_monitor.alerts import AlertRule, load_rules
    from ldlm_monitor.plain import duration, plain, shorten_path
    from ldlm_monitor.promql import parse

    for rule in load_rules(_paths(files, flags), parse).rules:
        if isinstance(rule, AlertRule):
            severity = rule.labels["severity"].source if "severity" in rule.labels else "-"
            name, hold = rule.name, f"for {duration(rule.hold)}" if rule.hold else "at once"
        else:
            name, severity, hold = rule.record, "recording", ""
        print(
            f"{plain(name):<24}{plain(severity):<11}{hold:<18}{shorten_path(plain(rule.file), 48)}"
        )
    return 0


def _paths(files: Sequence[Path], flags: RuleFlags | None) -> Sequence[Path]:
    from ldlm_monitor.alerts import packaged_rules

    return files or settings(flags).rules or packaged_rules()
