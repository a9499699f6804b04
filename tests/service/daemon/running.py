"""The whole daemon in a thread of the test: its own threads, real files, a port of loopback."""

import json
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.service.cli.opening import Opening
from ldlm_monitor.service.config import Settings

PATIENCE = 60.0
RUN = "train_20260129_101500"
STEPS = "".join(f"step {step}/100 loss 2.5\n" for step in range(20))
NAN = "WARNING: Invalid text_loss detected: nan\n"


class Running:
    """A daemon on the logs of a folder, as a screen starts it; `log` is that of one run."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self.log = folder / f"{RUN}_node0.log"
        if not self.log.exists():
            self.log.write_text(STEPS)
        # A log that a busy test machine appends to late has not stalled.
        fixed = {"state_dir": folder / "state", "stall": {"floor_seconds": 600}}
        named = {"files": (str(folder / "*.log"),), "listen": "127.0.0.1:0"}
        named["evaluation_interval"] = 1
        self.settings = Settings.model_validate(fixed | named | given)
        self.opening = Opening(self.settings, lambda: self.settings)
        self.opening.start()
        self.url = self.opening.url()

    def append(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(text)

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> str:
        """The answer to a request; `body` is sent as JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {name.replace("_", "-"): text for name, text in headers.items()}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return str(response.read().decode())

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, "it never came"
            threading.Event().wait(0.02)

    def until_metric(self, line: str) -> None:
        """Wait for a line of `/metrics`."""
        self.until(lambda: line in self.ask("/metrics").splitlines())

    def close(self) -> tuple[int, Snapshot | None]:
        """End it as its screen does; the exit code, and the last snapshot if a person ended it."""
        return self.opening.close(0)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts daemons with the settings given; ends those that still run."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    started: list[Running] = []

    def begin(**given: Any) -> Running:
        started.append(Running(tmp_path, **given))
        return started[-1]

    yield begin
    for each in started:
        if not each.opening.ended():
            each.close()
    for number, handler in before.items():
        signal.signal(number, handler)
