"""A few lines of each trainer and kernel, in the exact form: their numbers, events and alerts.

The logs are written by hand for these tests, the truth beside them as well: `small/truth.json` has
the samples and events of each line, the alerts above warning with their rank, and the incident.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event, Record, Sample
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.service.config import Settings

LOGS = Path(__file__).parent / "small"
TRUTH: dict[str, dict[str, Any]] = json.loads((LOGS / "truth.json").read_text("utf-8"))
SERIOUS = ("error", "critical")


def records(name: str) -> list[Record]:
    parser = Parser()
    chunk = Chunk(name, (1, 1, 0), 0, 1, (LOGS / name).read_bytes(), final=True)
    return parser.feed(chunk, Origin(run="r"), 0.0) + parser.finish(name)


def test_every_log_has_its_truth() -> None:
    assert {path.name for path in LOGS.iterdir()} == {*TRUTH, "truth.json"}


@pytest.mark.parametrize("name", TRUTH)
def test_each_line_gives_its_numbers_in_base_units(name: str) -> None:
    found = [record for record in records(name) if isinstance(record, Sample)]
    expected = TRUTH[name]["samples"]
    assert [(each.position.line, each.step) for each in found] == [
        (each["line"], each["step"]) for each in expected
    ]
    for sample, truth in zip(found, expected, strict=True):
        values = {key: sample.values.get(key) for key in truth["values"]}
        wanted = {key: float(value) for key, value in truth["values"].items()}
        assert values == pytest.approx(wanted, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("name", TRUTH)
def test_each_line_gives_its_events_and_no_other(name: str) -> None:
    found = [
        [record.position.line, record.kind, record.severity]
        for record in records(name)
        if isinstance(record, Event)
    ]
    assert found == TRUTH[name]["events"]


@pytest.mark.parametrize("name", TRUTH)
def test_a_failure_is_one_incident_with_its_alerts_and_health_has_none(name: str) -> None:
    played = Replay(Settings(files=(str(LOGS / name),), companions=False))
    raised = [
        [transition.alert, transition.labels.get("rank")]
        for transition in played.transitions()
        if transition.state == "firing" and transition.labels["severity"] in SERIOUS
    ]
    assert raised == TRUTH[name]["alerts"]
    found = [[each.root.kind, each.root.rank] for each in played.snapshot().incidents]
    assert found == TRUTH[name]["incident"]
