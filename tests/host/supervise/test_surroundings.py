"""What a run was started in, and what is kept of its failure."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ldlm_monitor.base.records import Event, Position, Scalar
from ldlm_monitor.base.snapshot import AlertView, MonitorView, Snapshot
from ldlm_monitor.host.supervise import evidence
from ldlm_monitor.host.supervise.evidence import keep, stacks
from ldlm_monitor.host.supervise.started_in import look


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository of one commit, with a change that was not committed."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    (tmp_path / "a.py").write_text("lr = 1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True)
    (tmp_path / "a.py").write_text('lr = 2\npassword = "hunter2"\n')
    return tmp_path


def test_the_working_tree_is_kept_with_its_commit_and_without_secrets(work: Path) -> None:
    found = look([sys.executable, "a.py"], work, {})
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=work, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert found.git_commit == commit
    assert found.git_diff is not None
    assert "-lr = 1\n+lr = 2\n" in found.git_diff
    assert "hunter2" not in found.git_diff


def test_outside_of_a_repository_nothing_is_known_of_git(tmp_path: Path) -> None:
    found = look([sys.executable], tmp_path, {})
    assert (found.git_commit, found.git_diff) == (None, None)


def test_the_packages_are_those_of_the_commands_interpreter(tmp_path: Path) -> None:
    found = look([sys.executable, "-m", "x"], tmp_path, {})
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert "pytest" in found.packages


def test_a_program_beside_an_interpreter_has_its_packages(tmp_path: Path) -> None:
    answer = '["3.9.1", {"torch": "1.0"}]'
    for name, text in (("torchrun", ""), ("python", f"echo '{answer}'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    found = look([str(tmp_path / "torchrun"), "a.py"], tmp_path, {})
    assert (found.python, found.packages) == ("3.9.1", {"torch": "1.0"})


@pytest.mark.parametrize("text", ["exit 1", "echo nonsense", "echo 3", "echo '[1, 2]'"])
def test_an_interpreter_that_does_not_answer_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "python").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "python").chmod(0o755)
    found = look([str(tmp_path / "python")], tmp_path, {})
    assert (found.python, found.packages) == (None, {})


def test_values_of_harmless_variables_are_kept_and_names_of_all_others(tmp_path: Path) -> None:
    given = {
        "RANK": "3", "NCCL_DEBUG": "INFO", "SLURM_JOB_ID": "12", "OTHER": "hello",
        "CUDA_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", "PATH": "/a:/b",
    }  # fmt: skip
    found = look([sys.executable], tmp_path, given)
    assert found.environment == {
        "CUDA_TOKEN": "[redacted]", "NCCL_DEBUG": "INFO", "OTHER": "[redacted]", "PATH": "/a:/b",
        "RANK": "3", "SLURM_JOB_ID": "12",
    }  # fmt: skip
    assert [*found.environment] == sorted(given)


def test_gpus_are_those_that_the_driver_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text(
        '#!/bin/sh\n[ "$1" = -L ] && printf "GPU 0: A\\nGPU 1: B\\n"\n'
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert look([sys.executable], tmp_path, {}).gpus == ("GPU 0: A", "GPU 1: B")


HUNG = AlertView(
    name="TrainingStalled", state="firing", labels={"run": "a", "severity": "critical"},
    annotations={"summary": "a: no step for 31s"}, value=31.0, active_at=1.0, fired_at=1.0,
    position=None,
)  # fmt: skip


def event(kind: str, run: str, *pids: int) -> Event:
    processes: list[dict[str, Scalar]] = [
        {"pid": pid, "state": "S", "rank": pid - 7} for pid in pids
    ]
    return Event(
        kind=kind,
        severity="warning",
        run=run,
        rank=1,
        message="m",
        fields={"processes": processes, "cores": 0.5},
        position=Position("a.log", 1, 0),
    )


def snapshot(*events: Event) -> Snapshot:
    return Snapshot(
        version=1, at=1.0, runs=(), alerts=(), events=events, monitor=MonitorView.fresh(), points=()
    )


@pytest.fixture
def with_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A py-spy that says for which process it was asked."""
    (tmp_path / "py-spy").write_text(
        '#!/bin/sh\necho "$1 $2 $3 password=abc"\necho no >&2\nexit 1\n'
    )
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("with_py_spy")
def test_a_failure_is_kept_with_its_events_and_the_stacks_of_its_processes(tmp_path: Path) -> None:
    place = tmp_path / "evidence.json"
    seen = snapshot(event("look", "a", 7, 8, 7), event("look", "b", 9))
    assert not [line for line in keep(place, HUNG, seen) if line.startswith("Thread")]
    found = json.loads(place.read_text())
    assert found["incidents"] == []
    (kept,) = found["events"]
    assert (kept["kind"], kept["rank"], kept["message"], kept["cores"]) == ("look", 1, "m", 0.5)
    assert found["stacks"] == {
        pid: f"dump --pid {pid} password=[redacted]\nno\n" for pid in ("7", "8")
    }


