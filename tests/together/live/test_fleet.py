"""Two nodes of a Slurm job: their monitors, an agent that finds them, and who records and judges.

The scripts and configurations are those of deploy/; what differs here is where files lie and how
often Prometheus looks. Slurm itself is not there: its variables are, as slurmd and srun set them
(src/common/env.c and src/slurmd/slurmd/req.c of Slurm); test_slurm.py has the real one.
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
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

PROMETHEUS = shutil.which("prometheus")
ROOT = Path(__file__).parents[3]
SLURM = ROOT / "deploy/slurm"
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(PROMETHEUS is None, reason="the Debian package prometheus is missing"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is missing"),
]
PATIENCE = 60.0
JOB = "4711"


class Prometheus:
    """A process of its own with one of deploy/'s configurations."""

    def __init__(self, folder: Path, config: dict[str, Any], *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        folder.mkdir()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.process = subprocess.Popen(
            [
                str(PROMETHEUS),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--web.listen-address={self.address}",
                *options,
            ],
            cwd=folder,
            stderr=subprocess.DEVNULL,
        )

    def get(self, path: str, **arguments: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def until(self, query: str, count: int) -> list[dict[str, Any]]:
        """The samples of a query once there are `count` of them."""
        deadline = time.monotonic() + PATIENCE
        found: list[dict[str, Any]] = []
        while time.monotonic() < deadline:
            with suppress(OSError):  # it is not up yet
                found = self.get("query", query=query)["result"]
                if len(found) == count:
                    return found
            threading.Event().wait(0.2)
        raise AssertionError(f"{query}: {found}")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


def deployed(path: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "deploy/fleet" / path).read_text("utf-8")))


class Cluster:
    """Folders that two nodes share, and the variables that Slurm sets on each."""

    def __init__(self, folder: Path, job_user: tuple[int, int]) -> None:
        self.folder = folder
        self.uid, self.gid = job_user
        self.targets = folder / "file_sd"
        self.targets.mkdir()
        self.targets.chmod(0o1777)
        self.logs = folder / "work/train_logs" / JOB
        self.logs.mkdir(parents=True)
        monitor = folder / "ldlm-monitor"
        monitor.write_text(f'#!/bin/sh\nexec {sys.executable} -m ldlm_monitor "$@"\n')
        monitor.chmod(0o755)
        (folder / "slurm.env").write_text(
            f"MONITOR={monitor}\nFILE_SD_DIR={self.targets}\nLISTEN=127.0.0.1:0\n"
            f"RANKS_PER_NODE=1\nRUN_DIR={folder}/run\nLOG_DIR={folder}/log\n"
            f"LINGER_SECONDS=1\nWATCH_ROOT=yes\nPYTHONPATH={os.environ.get('PYTHONPATH', '')}\n"
        )

    def environment(self, node: str) -> dict[str, str]:
        return {
            "LDLM_SLURM_SETTINGS": str(self.folder / "slurm.env"),
            "SLURM_CLUSTER_NAME": "c1",
            "SLURM_JOB_ID": JOB,
            "SLURM_JOB_UID": str(self.uid),
            "SLURM_JOB_GID": str(self.gid),
            "SLURM_JOB_WORK_DIR": str(self.folder / "work"),
            "SLURM_NODELIST": "node[0-1]",
            "SLURMD_NODENAME": node,
        }

    def slurmd(self, script: str, node: str) -> None:
        """A prolog or epilog as slurmd runs it: no other variables, and it waits for the end."""
        done = subprocess.run(
            [SLURM / script], env=self.environment(node), timeout=PATIENCE, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def write(self, rank: int, first: int, last: int, at: float) -> None:
        path = self.logs / f"health_rank{rank}.jsonl"
        with path.open("a") as file:
            if not first:
                reported = {"schema": "ldlm.health/1", "type": "run", "run": "r", "rank": rank}
                file.write(json.dumps({**reported, "world_size": 2, "time": at}) + "\n")
            for step in range(first, last):
                reported = {"type": "step", "step": step, "time": at + step - last, "loss": 2.5}
                file.write(json.dumps({**reported, "step_seconds": 1.0 + rank}) + "\n")


@pytest.fixture
def cluster(job_user: tuple[int, int]) -> Iterator[Cluster]:
    """Below a folder that the job's user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Cluster(Path(name), job_user)


@pytest.fixture
def second_node(cluster: Cluster) -> Iterator[None]:
    """What a job script has srun start where the cluster has no prolog."""
    settings = dict(
        line.split("=", 1) for line in (cluster.folder / "slurm.env").read_text().splitlines()
    )
    environment = {"PATH": os.environ["PATH"], **settings, **cluster.environment("node1")}
    process = subprocess.Popen(
        ["sh", SLURM / "monitor-node.sh"],
        env={**environment, "SLURM_NODEID": "1", "STATE_DIR": str(cluster.folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield
    process.terminate()
    assert process.wait(PATIENCE) == 0


@pytest.fixture
def ruler(cluster: Cluster) -> Iterator[Prometheus]:
    """In Mimir's place: it takes what agents write and evaluates the same rule files."""
    config = deployed("prometheus.yml")
    taken = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(ROOT / path) for path in config["rule_files"]],
    }
    data = f"--storage.tsdb.path={cluster.folder / 'ruler/data'}"
    server = Prometheus(cluster.folder / "ruler", taken, data, "--web.enable-remote-write-receiver")
    yield server
    server.close()


