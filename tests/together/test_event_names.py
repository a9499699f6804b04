"""The meaning of a kind of event stands in the data: Python asks the event, not its name."""

import ast
from pathlib import Path

import yaml

PACKAGE = Path(__file__).parents[2] / "monitor/ldlm_monitor"
WORDS = {"error", "warning", "config", "results"}
"""Kinds that are also severities, and usual names of folders and keys."""
NAMED = {
    "stack_dump": "the type of a callback's row; what a rank does, which is a title's verb",
    # Made of what other events show together
    "python_exception": "a row of torchelastic's table without a kind",
    "elastic_worker_failed": "a row of the table, a zombie that a look at the host found",
    "hang_no_progress": "an alert without a line",
    "rank_hang": "a rank's silence",
    "collective_mismatch": "timeouts of different collectives",
    # Asked
    "elastic_failure_table": "its rows are read",
    "skipped_step": "its step is counted once for all ranks",
    "nonfinite_metric": "numbers of rows are counted as such; charts mark them otherwise",
}
"""Each kind that stands in Python, and why."""


def kinds() -> set[str]:
    found: set[str] = set()
    for path in (PACKAGE / "logs/parse/data").rglob("*.yml"):
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        found |= {*given.get("meanings", ())}
        events = given.get("events", ())
        for event in events.values() if isinstance(events, dict) else events:
            found |= {event["kind"], *(each["kind"] for each in event.get("also", ()))}
    return found


def literals(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_each_kind_that_stands_in_python_has_its_reason() -> None:
    known = kinds() - WORDS
    slack = PACKAGE / "service/notify/slack_bot.py"  # `fatal_error` is an error of Slack's API
    found = {
        kind
        for path in PACKAGE.rglob("*.py")
        for kind in literals(path) & known
        if (path, kind) != (slack, "fatal_error")
    }
    assert found == {*NAMED}
