"""Other people's logs: what is healthy raises nothing serious, whatever words it holds."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

CORPUS = Path(__file__).resolve().parents[3] / "../shared/corpus"
pytestmark = pytest.mark.shared
LOGS = json.loads((CORPUS / "public/index.json").read_text()) if CORPUS.is_dir() else []
HEALTHY = [
    log["file"]
    for log in LOGS
    if not any(event["severity"] == "failure" for event in log["truth"]["events"])
]


def replay(path: Path) -> Replay:
    """The log on its own."""
    return Replay(Settings(files=(str(path),), companions=False))


def alerts(played: Replay) -> list[tuple[str, str | None]]:
    """Alert and rank of every firing of severity error or critical."""
    return [
        (transition.alert, transition.labels.get("rank"))
        for transition in played.transitions()
        if transition.state == "firing" and transition.labels["severity"] in ("error", "critical")
    ]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_raises_nothing_serious_and_has_no_incident(name: str) -> None:
    played = replay(CORPUS / "public" / name)
    assert alerts(played) == []
    assert played.snapshot().incidents == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("public/ou01__oumi-trl-cuda-oom.log", [("OutOfMemory", None), ("TrainingCrashed", None)]),
        ("public/t08__accelerate-sigkill-host-oom.log", [("TrainingCrashed", "4")]),
        ("public/sl01__torchrun-sigint.log", [("JobKilled", None)]),
        ("public/bs17__megatron-gpt2-n64-timelimit.log", [("JobKilled", None)]),
    ],
)
def test_a_failure_is_told_with_the_rank_that_caused_it(
    name: str, expected: list[tuple[str, str | None]]
) -> None:
    assert alerts(replay(CORPUS / name)) == expected