@pytest.fixture
def agent(cluster: Cluster, ruler: Prometheus) -> Iterator[Prometheus]:
    config = deployed("prometheus-agent.yml")
    config["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    (scrape,) = config["scrape_configs"]
    scrape["file_sd_configs"][0]["files"] = [f"{cluster.targets}/*.json"]
    scrape["relabel_configs"][0]["regex"] = "127[.]0[.]0[.]1:[0-9]+"
    config["remote_write"][0]["url"] = f"http://{ruler.address}/api/v1/write"
    data = f"--storage.agent.path={cluster.folder / 'agent/data'}"
    # By default it takes new targets every five seconds.
    often = "--scrape.discovery-reload-interval=1s"
    server = Prometheus(cluster.folder / "agent", config, "--enable-feature=agent", data, often)
    yield server
    server.close()


@pytest.mark.usefixtures("second_node")
def test_nodes_of_a_job_are_found_judged_together_and_forgotten_with_it(
    cluster: Cluster, ruler: Prometheus, agent: Prometheus
) -> None:
    now = time.time()
    for rank in (0, 1):
        cluster.write(rank, 0, 50, now)
    cluster.slurmd("prolog.sh", "node0")
    try:
        found = ruler.until('ldlm_train_step{job="ldlm-monitor",rank!=""}', 2)
        reported = {
            (each["metric"]["node"], each["metric"]["rank"], each["metric"]["run"])
            for each in found
        }
        assert reported == {("node0", "0", f"job-{JOB}"), ("node1", "1", f"job-{JOB}")}
        assert {(each["metric"]["cluster"], each["metric"]["job_id"]) for each in found} == {
            ("c1", JOB)
        }
        (nodes,) = ruler.until("run:ldlm_nodes:count == 2", 1)
        assert nodes["metric"]["cluster"] == "c1"
        (pending,) = ruler.until('ALERTS{alertname="RankStragglingAcrossNodes"}', 1)
        assert (pending["metric"]["rank"], pending["metric"]["node"]) == ("1", "node1")
        groups = ruler.get("rules")["groups"]
        sick = [
            rule["name"] for each in groups for rule in each["rules"] if rule["health"] == "err"
        ]
        assert not sick
        pid = int((cluster.folder / f"run/job-{JOB}-node0.pid").read_text())
        assert os.stat(f"/proc/{pid}").st_uid == cluster.uid
    finally:
        cluster.slurmd("epilog.sh", "node0")
    # Nothing, or what nobody has waited for yet.
    command = Path(f"/proc/{pid}/cmdline")
    assert not command.exists() or command.read_bytes() == b""
    assert [path.name for path in cluster.targets.iterdir()] == [f"{JOB}-node1.json"]
    assert [path.name for path in (cluster.folder / "run").iterdir()] == []
    ruler.until('up{node="node0"}', 0)
    (left,) = agent.get("targets")["activeTargets"]
    assert left["labels"]["node"] == "node1"


def test_a_prolog_that_cannot_start_a_monitor_does_not_drain_the_node(cluster: Cluster) -> None:
    with (cluster.folder / "slurm.env").open("a") as settings:
        settings.write("MONITOR=/nowhere/ldlm-monitor\n")
    cluster.slurmd("prolog.sh", "node0")
    cluster.slurmd("epilog.sh", "node0")
    assert "/nowhere/ldlm-monitor" in (cluster.folder / f"log/job-{JOB}-node0.log").read_text()
