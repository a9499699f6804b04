"""Nine failures that were injected into a real job of four ranks: the right one is named.

The logs beside this are what torchrun and the ranks printed; `injected/job.py` says how they
came about, `truth.json` what was done and what torchelastic called the root cause.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

LOGS = Path(__file__).parent / "injected"
TRUTH: dict[str, dict[str, Any]] = json.loads((LOGS / "truth.json").read_text())
RUNS = Path(__file__).resolve().parents[2] / "together/corpus/runs/elastic"


def incidents(*paths: Path) -> tuple[IncidentView, ...]:
    played = Replay(Settings(files=tuple(map(str, paths)), companions=False, run="job"))
    list(played.transitions())
    return played.snapshot().incidents


def files(name: str) -> list[Path]:
    path = LOGS / name
    return sorted(path.iterdir()) if path.is_dir() else [path]


@pytest.mark.parametrize("name", TRUTH)
def test_the_rank_that_failed_is_named_in_the_only_incident(name: str) -> None:
    truth = TRUTH[name]
    (incident,) = incidents(*files(name))
    assert incident.root.rank == truth["rank"]
    assert incident.root.kind == truth["kind"]
    if truth["rank"] is None:
        assert incident.root.ranks == truth["ranks"]
    assert (incident.state, incident.ended_reason) == ("ended", "run ended")
    assert "TrainingCrashed" in incident.alerts
    assert incident.action
    assert incident.excerpt


@pytest.mark.parametrize("name", TRUTH)
def test_torchelastics_root_cause_is_shown_and_contradicted_where_it_is_wrong(name: str) -> None:
    truth = TRUTH[name]
    (incident,) = incidents(*files(name))
    claims = {claim.rank: claim for claim in incident.claims}
    assert sorted(claims) == truth["torchelastic"]
    for rank, claim in claims.items():
        right = truth["rank"] in (rank, None)
        assert claim.agrees is right
        assert right or f"rank {rank}" in claim.reason


@pytest.mark.parametrize("name", [name for name in TRUTH if name.startswith("nodes")])
def test_one_nodes_log_alone_never_confirms_a_wrong_rank(name: str) -> None:
    """Node 0 only has survivors: its launcher blames one, and that is not believed."""
    for path in files(name):
        (incident,) = incidents(path)
        if path.stem == "node0":
            assert incident.confidence in ("weak", "none")
            assert incident.root.rank in (None, TRUTH[name]["rank"])
        else:
            assert incident.root.rank == TRUTH[name]["rank"]


def test_a_contradiction_says_why_the_other_rank_is_not_the_cause() -> None:
    (incident,) = incidents(LOGS / "hang.log")
    (claim,) = incident.claims
    assert (claim.rank, claim.agrees) == (1, False)
    assert claim.reason == ("rank 1 itself waited for, or lost, another rank (gloo_timeout)")


@pytest.mark.parametrize(
    ("name", "rank", "kind"),
    [
        ("kill.log", 1, "elastic_worker_failed"),
        ("raise.log", 1, "python_exception"),
        ("rs.log", 1, "python_exception"),
        ("segv.log", 2, "fatal_python_error"),
        ("m_mbar.log", 2, "monitored_barrier_failed"),
        ("m_storeget.log", None, "tcpstore_wait_timeout"),
        ("m_unused.log", None, "ddp_unfinished_reduction"),
        ("mn_kill0.log", None, "elastic_worker_failed"),
        ("mn_kill1.log", 3, "elastic_worker_failed"),
    ],
)
def test_logs_of_other_injected_failures(name: str, rank: int | None, kind: str) -> None:
    (incident,) = incidents(RUNS / name)
    assert (incident.root.rank, incident.root.kind) == (rank, kind)


def test_of_two_nodes_logs_of_a_kill_there_is_one_incident() -> None:
    (incident,) = incidents(RUNS / "mn_kill0.log", RUNS / "mn_kill1.log")
    assert (incident.root.rank, incident.confidence) == (3, "confirmed")
    assert {claim.rank: claim.agrees for claim in incident.claims} == {1: False, 3: True}
