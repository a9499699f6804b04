"""A real Prometheus scrapes a real daemon: every panel, variable and rule finds its data there."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROMETHEUS = shutil.which("prometheus")
ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(PROMETHEUS is None, reason="the Debian package prometheus is missing"),
]
PATIENCE = 60.0
VARIABLES = {
    "$__rate_interval": "15s",
    "$__range": "5m",
    "$cluster": ".*",
    "$rank": ".*",
    "$job": ".+",
    "$instance": ".+",
    "$run": ".+",
}
RUN = "boards"
HEAD = (
    '{{"schema":"ldlm.health/1","type":"run","run":"boards","rank":{rank},"world_size":2,'
    '"time":{time},"framework":"torch"}}\n'
)
FAILED = '{"type":"end","status":"failed","error":"ValueError: no such shard"}\n'
NCCL = (
    "[rank1]:[E129 10:15:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1024, "
    "NumelOut=1024, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)


class Prometheus:
    """A server of its own, scraping the targets every second, with our rules."""

    def __init__(self, folder: Path, *targets: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        (folder / "prometheus.yml").write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [
                        f"{ROOT}/rules/{name}.yml" for name in ("default", "recording", "fleet")
                    ],
                    "scrape_configs": [
                        {"job_name": "ldlm-monitor", "static_configs": [{"targets": targets}]}
                    ],
                }
            )
        )
        self.process = subprocess.Popen(
            [
                str(PROMETHEUS),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stderr=subprocess.DEVNULL,
        )

    def get(self, path: str, **arguments: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def has_data(self, query: str) -> bool:
        """Whether a range query over the last minute finds a sample."""
        now = time.time()
        span = {"start": str(now - 60), "end": str(now), "step": "1"}
        return bool(self.get("query_range", query=query, **span)["result"])


def queries() -> Iterator[tuple[str, str]]:
    """Each query of each board with where it stands, as Grafana would send it."""
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        board = json.loads(path.read_text("utf-8"))
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                where = f"{path.stem}: {panel['title']} {target['refId']}"
                yield where, _filled(target["expr"])
        for each in board["annotations"]["list"]:
            yield f"{path.stem}: {each['name']}", _filled(each["expr"])
        for each in board["templating"]["list"]:
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", str(each["query"]))
            if asked and asked[2] != "cluster":  # an external label: only a fleet has it
                yield f"{path.stem}: ${each['name']}", _filled(asked[1])


def _filled(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def rows(step: int, rank: int, at: float) -> str:
    """A step of a rank; rank 1 is behind and slow, and something is wrong now and then."""
    reported = {
        "type": "step",
        "step": step - 3 * rank,
        "time": at,
        "loss": "NaN" if step % 10 == 9 else 2.5 + 0.01 * (step % 7),
        "loss_text": 1.5,
        "eval_loss": 2.4,
        "grad_norm": 0.8,
        "learning_rate": 1e-4,
        "samples_per_second": 100.0,
        "tokens_per_second": 5e4,
        "step_seconds": 0.5 * (1 + rank),
        "memory_allocated_bytes": 1e10,
        "memory_reserved_bytes": 2e10,
        "skipped_steps": step // 10,
        "total_steps": 1000,
    }
    return json.dumps(reported) + "\n"


@pytest.fixture
def prometheus(start: Any, append: Any, slack: Any, tmp_path: Path) -> Iterator[Prometheus]:
    begun = time.time() - 100
    for rank in (0, 1):
        name = f"health_rank{rank}.jsonl"
        append(name, HEAD.format(rank=rank, time=begun))
        append(name, "".join(rows(step, rank, begun + step) for step in range(100)))
    append("train.log", "")
    append("crashed/health_rank1.jsonl", HEAD.format(rank=1, time=begun))
    append("crashed/health_rank1.jsonl", rows(9, 1, time.time()) + FAILED)
    daemons = [
        start("*.jsonl", "train.log", "--run", RUN, slack=slack).ready(),
        start("*.jsonl", "--run", RUN, "--state-dir", str(tmp_path / "node1")).ready(),
        start("crashed/*.jsonl", "--run", "crashed").ready(),
    ]
    server = Prometheus(tmp_path, *(each.url().removeprefix("http://") for each in daemons))
    stop = threading.Event()

    def train() -> None:
        step = 100
        while not stop.wait(0.5):
            for rank in (0, 1):
                append(f"health_rank{rank}.jsonl", rows(step, rank, time.time()))
            if step % 8 == 0:
                append("train.log", f"✓ Checkpoint saved: out/ckpt_{step}.pt\n{NCCL}")
            if step == 130:  # it is started again
                for rank in (0, 1):
                    append(f"health_rank{rank}.jsonl", HEAD.format(rank=rank, time=time.time()))
            step += 1

    training = threading.Thread(target=train)
    training.start()
    yield server
    stop.set()
    training.join()
    server.process.terminate()
    server.process.wait()


def test_every_panel_annotation_and_variable_finds_its_data(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + PATIENCE
    empty = dict(queries())
    while empty:
        threading.Event().wait(1.0)
        with contextlib.suppress(OSError):  # it is not up yet
            empty = {
                where: query for where, query in empty.items() if not prometheus.has_data(query)
            }
        assert time.monotonic() < deadline, json.dumps(empty, indent=1)
    # What was there before Prometheus looked, and came once, is shown as well.
    what_failed = dict(queries())["ldlm-ranks: What failed A"]
    found = prometheus.get("query", query=what_failed)["result"]
    once = {"run": "crashed", "rank": "1", "kind": "python_exception", "severity": "error"}
    assert [each["value"][1] for each in found if each["metric"] == once] == ["1"], found
    # Two monitors report the same run, as those of two nodes do: it is one.
    # The other one ended, which takes its ten seconds of silence to be sure.
    going = dict(queries())["ldlm-fleet: Runs that go on A"]
    while (count := prometheus.get("query", query=going)["result"][0]["value"][1]) != "1":
        assert time.monotonic() < deadline, count
        threading.Event().wait(1.0)
    groups = prometheus.get("rules")["groups"]
    sick = [rule["name"] for group in groups for rule in group["rules"] if rule["health"] != "ok"]
    assert not sick
    # Prometheus evaluates each group at a time of its own.
    wanted = {"NonFiniteLoss", "NcclTimeout", "RankStraggling", "Watchdog"}
    while wanted - {each["labels"]["alertname"] for each in prometheus.get("alerts")["alerts"]}:
        assert time.monotonic() < deadline, wanted
        threading.Event().wait(1.0)
