"""The real daemon and a real Alertmanager: amtool sees what fires, and that it is over."""

import itertools
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        ALERTMANAGER is None or shutil.which("amtool") is None,
        reason="no Alertmanager is installed",
    ),
]
LOG = "train_logs/train_20260129_101500_node0.log"
PATIENCE = 30.0
CONFIG = """
route: {receiver: nobody, group_by: [run]}
receivers: [{name: nobody}]
inhibit_rules:
  - source_matchers: [alertname = NonFiniteLoss]
    target_matchers: [alertname = TrainingStalled]
    equal: [run]
"""


class Server:
    """An Alertmanager in a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (folder / "alertmanager.yml").write_text(CONFIG)
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [
                str(ALERTMANAGER),
                f"--config.file={folder / 'alertmanager.yml'}",
                f"--storage.path={folder / 'alertmanager'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stderr=subprocess.DEVNULL,
        )

    def alerts(self) -> dict[str, dict[str, Any]]:
        """What amtool shows to be active, by alert."""
        command = ["amtool", f"--alertmanager.url={self.url}", "alert", "query"]
        shown = subprocess.run(
            [*command, "--silenced", "--inhibited", "--active", "-o", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(shown.stdout) if shown.returncode == 0 else []
        return {each["labels"]["alertname"]: each for each in found or []}

    def until(
        self, alert: str, *, active: bool, meanwhile: Callable[[], object] = lambda: None
    ) -> dict[str, Any]:
        """Return once the alert is, or is not, active; `meanwhile` is called between two looks."""
        deadline = time.monotonic() + PATIENCE
        while (alert in (found := self.alerts())) is not active:
            assert time.monotonic() < deadline, found
            meanwhile()
            threading.Event().wait(0.1)
        return found.get(alert, {})


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.process.terminate()
    server.process.wait()


def test_a_stall_is_active_in_alertmanager_inhibited_by_its_own_rules_and_resolved(
    alertmanager, start, append, bars, tmp_path
):
    (tmp_path / "ldlm-monitor.toml").write_text(
        f'[stall.limit_seconds]\nrunning = 1.5\n[alertmanager]\nurls = ["{alertmanager.url}"]\n'
    )
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log").ready()
    alertmanager.until("Watchdog", active=True)
    append(LOG, bars(40, 42))
    stalled = alertmanager.until("TrainingStalled", active=True)
    assert stalled["labels"]["run"] == "train_20260129_101500"
    assert stalled["generatorURL"] == f"{daemon.url()}/runs/train_20260129_101500"
    assert {"summary", "description", "action"} == set(stalled["annotations"])
    append(LOG, bars(42, 44) + "WARNING: Invalid text_loss detected: nan\n")
    alertmanager.until("NonFiniteLoss", active=True)
    steps = itertools.count(44)

    def train() -> None:
        step = next(steps)
        append(LOG, bars(step, step + 1))

    alertmanager.until("TrainingStalled", active=False, meanwhile=train)
    daemon.wait_for_metric('outcome="sent",receiver="alertmanager 127.0.0.1:')


def test_what_fires_is_told_again_by_a_daemon_that_was_killed(
    alertmanager, start, append, bars, tmp_path
):
    (tmp_path / "ldlm-monitor.toml").write_text(f'[alertmanager]\nurls = ["{alertmanager.url}"]\n')
    append(LOG, bars(0, 40))
    daemon = start("train_logs/*.log").ready()
    append(LOG, "WARNING: Invalid text_loss detected: nan\n")
    before = alertmanager.until("NonFiniteLoss", active=True)
    daemon.process.kill()
    daemon.wait()
    start("train_logs/*.log").ready()
    deadline = time.monotonic() + PATIENCE
    while (after := alertmanager.alerts()["NonFiniteLoss"])["updatedAt"] == before["updatedAt"]:
        assert time.monotonic() < deadline
        threading.Event().wait(0.1)
    assert after["startsAt"] == before["startsAt"], "the same alert, not another one"
