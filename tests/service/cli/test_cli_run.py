"""What `run` and `stop` refuse before anything is started or ended."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.command_line import Answer

Ask = Callable[..., Answer]


@pytest.fixture(autouse=True)
def no_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "flood=kill", "--", "touch", "started"), "--on flood=kill"),
        (("--budget", "many", "--", "touch", "started"), "--budget many"),
        (("--screen", "--", "touch", "started"), "--screen: the screen needs a terminal"),
        (("--interval", "no", "--", "touch", "started"), "interval"),
    ],
)
def test_a_mistake_ends_it_before_the_command_starts(
    ask: Ask, folder: Path, words: tuple[str, ...], said: str
) -> None:
    answer = ask("run", *words)
    assert answer.code == 2
    assert said in answer.err
    assert [each.name for each in folder.iterdir()] == []


def test_a_run_that_nobody_started_cannot_be_stopped_or_shown(ask: Ask) -> None:
    answer = ask("stop", "gpt2")
    assert answer.code == 2
    assert "gpt2: no run has this name" in answer.err
