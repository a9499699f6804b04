"""`ldlm-monitor formats list|test|learn`: lists, tests and learns formats of logs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.text.format import counted, number
from ldlm_monitor.service.cli.flags import InputFlags, settings
from ldlm_monitor.service.cli.parse import chunks, inputs, statistics, understood

if TYPE_CHECKING:
    from ldlm_monitor.base.records import Sample
    from ldlm_monitor.logs.parse import Parser
    from ldlm_monitor.logs.parse.definitions import Definitions

formats = App(name="formats", help="Tests and lists what the monitor recognises in logs.")


@formats.command(name="test")
def try_out(file: Path, *logs: str, flags: InputFlags | None = None) -> int:
    """Runs the examples of a definition file, and shows how it parses logs.

    Every example must give exactly the values beside it; no counter-example may match.
    For each log, prints what `parse --stats` does, and the first samples of the file's format.

    Args:
        file: The definition file, in YAML.
        logs: Logs to try it on: files, folders or globs; - is standard input.
    """
    from ldlm_monitor.logs.parse import Parser, load_formats

    definitions = load_formats(file)
    found = settings(flags, logs)
    others = tuple(path for path in found.formats if path.resolve() != file.resolve())
    parser = Parser((file, *others))
    met = _try_examples(file, definitions, parser)
    for each in inputs(found) if logs else ():
        coverage = understood(parser, each)
        samples = map(_sample_line, coverage.first.get(definitions.format, ()))
        print("\n".join([*statistics(coverage), *samples]))
    return 0 if met else UsageError.exit_code


def _try_examples(file: Path, definitions: Definitions, parser: Parser) -> bool:
    from ldlm_monitor.base.text.sanitize import plain
    from ldlm_monitor.logs.parse.coverage import try_examples

    trial = try_examples(file, definitions, parser)
    for failure in trial.failures:
        print(f"ldlm-monitor: {file}: {plain(failure)}", file=sys.stderr)
    good = counted(trial.examples, "example")
    bad = counted(trial.counter_examples, "counter-example")
    fate = f"{len(trial.failures)} failed" if trial.failures else "all fine"
    print(f"{file}: {_size(definitions)}; {good}, {bad}, {fate}", flush=True)
    return not trial.failures


def _sample_line(sample: Sample) -> str:
    from ldlm_monitor.base.text.sanitize import plain
    from ldlm_monitor.logs.parse.coverage import numbers_of

    values = (f"{plain(name)} {number(value)}" for name, value in numbers_of(sample).items())
    return f"    line {sample.position.line}: {', '.join(values)}"


@formats.command(name="list")
def listed(*files: Path, flags: InputFlags | None = None) -> int:
    """Lists the formats: name, whether a real log confirmed it, what it recognises, its source.

    Args:
        files: Definition files; none: the packaged ones, and those that --formats or the
            configuration names.
    """
    from ldlm_monitor.base.text.sanitize import plain, shorten
    from ldlm_monitor.logs.parse import READERS, load_formats, packaged_formats

    given = files or (*packaged_formats(), *settings(flags).formats)
    rows = [] if files else [(each.name, "built in", "whole files", each.about) for each in READERS]
    for path in given:
        loaded = load_formats(path)
        lines = sum(line.experimental for line in loaded.lines)
        part = f"{lines} experimental" if lines else "-"
        state = "experimental" if loaded.experimental else part
        rows.append((loaded.format, state, _size(loaded), loaded.source))
    print(f"{'FORMAT':<18}{'STATE':<16}{'KNOWS':<22}SOURCE")
    for name, state, knows, source in rows:
        print(f"{plain(name):<18}{state:<16}{knows:<22}{shorten(plain(source), 90)}".rstrip())
    return 0


@formats.command
def learn(log: str, flags: InputFlags | None = None) -> int:
    """Prints what was inferred from a log of an unknown format as a definition file.

    Its examples are lines of the log. `formats test` runs them; with the file as --formats, the
    log is read by it. Tables and records of several lines are left out.

    Args:
        log: The log; - is standard input.
    """
    import yaml

    from ldlm_monitor.logs.parse import Parser
    from ldlm_monitor.service.cli.learned_format import FormatLearner

    found = settings(flags, (log,))
    learner = FormatLearner(Parser(found.formats))
    for each in inputs(found):
        for chunk in chunks(each.place):
            learner.feed(chunk, each.origin, 0.0)
    document = learner.document("learned")
    if learner.left_out:
        left = counted(learner.left_out, "form")
        print(f"ldlm-monitor: {left} of lines left out: no pattern reads them", file=sys.stderr)
    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000), end="")
    return 0


def _size(definitions: Definitions) -> str:
    found = {"bar": definitions.bars, "line": definitions.lines, "event": definitions.events}
    return ", ".join(counted(len(part), name) for name, part in found.items() if part) or "nothing"
