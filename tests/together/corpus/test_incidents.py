"""Other people's failures: one incident each, with the cause that a reader would name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

CORPUS = Path(__file__).resolve().parents[3] / "../shared/corpus"
pytestmark = pytest.mark.shared


def incidents(*paths: Path) -> tuple[IncidentView, ...]:
    played = Replay(Settings(files=tuple(map(str, paths)), companions=False))
    list(played.transitions())
    return played.snapshot().incidents


@pytest.mark.parametrize(
    ("name", "kind", "rank"),
    [
        ("bs17__megatron-gpt2-n64-timelimit.log", "slurm_cancelled", None),
        ("bs18__megatron-gpt2-n4.log", "slurm_cancelled", None),
        ("gp01__dmesg-xid-119.log", "gpu_xid", None),
        ("gp03__dmesg-nccl-segfault.log", "host_segfault", None),
        ("ou01__oumi-trl-cuda-oom.log", "cuda_oom", None),
        ("sl01__torchrun-sigint.log", "elastic_agent_signaled", None),
        ("t02__mmdet-loss-nan.log", "nonfinite_metric", None),
        ("t03__lightning-loss-nan.log", "nonfinite_metric", None),
        ("t08__accelerate-sigkill-host-oom.log", "elastic_worker_failed", 4),
        ("t09__trl-grpo-intermittent-nan.log", "nonfinite_metric", None),
        ("t11__keras-loss-nan.log", "nonfinite_metric", None),
        ("t12__openmpi-prefix-apex-nan.log", "nonfinite_metric", 0),
    ],
)
def test_a_failure_is_one_incident(name: str, kind: str, rank: int | None) -> None:
    (incident,) = incidents(CORPUS / "public" / name)
    assert (incident.root.kind, incident.root.rank) == (kind, rank)


def test_two_failures_of_one_kernel_log_that_lie_far_apart_are_two() -> None:
    found = incidents(CORPUS / "public/gp02__dmesg-host-oom-kill.log")
    assert [incident.root.kind for incident in found] == ["gpu_xid", "host_oom_kill"]
