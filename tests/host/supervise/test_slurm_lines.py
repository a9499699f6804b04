"""What is typed to Slurm, and which jobs a command has handed in."""

import os
from pathlib import Path

import pytest

from ldlm_monitor.base.snapshot import MonitorView, RunView, Snapshot
from ldlm_monitor.host.supervise.slurm import (
    SubmittedJobs,
    advice,
    do,
    job_of,
    nodes_of,
    requeued,
    submits,
    without,
)


def test_nodes_have_their_short_names_once_and_addresses_are_none() -> None:
    text = "gpu01.cluster.example,gpu02,gpu01,10.0.0.1,a b,-x,gpu_3,"
    assert nodes_of(text) == ["gpu01", "gpu02", "gpu_3"]
    assert nodes_of("") == []


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({}, None), ({"SLURM_JOB_ID": "12"}, "12"), ({"SLURM_JOB_ID": "x"}, None),
        (
            {"SLURM_JOB_ID": "13", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"},
            "12_3",
        ),
        ({"SLURM_JOB_ID": "13", "SLURM_ARRAY_TASK_ID": "3"}, None),
        ({"SLURM_JOB_ID": "1234567890123"}, None),
    ],
)  # fmt: skip
def test_the_job_is_that_of_the_environment(environment: dict[str, str], job: str | None) -> None:
    assert job_of(environment) == job


def test_a_job_is_requeued_and_held_until_its_nodes_are_excluded() -> None:
    assert requeued("12", []) == "scontrol requeue 12"
    assert requeued("12", ["a", "b"]) == (
        "scontrol requeuehold 12 && { for i in $(seq 20); do scontrol update JobId=12"
        " ExcNodeList=a,b && break; sleep 1; done; scontrol release 12; }"
    )


def test_sbatch_alone_hands_a_job_in() -> None:
    assert submits(["/usr/bin/sbatch", "a.sh"])
    assert not submits(["srun", "sbatch"])


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("sbatch run.sh -x c", "sbatch --exclude=a,b run.sh -x c"),
        ("sbatch -x c,d -N 2 run.sh", "sbatch --exclude=a,b,c,d -N 2 run.sh"),
        ("sbatch --exclude c run.sh", "sbatch --exclude=a,b,c run.sh"),
        ("sbatch --exclude=a run.sh", "sbatch --exclude=a,b run.sh"),
        ("sbatch -N 2 -x", "sbatch --exclude=a,b -N 2"),
    ],
)
def test_nodes_are_left_out_besides_those_that_are_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, made: str
) -> None:
    (tmp_path / "run.sh").touch()
    monkeypatch.chdir(tmp_path)
    assert without(words.split(), ["a", "b"]) == tuple(made.split())


def test_a_person_is_told_what_to_type() -> None:
    assert advice(["sbatch", "my run.sh"], "12", ["a"]) == "sbatch --exclude=a 'my run.sh'"
    assert advice(["sbatch", "run.sh"], "12", []) == ""
    assert advice(["python", "train.py"], "12", []) == "scontrol requeue 12"
    assert advice(["python", "train.py"], None, ["a"]) == ""


def test_a_line_is_run_to_its_end_although_it_is_asked_to_end(tmp_path: Path) -> None:
    do(f"kill -TERM $$; echo done > {tmp_path}/said")
    assert (tmp_path / "said").read_text() == "done\n"


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SubmittedJobs:
    """Jobs of a cluster whose scontrol knows the output of job 12 alone."""
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$3" = 12 ] && echo "JobId=12 StdOut=out/a.txt Other=1"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (tmp_path / "run").mkdir()
    return SubmittedJobs(tmp_path / "train.log", tmp_path / "run", tmp_path)


def links(folder: Path) -> dict[str, str]:
    return {path.name: str(path.readlink()) for path in (folder / "run").iterdir()}


def test_the_outputs_of_submitted_jobs_are_linked(jobs: SubmittedJobs, tmp_path: Path) -> None:
    jobs.look()  # there is no log yet
    log = tmp_path / "train.log"
    log.write_text("begins\nSubmitted batch job 12\nwas: Submitted batch job 13\nSubmitted batch j")
    jobs.look()
    assert links(tmp_path) == {"job_12.out": str(tmp_path / "out/a.txt")}
    with log.open("a") as more:
        more.write("ob 14\nSubmitted batch job 12\n")
    jobs.look()
    jobs.look()
    assert links(tmp_path)["job_14.out"] == str(tmp_path / "slurm-14.out")
    assert len(links(tmp_path)) == 2


def snapshot(*paths: str) -> Snapshot:
    run = RunView(
        name="r", framework="", world_size=None, state="running", health="HEALTHY", step=None,
        total_steps=None, epoch=None, progress=None, eta_seconds=None, started_at=None,
        last_progress_at=None, stall_limit_seconds=None, ended_at=None, files=paths,
        statistics={}, event_counts={}, skipped_steps=0, settings={},
    )  # fmt: skip
    return Snapshot(
        version=1, at=1.0, runs=(run,), alerts=(), events=(), monitor=MonitorView.fresh(), points=()
    )


def test_jobs_are_read_once_the_newest_output_is_of_a_run(
    jobs: SubmittedJobs, tmp_path: Path
) -> None:
    assert jobs.are_read(snapshot())
    (tmp_path / "train.log").write_text("Submitted batch job 11\nSubmitted batch job 12\n")
    jobs.look()
    old, new = (str(tmp_path / "run" / f"job_{number}.out") for number in (11, 12))
    assert not jobs.are_read(snapshot(old))
    assert jobs.are_read(snapshot(old, new))
