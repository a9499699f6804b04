"""Genuine runs of torchrun with one injected fault each: the right rank is named, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.service.config import Settings

RUNS = Path(__file__).parent / "runs/elastic"
SERIOUS = ("error", "critical")


def alerts(path: Path) -> list[tuple[str, str | None]]:
    """Alert and rank of every firing of severity error or critical, the log on its own."""
    played = Replay(Settings(files=(str(path),), companions=False)).transitions()
    return [
        (transition.alert, transition.labels.get("rank"))
        for transition in played
        if transition.state == "firing" and transition.labels["severity"] in SERIOUS
    ]


def events_of(name: str) -> list[Event]:
    parser = Parser()
    chunk = Chunk(name, (1, 1, 0), 0, 1, (RUNS / name).read_bytes(), final=True)
    records = parser.feed(chunk, Origin("r"), 0.0) + parser.finish(name)
    return [record for record in records if isinstance(record, Event)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kill.log", [("TrainingCrashed", "1")]),
        ("raise.log", [("TrainingCrashed", "1")]),
        ("segv.log", [("TrainingCrashed", "2")]),
        ("m_findunused.log", []),
        ("m_mbar.log", [("TrainingCrashed", "2")]),
        ("mn_kill1.log", [("TrainingCrashed", "3")]),
        ("mn_kill0.log", [("TrainingCrashed", None)]),
    ],
)
def test_a_failure_is_reported_with_the_rank_that_caused_it(
    name: str, expected: list[tuple[str, str | None]]
) -> None:
    assert alerts(RUNS / name) == expected


def test_of_two_nodes_logs_the_one_that_saw_the_kill_is_believed() -> None:
    logs = tuple(str(RUNS / f"mn_kill{node}.log") for node in (0, 1))
    played = Replay(Settings(files=logs, run="mn", companions=False)).transitions()
    reported = [each for each in played if not each.is_heartbeat]
    assert [(each.alert, each.labels.get("rank")) for each in reported] == [
        ("TrainingCrashed", "3")
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kill.log", [("gloo_peer_closed", 0), ("gloo_peer_closed", 2)]),
        ("raise.log", [("python_exception", 1), ("gloo_peer_closed", 0), ("gloo_peer_closed", 2)]),
        (
            "segv.log",
            [("gloo_peer_closed", 3), ("gloo_peer_closed", 1), ("fatal_python_error", None)],
        ),
        ("m_findunused.log", []),
        ("m_mbar.log", [("monitored_barrier_peer", 1)] * 2 + [("monitored_barrier_failed", 0)] * 2),
        ("m_storeget.log", [("tcpstore_connection_lost", 1)] * 2 + [("tcpstore_wait_timeout", 1)]),
        ("m_unused.log", [("ddp_unfinished_reduction", rank) for rank in (1, 2, 0)]),
        ("mn_kill0.log", []),
        ("mn_kill1.log", []),
    ],
)
def test_what_the_workers_of_torchrun_say_comes_before_what_the_agent_says(
    name: str, expected: list[tuple[str, int | None]]
) -> None:
    serious = [e for e in events_of(name) if e.severity in SERIOUS]
    told_by_the_agent = ["elastic_worker_failed", "python_exception", "elastic_failure_table"]
    if not expected and name.startswith("m_"):
        assert serious == []
        return
    assert [(e.kind, e.rank) for e in serious[:-3]] == expected
    assert [e.kind for e in serious[-3:]] == told_by_the_agent
    assert serious[-2].fields["role"] == "death"
