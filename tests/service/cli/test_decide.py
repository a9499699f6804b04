"""`replay --decide`: what to do about each run, and how often that is right."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.service.cli import main

OOM = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
"""
PREEMPTED = (
    "slurmstepd: error: *** JOB 7 ON n3 CANCELLED AT 2026-01-02T03:04 DUE TO PREEMPTION ***\n"
)
STEPS = "".join(f"step {step} loss 1.5 lr 0.001\n" for step in range(40))
KEYS = {
    *("file", "run", "attempt", "decision", "confidence", "reasons"),
    *("node", "rollback_step", "skip_steps", "evidence"),
}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "oom.log").write_text(OOM)
    (tmp_path / "preempted.log").write_text(STEPS + PREEMPTED)
    (tmp_path / "well.log").write_text(STEPS)
    return tmp_path


def test_json_has_the_contracts_keys_for_each_run(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["replay", "--decide", "--format", "json", "--fail-on", "never", f"{logs}/*.log"])
    found = {row["run"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert {run: row["decision"] for run, row in found.items()} == {
        "oom": "STOP",
        "preempted": "RESTART",
        "well": "GO_ON",
    }
    assert all(set(row) == KEYS for row in found.values())
    assert found["oom"]["evidence"][0] == {"path": f"{logs}/oom.log", "line": 1, "offset": 0}
    assert found["well"]["file"] == f"{logs}/well.log"


def test_text_says_what_a_wrong_decision_costs(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["replay", "--decide", "--fail-on", "never", f"{logs}/oom.log"])
    out = capsys.readouterr().out
    assert out.startswith("oom: STOP (probable): the training needs more GPU memory")
    assert "if wrong: the GPUs stand idle until a person looks" in out


def test_a_truth_file_scores_right_wrong_and_both_false_decisions(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = logs / "truth.json"
    entries = [
        {"file": "oom.log", "decision": "RESTART", "clear": True},
        {"file": "preempted.log", "decision": "STOP", "also": [], "clear": True},
        {"file": "well.log", "decision": "STOP", "also": ["GO_ON"], "clear": False},
    ]
    truth.write_text(json.dumps(entries))
    main(["replay", "--decide", "--truth", str(truth), "--format", "json", f"{logs}/*.log"])
    score = json.loads(capsys.readouterr().out)
    assert (score["decided"], score["right"], score["wrong"], score["unknown"]) == (3, 1, 2, 0)
    assert (score["clear"], score["false_stop"], score["false_restart"]) == (2, 1, 1)


def test_a_file_that_is_no_truth_gets_one_clear_line(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = logs / "truth.json"
    truth.write_text('[{"file": "oom.log", "decision": "MAYBE"}]')
    assert main(["replay", "--decide", "--truth", str(truth), f"{logs}/*.log"]) == 2
    assert "is no list of decisions" in capsys.readouterr().err
