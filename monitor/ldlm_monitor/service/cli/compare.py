"""`ldlm-monitor compare BASELINE CANDIDATE...`: what changed, and how sure that is."""

import re
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.service.cli.command_line import Companions
from ldlm_monitor.service.cli.flags import InputFlags, check_chart, settings, write_file
from ldlm_monitor.service.cli.reading import Reading


def compare(
    *runs: str,
    json: bool = False,
    plot: Path | None = None,
    target: tuple[str, ...] | None = None,
    at: tuple[str, ...] = (),
    warm_up: str | None = None,
    # Below 0.5 intervals miss the true value more often than not; 0.95 is usual.
    confidence: Annotated[float, Parameter(validator=Number(gte=0.5, lt=1))] = 0.95,
    companions: Companions = None,
    flags: InputFlags | None = None,
) -> int:
    """Compares runs: pace, memory, losses, each with a confidence interval and a verdict.

    Args:
        runs: The baseline, then the runs to compare with it. Each is a log, a folder of one run, a
            quoted glob, or the name of a bench or of what `ldlm-monitor run` ran.
        json: One JSON object instead of the table.
        plot: Draw losses and throughput of all runs over each other into this file: .svg.
        target: What should change by how much, such as speed=+30% or memory=-35%; repeatable. The
            word none checks nothing (default: speed=+25% and memory=-30%).
        at: Also compare losses at this step (500) or time (30min); repeatable.
        warm_up: Leave out this start of each run: a share (10%) or steps (50) (default: detected).
        confidence: Share of the intervals that should contain the true value.
        companions: Read also what belongs to a log, such as its training_log.jsonl (default: yes).
    """
    from ldlm_monitor.finished.compare.comparison import compare as compared
    from ldlm_monitor.finished.compare.difference_words import targets_of
    from ldlm_monitor.finished.compare.learned import point_of
    from ldlm_monitor.finished.compare.output import charts, table
    from ldlm_monitor.finished.compare.sides import sides_of

    if len(runs) < 2:
        raise UsageError(
            "two runs are needed at least",
            where="compare",
            remedy="name the baseline and what to compare with it",
        )
    check_chart(plot)
    targets, points = targets_of(target), [point_of(text) for text in at]
    sides = sides_of(
        [settings(flags, [_measured(run)], companions=companions) for run in runs],
        _warm_up(warm_up),
        notice=lambda text: print(text, file=sys.stderr),
        reading=partial(Reading, keeps=False),
    )
    found = compared(sides, targets=targets, at=points, confidence=confidence)
    if plot is not None:
        from ldlm_monitor.finished.charts import page

        write_file(plot, page(charts(sides)), "--plot")
    sys.stdout.write(found.model_dump_json(indent=2) + "\n" if json else table(found))
    return 0


def _measured(word: str) -> str:
    """The record of the run that `word` names, if `bench` kept one; otherwise the word itself."""
    from ldlm_monitor.finished.bench_record import FILE
    from ldlm_monitor.host.supervise.run_folder import find_run

    run = None if Path(word).exists() else find_run(word)
    return str(run.folder / FILE) if run and (run.folder / FILE).is_file() else word


def _warm_up(text: str | None) -> float | None:
    """A share (below 1), or a number of steps; None if not given. Raises `UsageError`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)|(\d{1,2}(?:\.\d*)?)%", text.strip())
    if found is None:
        raise UsageError(
            f'cannot read "{text}"', where="--warm-up", remedy="write a share (10%) or steps (50)"
        )
    return float(found[1]) if found[1] else float(found[2]) / 100
