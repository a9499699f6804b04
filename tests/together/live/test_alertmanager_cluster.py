"""Alertmanagers that agree on who sends, configured as for a fleet: one message, not one each."""

import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
CONFIG = Path(__file__).parents[3] / "deploy/fleet/alertmanager.yml"
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(ALERTMANAGER is None, reason="no Alertmanager is installed"),
]
PATIENCE = 60.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Peer:
    """One of them. The one that is second by name waits for the first before it sends."""

    def __init__(self, folder: Path, config: Path, gossip: int, *peers: int) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        command = [
            str(ALERTMANAGER),
            f"--config.file={config}",
            f"--storage.path={folder}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            f"--cluster.listen-address=127.0.0.1:{gossip}",
            "--cluster.peer-timeout=3s",
            "--cluster.settle-timeout=10s",
            "--cluster.gossip-interval=50ms",
            *(f"--cluster.peer=127.0.0.1:{peer}" for peer in peers),
        ]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def get(self, path: str) -> str:
        with suppress(OSError), urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return str(answer.read().decode())
        return ""

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def post(self, alerts: list[dict[str, Any]]) -> None:
        headers = {"Content-Type": "application/json"}
        data = json.dumps(alerts).encode()
        urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/api/v2/alerts", data, headers), timeout=PATIENCE
        ).close()


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.1)


@pytest.fixture
def peers(tmp_path: Path, slack: Any) -> Iterator[list[Peer]]:
    config = yaml.safe_load(CONFIG.read_text("utf-8"))
    config["route"]["group_wait"] = "1s"
    (receiver,) = (each for each in config["receivers"] if each["name"] == "slack")
    secret = tmp_path / "slack-webhook.url"
    secret.write_text(slack.url)
    receiver["slack_configs"][0]["api_url_file"] = str(secret)
    path = tmp_path / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    first, second = free_port(), free_port()
    started = [
        Peer(tmp_path / "first", path, first),
        Peer(tmp_path / "second", path, second, first),
    ]
    yield started
    for each in started:
        each.process.terminate()
        each.process.wait()


def test_one_message_for_a_job_that_stands_however_many_tell_of_it(
    peers: list[Peer], slack: Any
) -> None:
    wait_until(lambda: all(peer.metric("alertmanager_cluster_members") == 2 for peer in peers))
    wait_until(lambda: all('"status":"ready"' in peer.get("/api/v2/status") for peer in peers))
    run = {"cluster": "a", "run": "job-7", "severity": "critical"}
    alerts = [
        {"labels": {**run, "alertname": "JobStalled"}, "annotations": {"summary": "all stand"}},
        {"labels": {**run, "alertname": "TrainingStalled", "instance": "n0"}},
        {"labels": {**run, "alertname": "TrainingStalled", "instance": "n1"}},
    ]
    for peer in peers:
        peer.post(alerts)
    message = slack.next()
    assert "JobStalled" in message
    assert "TrainingStalled" not in message
    assert "docs/runbook/JobStalled.md" in message
    # Each has looked whether it was sent already.
    wait_until(lambda: all(peer.metric("alertmanager_nflog_queries_total") > 0 for peer in peers))
    sent = 'alertmanager_notifications_total{integration="slack"}'
    assert sum(peer.metric(sent) for peer in peers) == 1
    assert slack.messages.empty()
