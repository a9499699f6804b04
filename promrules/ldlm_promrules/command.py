"""`promrules check|test|query`: what `promtool` does for rules, without a Prometheus."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ldlm_promrules import __version__
from ldlm_promrules.errors import PromRulesError, RuleError, SampleError

FAILED = 1  # as promtool: a rule, a test, a query or the command line is wrong
DOUBTFUL = 3  # as promtool: a lint found something, with --lint-fatal


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(FAILED, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command line (None: the process's); returns the exit code."""
    given = _parser().parse_args(words)
    try:
        code: int = given.run(given)
        sys.stdout.flush()
    except PromRulesError as problem:
        _say(str(problem))
        return FAILED
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as shells report it
    except BrokenPipeError:  # the reader has enough
        sys.stdout = None  # Python would flush it once more
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="promrules", description="Checks and tests Prometheus rules; queries.")
    parser.add_argument("--version", action="version", version=f"promrules {__version__}")
    commands = parser.add_subparsers(required=True, metavar="check|test|query")
    experimental = _Parser(add_help=False)
    experimental.add_argument(
        "--experimental", action="store_true",
        help="allow functions that Prometheus 3 has only with a feature flag",
    )  # fmt: skip

    check = commands.add_parser(
        "check", parents=[experimental], help="check rule files, as promtool check rules"
    )
    check.add_argument("files", nargs="+", type=Path, metavar="RULES", help="files, or folders")
    check.add_argument(
        "--samples", type=Path, metavar="FILE",
        help="warn of metrics that are not in this file, such as a copy of /metrics",
    )  # fmt: skip
    check.add_argument(
        "--lint-fatal", action="store_true", help=f"exit with {DOUBTFUL} after a warning"
    )
    check.set_defaults(run=_check)

    test = commands.add_parser("test", help="run unit tests, as promtool test rules")
    test.add_argument("files", nargs="+", type=Path, metavar="TESTS")
    test.set_defaults(run=_test)

    query = commands.add_parser(
        "query", parents=[experimental], help="evaluate an expression over a file of samples"
    )
    query.add_argument("expression", metavar="EXPR")
    query.add_argument(
        "samples", type=Path, metavar="SAMPLES",
        help="Prometheus' text format or OpenMetrics; with --interval, lines as in Prometheus' "
        'tests: up{job="a"} 1 0x5 _ stale',
    )  # fmt: skip
    query.add_argument("--interval", metavar="DURATION", help="time between two values, such as 1m")
    query.add_argument("--time", help="Unix seconds or RFC 3339 (default: of the last sample)")
    query.add_argument("--start", help="of a range query (default: the first sample)")
    query.add_argument("--end", help="of a range query (default: the last sample)")
    query.add_argument("--step", metavar="DURATION", help="of a range query")
    query.add_argument("--format", choices=("promql", "json"), default="promql")
    query.set_defaults(run=_query)
    return parser


def _check(given: argparse.Namespace) -> int:
    from ldlm_promrules.alerting import check_rules
    from ldlm_promrules.promql import parse
    from ldlm_promrules.rule_lint import Catalogue, lint
    from ldlm_promrules.sample_files import read_samples

    names = None if given.samples is None else read_samples(given.samples).names()
    catalogue = Catalogue(names, listed_in=f"{given.samples} has no similar name")
    wrong, loaded = False, []
    for path in given.files:
        print(f"Checking {_printable(str(path))}")
        rules, problems = check_rules(path, partial(parse, experimental=given.experimental))
        if problems:
            print("  FAILED:")
            print("\n".join(f"    {_printable(str(problem))}" for problem in problems))
        else:
            print(f"  SUCCESS: {len(rules)} rules found")
        wrong = wrong or bool(problems)
        loaded += rules
    warnings = [*lint(loaded, catalogue)]
    _say(*(f"warning: {warning}" for warning in warnings))
    return FAILED if wrong else DOUBTFUL if warnings and given.lint_fatal else 0


def _test(given: argparse.Namespace) -> int:
    from ldlm_promrules.unit_tests import run_rule_tests

    wrong = False
    for path in given.files:
        print(f"Unit Testing:  {_printable(str(path))}")
        try:
            outcome = run_rule_tests(path)
        except RuleError as problem:
            print(f"  FAILED:\n    {_printable(str(problem))}\n")
            wrong = True
            continue
        _say(*outcome.notices)
        failures = [_printable(each, "\n") for each in outcome.failures]
        print("\n".join(["  FAILED:", *failures]) if failures else "  SUCCESS", end="\n\n")
        wrong = wrong or bool(failures)
    return FAILED if wrong else 0


def _query(given: argparse.Namespace) -> int:
    from ldlm_promrules.promql import parse
    from ldlm_promrules.promql.annotations import Notes
    from ldlm_promrules.query_answers import MAX_STEPS, duration, instant, moment, over
    from ldlm_promrules.sample_files import read_samples
    from ldlm_promrules.shown import shown

    expression = parse(given.expression, any_type=True, experimental=given.experimental)
    interval = _read("--interval", given.interval, duration, math.nan)
    at = _read("--time", given.time, moment, math.nan)
    if interval <= 0:
        raise SampleError("must be above 0", where="--interval", remedy="write it as 30s or 1m")
    series = read_samples(
        given.samples, None if math.isnan(interval) else interval, 0.0 if math.isnan(at) else at
    )
    notes = Notes()
    if {given.start, given.end, given.step} == {None}:
        answer = instant(series, expression, series.last if math.isnan(at) else at, notes)
    else:
        start = _read("--start", given.start, moment, series.first)
        end = _read("--end", given.end, moment, series.last)
        step = _read("--step", given.step, duration, 60.0)
        if end < start or step <= 0 or (end - start) / step > MAX_STEPS:
            raise SampleError(
                f"asks for no time, or more than {MAX_STEPS:,}", where="--start, --end, --step",
                remedy="begin before the end, and make the step longer",
            )  # fmt: skip
        answer = over(series, expression, start, end, step, notes=notes)
    _say(*notes.lines(expression))
    text = json.dumps(answer) if given.format == "json" else _printable(shown(answer), "\n")
    if text:
        print(text)
    return 0


def _read(flag: str, text: str | None, read: Any, default: float) -> float:
    try:
        return default if text is None else float(read(text))
    except ValueError as problem:
        raise SampleError(str(problem), where=flag, remedy=f"got {text!r}") from None


def _printable(text: str, kept: str = "") -> str:
    """`text` with what a terminal would obey as Python's escapes."""
    return "".join(
        each if each.isprintable() or each in kept else ascii(each)[1:-1] for each in text
    )


def _say(*lines: str) -> None:
    """On stderr; each is one line."""
    for line in lines:
        print(f"promrules: {_printable(line)}", file=sys.stderr)
