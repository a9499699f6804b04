"""`ldlm-monitor rules check|test|list`: checks, tests and lists rule files."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cyclopts import App

from ldlm_monitor.base.errors import RuleError, UsageError
from ldlm_monitor.base.text.format import counted, duration
from ldlm_monitor.service.cli.flags import RuleFlags, settings

rules = App(name="rules", help="Checks, tests and lists rule files.")


@rules.command
def check(*files: Path, experimental: bool = False, flags: RuleFlags | None = None) -> int:
    """Checks rule files: their form, their templates, and that every expression is supported.

    Every problem is one line that names file, group, rule, and the place in its expression.
    Warnings, such as of a metric that nothing exports, leave the exit code as it is.

    Args:
        files: Rule files or folders of them (default: those of --rules, or the packaged ones).
        experimental: Allow functions that Prometheus 3 has only with a feature flag.
    """
    from ldlm_monitor.base.text.sanitize import plain
    from ldlm_monitor.judge.core.rule_warnings import warnings_of
    from ldlm_promrules.alerting import check_rules
    from ldlm_promrules.promql import parse

    found = settings(flags)
    read = partial(parse, experimental=experimental or found.promql_experimental)
    wrong, loaded = False, []
    for path in _paths(files, flags):
        rules, problems = check_rules(path, read)
        loaded += rules
        for problem in problems:
            print(f"ldlm-monitor: {problem}", file=sys.stderr)
        if not problems:
            count = f"{counted(len(rules), 'rule')}, all fine" if rules else "it has no rules"
            print(f"{path}: {count}")
        wrong = wrong or bool(problems)
    for warning in warnings_of(loaded, found.evaluation_interval, found.external_labels):
        print(f"ldlm-monitor: warning: {plain(warning)}", file=sys.stderr)
    return UsageError.exit_code if wrong else 0


@rules.command
def test(*files: Path) -> int:
    """Runs unit tests of rules, written as for `promtool test rules`.

    Prints SUCCESS for a file, or the expected and the actual results.

    Args:
        files: Test files, such as rules/default.test.yml, or folders of *.test.yml.
    """
    if not files:
        raise UsageError("no file is named", where="rules test FILE", remedy="try rules/*.test.yml")
    wrong = False
    for path in _test_files(files):
        print(f"Unit Testing:  {path}")
        problem = _try_out(path)
        print(flush=True)
        if problem:
            print(f"ldlm-monitor: {problem}", file=sys.stderr)
            wrong = True
    return UsageError.exit_code if wrong else 0


def _try_out(path: Path) -> str:
    """Prints the outcome of a file's tests; returns a line for stderr, or "" if all is well."""
    from ldlm_promrules.unit_tests import run_rule_tests

    try:
        outcome = run_rule_tests(path)
    except RuleError as problem:
        print("  FAILED")
        return str(problem)
    for notice in outcome.notices:
        print(f"ldlm-monitor: {notice}", file=sys.stderr)
    if not outcome.failures:
        print("  SUCCESS")
        return ""
    print("\n".join(["  FAILED:", *outcome.failures]))
    failed = counted(len(outcome.failures), "failure")
    expected = counted(outcome.checked, "expectation")
    return f"{path}: {failed} with {expected}; compare exp and got above"


def _test_files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.test.yml")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(
                "no *.test.yml in this folder", where=str(path), remedy="name the test files"
            )
        found += inside
    return found


@rules.command(name="list")
def listed(*files: Path, flags: RuleFlags | None = None) -> int:
    """Lists the rules: alert, severity, how long the condition must hold, and the rule's file.

    Args:
        files: Rule files or folders of them (default: those of --rules, or the packaged ones).
    """
    from ldlm_monitor.base.text.sanitize import plain, shorten_path
    from ldlm_promrules.alerting import AlertRule, load_rules
    from ldlm_promrules.promql import parse

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
    from ldlm_monitor.judge.core.packaged_rules import packaged_rules

    return files or settings(flags).rules or packaged_rules()
