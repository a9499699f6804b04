"""The meaning of a kind of event stands in the data: Python asks the event, not its name."""

import ast
from pathlib import Path

import yaml

PACKAGE = Path(__file__).parents[2] / "monitor/ldlm_monitor"
WORDS = {"error", "warning", "config", "results"}
"""Kinds that are also severities, and usual names of folders and keys."""
NAMED = {
    # Made by readers of rows and bars
    "eval_started": "a bar of an evaluation begins; a reaction asks whether any came",
    "eval_finished": "a bar of an evaluation ends",
    "run_started": "a callback's and W&B's first row",
    "run_resumed": "a bar of skipped batches",
    "run_finished": "a callback's and W&B's last row, a bar that is full",
    "python_exception": "a row of a failed end, a table's row without a kind",
    "elastic_worker_failed": "W&B's exit code, a zombie that a look at the host found",
    # Made by looks at hosts, which later looks at a run compare
    "exit_without_error": "no process writes the log",
    "log_silence": "the processes of a run that takes no step",
    "stack_dump": "what a rank does, which is a title's verb",
    "fr_dump": "a flight record, which shows who dumped one",
    "ras_status": "NCCL's own status",
    "host_oom_kill": "a control group's counter",
    # Made of what other events show together
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
    for path in (PACKAGE / "logs/parse/data").glob("*/*.yml"):
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        found |= {*given.get("meanings", ())}
        for event in given.get("events", ()):
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
