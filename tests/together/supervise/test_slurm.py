"""Slurm: what a restart prints or does; its programs are stand-ins that write down their words.

`tests/together/live/test_slurm.py` asks Slurm itself.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ldlm_monitor.host.supervise import slurm
from tests.together.supervise.conftest import RUN, Ran, until

pytestmark = pytest.mark.live

SCONTROL = """#!/bin/sh
echo "scontrol $*" >> asked.txt
case "$1 $2" in
    "show job") echo "JobId=$3 StdOut=$PWD/out-$3.txt Power=" ;;
    "update JobId=12") [ -e pending ] || { touch pending; exit 1; } ;;
esac
"""
SBATCH = """#!/bin/sh
# A job that fails on its first node, and trains where that one is left out.
echo "sbatch $*" >> asked.txt
job=$((70 + LDLM_ATTEMPT))
echo "Submitted batch job $job"
for step in $(seq 1 30); do echo "step $step/30 loss 1.5"; done > out-$job.txt
case "$*" in *--exclude=gpu07*) sleep 1; exit 0 ;; esac
fault="NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."
echo "$(date '+%b %e %H:%M:%S') gpu07 kernel: $fault" >> out-$job.txt
sleep 2; exit 1
"""


@pytest.fixture
def programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`scontrol` and `sbatch` on the path; returns what they were asked."""
    (folder / "bin").mkdir()
    for name, text in (("scontrol", SCONTROL), ("sbatch", SBATCH)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    (folder / "job.sh").write_text("true\n")
    return folder / "asked.txt"


def test_nodes_are_short_names_and_nothing_that_a_shell_reads() -> None:
    text = "gpu07.cluster.local,gpu07,10.0.0.1,$(reboot),a b,-x,gpu[01-99],n1;ls"
    assert slurm.nodes_of(text) == ["gpu07"]


def test_a_job_is_a_number_or_a_task_of_an_array() -> None:
    assert slurm.job_of({"SLURM_JOB_ID": "12"}) == "12"
    array = {"SLURM_JOB_ID": "15", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
    assert slurm.job_of(array) == "12_3"
    assert slurm.job_of({}) is slurm.job_of({"SLURM_JOB_ID": "12; reboot"}) is None


def test_sbatch_leaves_out_what_it_did_and_what_failed(folder: Path) -> None:
    (folder / "job.sh").write_text("true\n")
    command = ("sbatch", "-x", "gpu01,gpu02", "--wait", "job.sh", "-x", "its own")
    found = slurm.without(command, ["gpu07", "gpu01"])
    assert found == (
        *("sbatch", "--exclude=gpu07,gpu01,gpu01,gpu02", "--wait"),
        *("job.sh", "-x", "its own"),
    )


def test_a_requeued_job_is_released_although_it_never_took_the_change(
    programs: Path, folder: Path
) -> None:
    subprocess.run(["sh", "-c", slurm.requeued("12", ["gpu07"])], check=True, timeout=60)
    assert programs.read_text().splitlines() == [
        "scontrol requeuehold 12",
        "scontrol update JobId=12 ExcNodeList=gpu07",
        "scontrol update JobId=12 ExcNodeList=gpu07",
        "scontrol release 12",
    ]


def test_a_jobs_output_is_followed_and_its_bad_node_left_out(
    run: Callable[..., Ran], programs: Path
) -> None:
    flags = ["--on", "crash=restart:1", "--slurm", "requeue", "--run", "exp"]
    ran = run("sbatch", "--wait", "job.sh", flags=flags)
    assert ran.code == 0
    assert ran.record is not None
    log = Path(ran.record.log).read_text()
    assert "decided: RESTART_WITHOUT gpu07" in log
    assert "Slurm: sbatch --exclude=gpu07 --wait job.sh" in log
    assert "sbatch --exclude=gpu07 --wait job.sh" in programs.read_text()
    assert [Path(each).name for each in ran.record.files[1:]] == ["job_71.out", "job_72.out"]
    shown = subprocess.run(
        [*RUN[:3], "report", "exp"], capture_output=True, check=False, text=True
    ).stdout
    assert "step 30" in shown


def test_in_a_job_it_is_requeued_without_the_node_where_told_to(
    run: Callable[..., Ran], programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    fault = "print('RuntimeError: CUDA error: uncorrectable ECC error encountered')"
    train = f"print('step 1/9 loss 2'); {fault}; raise SystemExit(1)"
    ran = run(sys.executable, "-c", train, flags=["--on", "crash=restart:1", "--slurm", "requeue"])
    assert ran.code == 1
    assert ran.record is not None
    assert "attempt 2" not in Path(ran.record.log).read_text()
    until(programs.exists)
    assert programs.read_text().startswith("scontrol requeue")