@pytest.mark.usefixtures("with_py_spy")
def test_of_the_processes_looked_at_only_the_commands_are_asked(tmp_path: Path) -> None:
    """The relay, too, has the log open."""
    place = tmp_path / "evidence.json"
    for seen, own, asked in [((7, 8), {8, 9}, ["8"]), ((7,), {9, 8}, ["8", "9"])]:
        assert [*keep(place, HUNG, snapshot(event("look", "a", *seen)), own)]
        assert [*json.loads(place.read_text())["stacks"]] == asked


def test_without_py_spy_there_are_no_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert [*stacks([1])] == []


def test_a_full_disk_does_not_stop_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert [*keep(Path("/dev/full"), HUNG, snapshot())]


@pytest.mark.usefixtures("with_py_spy")
def test_the_stacks_of_ranks_are_compared_for_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is all that is left after the kill."""
    (tmp_path / "py-spy").write_text(PY_SPY)
    look = event("log_silence", "a", 7, 8)
    seen = snapshot(replace(look, fields={**look.fields, "probe": True}))
    rows = [json.loads(line) for line in keep(tmp_path / "evidence.json", HUNG, seen)]
    assert [(row["kind"], row.get("rank")) for row in rows] == [
        ("log_silence", 1), ("stack_dump", 1), ("stack_dump", 0), ("hang_no_progress", None),
    ]  # fmt: skip
    assert rows[1]["message"] == (
        "rank 1 is not where the others wait for it, at train.py:9 in load; "
        "the others wait in all_reduce"
    )
    assert rows[3]["message"] == "no step for 31s"


PY_SPY = """#!/bin/sh
echo "Process $3: python train.py"
echo
echo "Thread $3 (idle): \\"MainThread\\""
[ "$3" = 8 ] || echo "    all_reduce (torch/distributed/distributed_c10d.py:3252)"
echo "    load (train.py:9)"
"""


@pytest.mark.usefixtures("with_py_spy")
def test_stacks_of_a_process_whose_rank_is_not_known_stand_in_the_log_as_they_are(
    tmp_path: Path,
) -> None:
    (tmp_path / "py-spy").write_text(PY_SPY)
    lines = [*keep(tmp_path / "evidence.json", HUNG, snapshot(), {8})]
    assert lines[:3] == [
        "# stacks of pid 8",
        'Thread 8 (idle): "MainThread"',
        "    load (train.py:9)",
    ]
    assert json.loads(lines[3])["kind"] == "hang_no_progress"


@pytest.mark.usefixtures("with_py_spy")
def test_py_spy_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "py-spy").write_text("#!/bin/sh\necho began\nexec sleep 600\n")
    monkeypatch.setattr(evidence, "STACK_SECONDS", 0.3)
    assert [*stacks([7])] == [("7", "began\n")]


def test_only_the_newest_findings_are_rows_and_none_is_longer_than_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    threads = [{"name": "main", "frames": "f\n" * 20_000}]

    def found(kind: str, line: int, **fields: object) -> Event:
        seen = event(kind, "a")
        known = {**seen.fields, "probe": True, **fields}
        return replace(seen, fields=known, position=Position("a.log", line, 0))

    seen = [
        found("log_silence", 1), found("log_silence", 2, cores=0.1),
        found("log_silence", 2, cores=0.2), found("stack_dump", 2, threads=threads),
        event("other", "a"),
    ]  # fmt: skip
    rows = [json.loads(line) for line in keep(tmp_path / "e.json", HUNG, snapshot(*seen))]
    assert [row["kind"] for row in rows] == ["log_silence", "stack_dump", "hang_no_progress"]
    assert rows[0]["fields"]["cores"] == 0.2
    assert "threads" not in rows[1]["fields"]
    assert (rows[0]["severity"], rows[0]["rank"], "rank" in rows[2]) == ("warning", 1, False)
    assert rows[2]["fields"] == {"role": "root"}
    other = HUNG.model_copy(update={"name": "LossSpike"})
    assert [*keep(tmp_path / "e.json", other, snapshot())] == []
