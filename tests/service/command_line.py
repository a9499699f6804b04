"""Command lines that run in the process of the tests."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ldlm_monitor.service.cli import main


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs `ldlm-monitor` with the words given."""

    def run(*words: str) -> Answer:
        capfd.readouterr()
        code = main(words)
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return run
