"""What happened in other people's logs is found at its line, and what only looks bad is not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event
from ldlm_monitor.logs.parse import Parser

CORPUS = Path(__file__).resolve().parents[3] / "../shared/corpus"
pytestmark = pytest.mark.shared
LOGS = json.loads((CORPUS / "public/index.json").read_text()) if CORPUS.is_dir() else []

OF_NUMBERS = {"nan", "loss_spike", "slow"}
"""Truth that only values show, and no event."""
INTENDED = {"job_time_limit", "job_cancelled"}
"""Ended from outside: by the taxonomy a warning, the run's state says the rest."""
SERIOUS = ("error", "critical")


@cache
def events_of(name: str) -> list[Event]:
    path = CORPUS / "public" / name
    parser = Parser()
    chunk = Chunk(name, (1, 1, 0), 0, 1, path.read_bytes(), final=True)
    records = parser.feed(chunk, Origin("r"), 0.0) + parser.finish(name)
    return [record for record in records if isinstance(record, Event)]


def lines_of(event: Event, name: str) -> range:
    """The lines that an event stands for: a traceback or a failure table is a block."""
    first = event.position.line
    lines = (CORPUS / "public" / name).read_bytes().decode("utf-8", "replace").split("\n")
    if "traceback" in event.fields:
        ending = str(event.fields["traceback"]).splitlines()[-1]
    elif event.kind == "elastic_failure_table":
        ending = "=" * 40
    else:
        return range(first, first + 1)
    after = first + 1  # the table's own first line stands between two rulers
    last = next((n for n in range(after, len(lines)) if lines[n].startswith(ending)), first - 1)
    return range(first, last + 2)


def reported(truth: dict[str, Any], name: str) -> list[Event]:
    return [e for e in events_of(name) if truth["line_number"] in lines_of(e, name)]


def failures() -> list[Any]:
    return [
        pytest.param(log["file"], truth, id=f"{log['id']}-{truth['kind']}-{truth['line_number']}")
        for log in LOGS
        for truth in log["truth"]["events"]
        if truth["severity"] == "failure" and truth["kind"] not in OF_NUMBERS
    ]


def benign() -> list[Any]:
    return [
        pytest.param(log["file"], truth, id=f"{log['id']}-{truth['kind']}-{truth['line_number']}")
        for log in LOGS
        for truth in log["truth"]["events"]
        if truth["severity"] == "benign"
    ]


@pytest.mark.parametrize(("name", "truth"), failures())
def test_a_failure_is_an_event_at_its_line(name: str, truth: dict[str, Any]) -> None:
    found = reported(truth, name)
    if truth["kind"] in INTENDED:
        assert [e.kind for e in found if e.severity != "info"] == ["slurm_cancelled"]
    elif "closing signal SIGTERM" in truth["quote"]:
        # What the agent does to the survivors of a failure: by the taxonomy a victim's line.
        assert [(e.kind, e.fields["role"]) for e in found] == [("elastic_sigterm_peer", "victim")]
    else:
        assert [e for e in found if e.severity in SERIOUS]


@pytest.mark.parametrize(("name", "truth"), benign())
def test_what_only_looks_bad_is_nothing_above_info(name: str, truth: dict[str, Any]) -> None:
    at_line = [e for e in events_of(name) if e.position.line == truth["line_number"]]
    assert [(e.kind, e.severity) for e in at_line if e.severity != "info"] == []


@pytest.mark.parametrize("log", LOGS, ids=[log["id"] for log in LOGS])
def test_no_event_is_critical_where_nothing_failed(log: dict[str, Any]) -> None:
    """In a log with failures, what is serious stands at one of them or after the first."""
    bad = [e["line_number"] for e in log["truth"]["events"] if e["severity"] != "benign"]
    first = min(bad, default=None)
    unexpected = [
        (event.kind, event.position.line)
        for event in events_of(log["file"])
        if event.severity in SERIOUS and (first is None or event.position.line < first)
    ]
    assert unexpected == []
