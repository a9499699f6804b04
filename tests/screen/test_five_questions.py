"""Which run needs me, why, since when, which rank, what now: the situations of docs/tui.md.

The table there has the answers as a reader of the logs gives them. Each must stand in the row of
the overview, 120 cells wide, and the row must be the first of twenty.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ldlm_monitor.base.snapshot import RunView, Snapshot
from ldlm_monitor.screen.draw import UNICODE
from ldlm_monitor.screen.page_context import PageContext
from ldlm_monitor.screen.run_columns import Layout, RunRow
from ldlm_monitor.screen.triage import arranged
from tests.screen.screens import LAST_WRITE, read

ROOT = Path(__file__).parents[2]
WIDTH, LATER = 120, 49.0  # seconds after the end of the log at which somebody looks


@dataclass(frozen=True)
class Situation:
    """What a log shows, in words that the row must have; "-": it does not say."""

    log: str
    why: str
    since: str
    rank: str
    now: str


def situations() -> list[Situation]:
    """The table of the page, whose first cells are links to logs."""
    page = (ROOT / "docs/tui.md").read_text("utf-8")
    rows = re.findall(r"^\| \[.*?\]\(\.\./(tests/\S+)\) \|(.*)\|$", page, re.MULTILINE)
    return [Situation(log, *(cell.strip(" `") for cell in cells.split("|"))) for log, cells in rows]


def overview(snapshot: Snapshot, neighbours: list[RunView]) -> list[str]:
    """The rows of the run and its neighbours, in the order of the overview."""
    (run,) = snapshot.runs
    at = max(filter(None, (run.ended_at, run.last_progress_at))) + LATER
    shown = snapshot.model_copy(update={"runs": (*neighbours, run)})
    context = PageContext(None, lambda: at, shown, UNICODE)  # type: ignore[arg-type] # asked for nothing
    runs = arranged(context)
    layout = Layout.of(WIDTH, runs, "")
    return [
        "".join(span.text for span in layout.row(RunRow(each, None, context), chosen=False))
        for each in runs
    ]


def copied(log: Path, into: Path) -> Path:
    """The log with what lies beside its folder, last written at a set time.

    A log without times is placed by its last write, which a checkout sets to its own.
    """
    source = log.parents[1] if log.parent.name == "train_logs" else log.parent
    for path in source.rglob("*") if log.parent.name == "train_logs" else (log,):
        if path.is_file():
            target = into / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            os.utime(target, (LAST_WRITE, LAST_WRITE))
    return into / log.relative_to(source)


def test_there_are_twenty_situations_and_two_need_nobody() -> None:
    found = situations()
    assert len({each.log for each in found}) == 20
    assert sum(each.why == "-" for each in found) == 2


@pytest.mark.parametrize("situation", situations(), ids=lambda each: Path(each.log).stem)
def test_one_look_at_the_overview_answers_the_five_questions(
    situation: Situation, read_all: Snapshot, tmp_path: Path
) -> None:
    fine = next(run for run in read_all.runs if run.health == "HEALTHY")
    neighbours = [
        fine.model_copy(update={"name": f"seed{number:02}", "state": "running", "ended_at": None})
        for number in range(19)
    ]
    snapshot = read(str(copied(ROOT / situation.log, tmp_path)))
    rows = overview(snapshot, neighbours)
    (own,) = (row for row in rows if "seed" not in row)
    if situation.why == "-":
        assert own == rows[-1]
        assert "→" not in own
        return
    assert own == rows[0]
    guessed = f" ≈{situation.since.split()[0]}"  # of bars without a date
    assert own.rstrip().endswith((f" {situation.since}", guessed))
    reason, _, advice = own.partition(" → ")
    assert situation.why in reason
    assert advice.startswith(situation.now)
    assert (situation.rank in reason) if situation.rank != "-" else ("rank" not in reason)
