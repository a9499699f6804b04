"""Training programs of a few lines, as processes of their own."""

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ldlm_callback import HealthCallback

DEADLINE_SECONDS = 120.0
BEGIN = "from ldlm_callback import HealthCallback\nimport os, sys, time, signal\n"


class Training:
    """A process that trains with the callback, writing into `out`."""

    def __init__(self, program: str, out: Path) -> None:
        self.out = out
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEGIN + textwrap.dedent(program), str(out)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def said(self, word: str) -> None:
        """Wait until the program printed a line that is this word."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"it never said {word}: {self.end()}")

    def end(self) -> tuple[int, str]:
        """Wait for its end; exit code and what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, errors

    def rows(self, rank: int = 0) -> list[dict[str, Any]]:
        return rows(self.out / f"health_rank{rank}.jsonl")


@pytest.fixture
def health(tmp_path: Path) -> Iterator[Callable[..., HealthCallback]]:
    """Callbacks of this very process; hooks that the process has but once are left alone."""
    made: list[HealthCallback] = []

    def make(out: Path = tmp_path, **wishes: Any) -> HealthCallback:
        quiet = {"run": "run_a", "stack_signal": None, "gpu": False, "sigterm": False}
        made.append(HealthCallback(out=out, **{**quiet, **wishes}))
        return made[-1]

    yield make
    for callback in made:
        callback.close()


@pytest.fixture
def reported(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """The rows of a rank's file, or those of one type."""

    def read(kind: str | None = None, rank: int = 0) -> list[dict[str, Any]]:
        found = rows(tmp_path / f"health_rank{rank}.jsonl")
        return [row for row in found if kind in (None, row["type"])]

    return read


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, each of which must be strict JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


@pytest.fixture
def monitor_reads() -> None:
    """For tests in which the monitor reads the files: ldlm-callback stands without it."""
    pytest.importorskip("ldlm_monitor", reason="the monitor is not installed")


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    started: list[Training] = []

    def start(program: str, out: Path = tmp_path / "saved/run") -> Training:
        started.append(Training(program, out))
        return started[-1]

    yield start
    for training in started:
        if training.process.poll() is None:
            training.process.kill()
        training.process.communicate()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait until something is so."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it never came to be so"
            time.sleep(0.01)

    return wait
