"""MM-LDLM's own runs once more, byte by byte as they arrived, under the real daemon."""

import json
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

RUNS = Path(__file__).resolve().parents[2] / "together/corpus/runs/upstream"
pytestmark = pytest.mark.live

FAST = 25.0
EXPECTED = {
    "A_healthy_1proc": set(),
    "B_healthy_2proc": set(),
    "A4_truncated_Loss_value": {"JobKilled"},  # stopped by SIGTERM before its last step
    "G_resume_same_name": set(),
    "C1_nan_latent_stable": {"NonFiniteLoss", "TrainingCrashed"},
    "C2_nan_blocks_prefix_trainer": {"NonFiniteLoss"},
    "D3_gradnorm_inf_lossscale": {"NonFiniteGradient", "StepsSkipped"},
    "E_crash_index_error_rank": {"TrainingCrashed"},
    "F1_sigkill_rank1": {"TrainingCrashed"},
}
STOPPED = "H_hang_sigstop_rank1_90s"


def arrivals(run: str, into: Path) -> list[tuple[float, Path, bytes]]:
    """When, after the first, which bytes were appended to which file."""
    files = {path.name: path for path in (RUNS / run).rglob("*.*") if path.parent.name != run}
    contents = {name: path.read_bytes() for name, path in files.items()}
    seen: dict[str, int] = defaultdict(int)
    found = []
    for line in (RUNS / run / f"{run}.times.jsonl").read_text().splitlines():
        row = json.loads(line)
        name, size = row["file"], row["offset_bytes"]
        if name in files and size > seen[name]:
            target = into / run / files[name].relative_to(RUNS / run)
            found.append((row["unix_time"], target, contents[name][seen[name] : size]))
            seen[name] = size
    first = found[0][0]
    return [(at - first, target, data) for at, target, data in found]


def play(run: str, into: Path, speed: float) -> None:
    began = time.monotonic()
    for at, target, data in arrivals(run, into):
        time.sleep(max(began + at / speed - time.monotonic(), 0.0))
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as file:
            file.write(data)


def test_each_run_raises_what_it_should_while_it_is_written(start, tmp_path) -> None:
    # Not all of them log their end, and a busy machine may need longer than 30 s for this test.
    (tmp_path / "ldlm-monitor.toml").write_text("[stall]\nfloor_seconds = 600\n")
    daemon = start("runs/*/train_logs/*.log").ready()
    writers = [
        threading.Thread(target=play, args=(run, tmp_path / "runs", FAST)) for run in EXPECTED
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    names = {
        next((RUNS / run / "train_logs").glob("*.log")).stem.removesuffix("_node0"): run
        for run in EXPECTED
    }
    for name, run in names.items():
        for alert in EXPECTED[run]:
            daemon.wait_for_metric(f'alertname="{alert}",alertstate="firing"', f'run="{name}"')
    daemon.wait_for_metric("ldlm_monitor_behind_bytes 0")
    snapshot = json.loads(daemon.get("/api/v1/alerts"))
    raised = defaultdict(set)
    ranks = {}
    for alert in snapshot["alerts"]:
        if alert["labels"]["severity"] in ("none", "info"):
            continue
        raised[names[alert["labels"]["run"]]].add(alert["name"])
        ranks[names[alert["labels"]["run"]]] = alert["annotations"].get("rank")
    assert dict(raised) == {run: alerts for run, alerts in EXPECTED.items() if alerts}
    assert (ranks["E_crash_index_error_rank"], ranks["F1_sigkill_rank1"]) == ("1", "1")


def test_a_rank_that_was_stopped_is_told_while_it_is_and_when_it_goes_on(start, tmp_path) -> None:
    # Ten times as fast: the 90 s for which rank 1 was stopped are 9, and the floor is 3.
    (tmp_path / "ldlm-monitor.toml").write_text("[stall]\nfloor_seconds = 3\n")
    daemon = start("runs/*/train_logs/*.log").ready()
    writer = threading.Thread(target=play, args=(STOPPED, tmp_path / "runs", 10.0))
    writer.start()
    daemon.until("FIRING", "TrainingStalled")
    daemon.until("RESOLVED", "TrainingStalled")
    writer.join()
    assert not [line for line in daemon.printed() if "FIRING" in line]
