"""Slurm itself, with two nodes on this machine: its prolog, its epilog, its jobs and ours.

The nodes are two slurmd of Debian's packages slurmctld, slurmd, slurm-client and munge, with a
configuration and keys of their own. What stands for the training writes numbered losses until it
learns that it is enough.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "deploy/slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "setpriv")
MISSING = [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin") is None]
pytestmark = [
    pytest.mark.live,
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd's prolog takes root"),
]
NODES = ("node0", "node1")
PATIENCE = 90.0
TRAINING = """#!/bin/sh
# What torchrun would start: a loss each tenth of a second, on the second node NaN.
for argument; do case $argument in --node-rank=*) node=${argument#*=} ;; esac; done
node=${node:-$SLURM_NODEID} step=0
while [ ! -e "$ENOUGH" ]; do
    step=$((step + 1)) loss=2.5
    [ "$node" = 0 ] || [ "$step" -lt 20 ] || loss=nan
    echo "step $step loss $loss"
    sleep 0.1
done
"""


def until(holds: Callable[[], bool], reported: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, reported()
        threading.Event().wait(0.2)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Slurm:
    """A cluster of two nodes below a folder; `settings` are lines of slurm.env."""

    def __init__(self, folder: Path, user: tuple[int, int]) -> None:
        self.folder, self.user = folder, user
        self.work, self.targets = folder / "work", folder / "file_sd"
        for path, mode in ((self.work, 0o777), (self.targets, 0o1777), (folder / "bin", 0o755)):
            path.mkdir()
            path.chmod(mode)
        self.enough = self.work / "enough"
        self._program("bin/torchrun", TRAINING)
        self._program("bin/ldlm-monitor", f'#!/bin/sh\nexec {sys.executable} -m ldlm_monitor "$@"')
        for name in ("prolog", "epilog"):
            reported = f"export LDLM_SLURM_SETTINGS={folder}/slurm.env\nexec {SCRIPTS}/{name}.sh\n"
            self._program(f"{name}.sh", f"#!/bin/sh\n{reported}")
        self.configure()
        self._write_conf()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start()

    def configure(self, **changed: str) -> None:
        """The settings of prolog and epilog."""
        reported = {
            "MONITOR": f"{self.folder}/bin/ldlm-monitor", "FILE_SD_DIR": self.targets,
            "LISTEN": "127.0.0.1:0", "RANKS_PER_NODE": "1", "RUN_DIR": f"{self.folder}/run",
            "LOG_DIR": f"{self.folder}/log", "LINGER_SECONDS": "1", "WATCH_ROOT": "yes",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **changed,
        }  # fmt: skip
        text = "".join(f"{name}={value}\n" for name, value in reported.items())
        (self.folder / "slurm.env").write_text(text)

    def _program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def _write_conf(self) -> None:
        folder, host = self.folder, socket.gethostname()
        control, *ports = free_ports(1 + len(NODES))
        nodes = "".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} Gres=gpu:8\n"
            for name, port in zip(NODES, ports, strict=True)
        )
        (folder / "slurm.conf").write_text(
            f"ClusterName=c1\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={control}\n"
            f"SlurmUser=root\nSlurmdUser=root\nAuthInfo=socket={folder}/munge.socket\n"
            "MpiDefault=none\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\n"
            "SelectType=select/cons_tres\nJobAcctGatherType=jobacct_gather/none\nGresTypes=gpu\n"
            f"SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/%n.pid\n"
            f"StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n"
            f"PrologFlags=Alloc\nProlog={folder}/prolog.sh\nEpilog={folder}/epilog.sh\n"
            f"{nodes}PartitionName=main Nodes=ALL Default=YES MaxTime=10 State=UP\n"
        )
        # A GPU is a file that is there; what it is does not matter to a cluster without cgroups.
        (folder / "gres.conf").write_text(
            f"NodeName={','.join(NODES)} Name=gpu File={folder}/gpu[0-7]\n"
        )
        for number in range(8):
            (folder / f"gpu{number}").touch()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)

    def _start(self) -> None:
        munge = [
            f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "pid", "log", "seed")
        ]
        self._run("munged", "--foreground", f"--socket={self.folder}/munge.socket", *munge)
        until((self.folder / "munge.socket").is_socket, self.said)
        self._run("slurmctld", "-D")
        for name in NODES:
            self._run("slurmd", "-D", "-N", name)
        until(lambda: self.states() == {"idle"}, self.said)

    def _run(self, *command: str) -> None:
        with (self.folder / "daemons.out").open("ab") as out:
            self._processes.append(
                subprocess.Popen(command, env=self.environment, stdout=out, stderr=out)
            )

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "SLURM_CONF": f"{self.folder}/slurm.conf", "ENOUGH": str(self.enough)}

    def ask(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, cwd=self.work, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""

    def states(self) -> set[str]:
        return set(self.ask("sinfo", "-h", "-N", "-o", "%t").split())

    def said(self) -> str:
        """What was written where, for a test that fails."""
        paths = [self.folder / "daemons.out", *self.folder.glob("log/*"), *self.work.rglob("*.out")]
        lines = [f"{path.name}: {line}" for path in paths for line in path.read_text().splitlines()]
        return "\n".join(line for line in lines if ": step " not in line)

    def submit(self, script: Path, nodes: Sequence[str] = ("--nodes=2",), **more: str) -> str:
        """Hands a job in as its user; its number."""
        uid, gid = self.user
        done = subprocess.run(
            ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "sbatch",
             "--parsable", *nodes, "--export=ALL", script],
            env={**self.environment, **more}, cwd=self.work, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def found(self) -> dict[str, dict[str, str]]:
        """What Prometheus finds: for each node its labels, and its address as `target`."""
        groups = [json.loads(path.read_text())[0] for path in self.targets.glob("*.json")]
        return {
            each["labels"]["node"]: {**each["labels"], "target": each["targets"][0]}
            for each in groups
        }

    def metrics(self, node: str) -> str:
        if node not in self.found():
            return ""
        try:
            with urllib.request.urlopen(f"http://{self.found()[node]['target']}/metrics") as page:
                return str(page.read().decode())
        except OSError:
            return ""

    def watched(self, job: str) -> None:
        """Returns once both nodes' monitors report on their own logs, and of the NaN in one."""
        nan = f'ldlm_alerts{{alertname="NonFiniteLoss",alertstate="firing",run="job-{job}"'
        until(lambda: nan in self.metrics("node1"), self.said)
        until(lambda: f'ldlm_train_step{{run="job-{job}"' in self.metrics("node0"), self.said)
        assert 'alertname="NonFiniteLoss"' not in self.metrics("node0"), "it reads its own log"
        for node, labels in self.found().items():
            reported = (labels["cluster"], labels["job_id"], labels["node"])
            assert reported == ("c1", job, node)

    def over(self) -> None:
        """Ends the training; returns once the job and all that it left have gone."""
        self.enough.touch()
        until(lambda: self.states() == {"idle"}, self.said)
        until(lambda: not self.found(), self.said)

    def close(self) -> None:
        self.enough.touch()
        self.ask("scancel", "--me")
        until(lambda: self.states() <= {"idle"}, self.said)
        for each in reversed(self._processes):
            each.terminate()
            each.wait(PATIENCE)


@pytest.fixture
def slurm(job_user: tuple[int, int]) -> Iterator[Slurm]:
    """Below a folder that the job's user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        cluster = Slurm(Path(name), job_user)
        yield cluster
        cluster.close()


@pytest.fixture
def plain_job(slurm: Slurm) -> Path:
    """A job that knows nothing of monitors, and writes its logs where they are looked for."""
    script = slurm.folder / "plain.sbatch"
    script.write_text(
        '#!/bin/bash\nmkdir -p "train_logs/$SLURM_JOB_ID"\n'
        "srun bash -c 'torchrun > train_logs/$SLURM_JOB_ID/train_node$SLURM_NODEID.log'\n"
    )
    return script


def test_prolog_and_epilog_give_each_node_of_a_job_its_monitor(
    slurm: Slurm, plain_job: Path
) -> None:
    job = slurm.submit(plain_job)
    slurm.watched(job)
    pids = [int(path.read_text()) for path in (slurm.folder / "run").glob("*.pid")]
    assert len(pids) == len(NODES)
    assert {os.stat(f"/proc/{pid}").st_uid for pid in pids} == {slurm.user[0]}
    slurm.over()
    assert list((slurm.folder / "run").iterdir()) == []


def test_a_prolog_that_cannot_start_a_monitor_holds_up_no_job(
    slurm: Slurm, plain_job: Path
) -> None:
    slurm.configure(MONITOR="/nowhere/ldlm-monitor")
    job = slurm.submit(plain_job)
    log = slurm.work / f"train_logs/{job}/train_node1.log"
    until(lambda: log.exists() and "step 3 " in log.read_text(), slurm.said)
    slurm.over()
    for node in NODES:
        assert "/nowhere/ldlm-monitor" in (slurm.folder / f"log/job-{job}-{node}.log").read_text()


def test_where_there_is_no_prolog_the_job_brings_its_monitors(slurm: Slurm) -> None:
    """deploy/slurm/job.sbatch as it is, but for a training of two nodes."""
    slurm.configure(WATCH_ROOT="no", MONITOR="/nowhere/ldlm-monitor")
    (slurm.work / "deploy").symlink_to(ROOT / "deploy")
    job = slurm.submit(
        SCRIPTS / "job.sbatch",
        MONITOR=f"{slurm.folder}/bin/ldlm-monitor",
        FILE_SD_DIR=str(slurm.targets),
        LISTEN="127.0.0.1:0",
        PYTHONPATH=os.environ.get("PYTHONPATH", ""),
    )
    slurm.watched(job)
    slurm.over()
    assert "step 3 " in (slurm.work / f"train_logs/{job}/train_node0.log").read_text()


def test_a_job_in_which_a_node_fails_is_requeued_without_it(slurm: Slurm) -> None:
    """`run --slurm requeue` inside of a job of one node: Slurm starts it again on the other one."""
    slurm.configure(WATCH_ROOT="no", MONITOR="/nowhere/ldlm-monitor")
    (slurm.work / "train.sh").write_text(
        'echo "step 1/9 loss 2"\n'
        '[ -z "$SLURM_RESTART_COUNT" ] || exit 0\n'
        'fault="NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."\n'
        'echo "$(date "+%b %e %H:%M:%S") $SLURMD_NODENAME kernel: $fault"\n'
        "exit 1\n"
    )
    script = slurm.folder / "supervised.sbatch"
    script.write_text(
        "#!/bin/bash\n#SBATCH --requeue --nodes=1 --open-mode=append\n"
        'export XDG_STATE_HOME="$PWD/state"\n'
        "ldlm-monitor run --on crash=restart:1 --slurm requeue -- bash train.sh\n"
    )
    job = slurm.submit(script, (), PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    shown = lambda: slurm.ask("scontrol", "show", "job", job, "--oneliner")  # noqa: E731
    until(lambda: "Restarts=1" in shown() and "ExcNodeList=node" in shown(), shown)
    assert "Reason=JobHeldUser" not in shown()
    slurm.ask("scancel", job)
