"""Kinds of events of a user's own file mean what the file says, as those of the package do."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.errors import FormatError
from ldlm_monitor.base.records import Event, from_json, to_json
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.judge.core.assemble import assemble
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.service.config import Settings

NOW = 1_769_681_700.0
FILE = """
format: ours
family: {family}
meanings:
  ours: {meaning}
events:
  - kind: ours
    role: {role}
    severity: {severity}
    shapes:
      - {{trigger: 'OURS: ', pattern: 'OURS: (?P<what>.*?)(?: on (?P<host>\\S+))?$'}}
    fields: {{missing_rank: int}}
    examples:
      - {{line: 'OURS: a thing', fields: {{what: a thing}}}}
"""


def watched(folder: Path, line: str, **keys: str) -> Snapshot:
    """A run of 50 steps, and then the line, after which nothing comes for two minutes."""
    monitor = made(folder, **keys)
    steps = "".join(f"step {at}: loss: {3 - at / 100}\n" for at in range(50))
    monitor.feed(Chunk("run.log", (1, 1, 0), 0, 1, f"{steps}{line}\n".encode()), NOW)
    monitor.tick(NOW + 120)
    return monitor.snapshot()


def made(folder: Path, **keys: str) -> Monitor:
    path = folder / "ours.yml"
    given = {"family": "process", "role": "root", "severity": "critical", "meaning": "{}", **keys}
    path.write_text(FILE.format(**given))
    return assemble(Settings(formats=(path,)))


def test_family_and_role_make_it_a_first_cause(tmp_path: Path) -> None:
    snapshot = watched(tmp_path, "OURS: power loss on node3", family="host")
    (incident,) = snapshot.incidents
    assert (incident.root.kind, incident.root.tier) == ("ours", "hardware")
    assert incident.root.host == "node3"
    assert incident.decision.phrase.startswith("RESTART_WITHOUT")


@pytest.mark.parametrize("state", ["crashed", "killed", "finished"])
def test_it_ends_the_run_as_its_file_says(tmp_path: Path, state: str) -> None:
    more = {"role": "progress", "severity": "info"} if state == "finished" else {}
    snapshot = watched(tmp_path, "OURS: over", meaning=f"{{ends: {state}}}", **more)
    assert snapshot.runs[0].state == state


def test_a_case_changes_what_it_means_by_its_text(tmp_path: Path) -> None:
    meaning = "{cases: [{when: {what: 'expired'}, ends: crashed}]}"
    assert watched(tmp_path, "OURS: expired", meaning=meaning).runs[0].state == "crashed"
    assert watched(tmp_path, "OURS: renewed", meaning=meaning).runs[0].state == "running"


def test_a_cause_of_none_is_none(tmp_path: Path) -> None:
    (incident,) = watched(tmp_path, "OURS: noise", meaning="{cause: none}").incidents
    assert incident.root.tier == "unattributed"


def test_it_means_the_same_in_a_copy_that_was_written_as_json(tmp_path: Path) -> None:
    monitor = made(tmp_path, meaning="{ends: killed, is: [abort, vague]}")
    monitor.feed(Chunk("run.log", (1, 1, 0), 0, 1, b"step 1: loss: 2.5\nOURS: x\n"), NOW)
    (event,) = (each for each in monitor.snapshot().events if each.kind == "ours")
    copy = from_json(to_json(event))
    assert isinstance(copy, Event)
    other = assemble(Settings())
    other.feed(Chunk("run.log", (1, 1, 0), 0, 1, b"step 1: loss: 2.5\n"), NOW)
    other.observe([copy], NOW)
    other.tick(NOW + 60)
    assert other.snapshot().runs[0].state == "killed"


@pytest.mark.parametrize(
    "meaning",
    [
        *({"bogus": 1}, {"is": 5}, {"pause": "evaluating"}, {"cause": "nonsense"}, {"ends": ["x"]}),
        *({"cause": None}, {"pause": None}, {"accuses": "nobody"}),
    ],
)
def test_a_row_with_a_meaning_that_is_none_costs_nothing(meaning: dict[str, object]) -> None:
    fields = {"role": "root", "family": "host", "meaning": meaning, "kind": "x"}
    row = {"type": "event", "kind": "k8s_pod_killed", "severity": "critical", "time": NOW}
    row |= {"message": "evicted", "rank": 0, "fields": fields}
    monitor = assemble(Settings())
    text = json.dumps(row).encode() + b"\n"
    monitor.feed(Chunk("health_rank0.jsonl", (1, 1, 0), 0, 1, text), NOW)
    assert [each.kind for each in monitor.snapshot().events] == ["k8s_pod_killed"]
    assert monitor.own.dropped.total() == 0


@pytest.mark.parametrize(
    ("meaning", "problem"),
    [
        ("{cause: sunspots}", "meanings.ours.cause"),
        ("{cases: [{when: {message: '('}, ends: killed}]}", "does not compile"),
        ("{ends: killed}\n  theirs: {ends: killed}", "has no events of this kind"),
    ],
)
def test_a_mistake_is_said_when_the_file_is_read(
    tmp_path: Path, meaning: str, problem: str
) -> None:
    with pytest.raises(FormatError, match=problem):
        made(tmp_path, meaning=meaning)
