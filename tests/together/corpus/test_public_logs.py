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


def alerts(path: Path) -> list[tuple[str, str | None]]:
    """Alert and rank of every firing of severity error or critical, the log on its own."""
    played = Replay(Settings(files=(str(path),), companions=False)).transitions()
    return [
        (transition.alert, transition.labels.get("rank"))
        for transition in played
        if transition.state == "firing" and transition.labels["severity"] in ("error", "critical")
    ]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_raises_nothing_serious(name: str) -> None:
    assert alerts(CORPUS / "public" / name) == []


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
    assert alerts(CORPUS / name) == expected
