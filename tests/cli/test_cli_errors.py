"""Whatever a user can mend is one line on stderr, and exit code 2."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            (),
            "FILE: no file is named; try 'train_logs/*.log', or set files in ldlm-monitor.toml",
        ),
        (("--onc", "a.log"), "Unknown option: --onc. Did you mean --once?; see ldlm-monitor"),
        (("--interval", "x", "a.log"), '--interval: "x" should be a number; for example --int'),
        (("--fail-on", "all", "a.log"), 'Invalid value "all" for --fail-on. Choose from: "crit'),
        (("rules", "chek"), 'Unknown command "chek'),
        (("report", "a.log", "-o", "a.html"), '--output a.html: cannot write a report as ".html"'),
        (("--config", "no.toml", "a.log"), "no.toml: no such file; name a TOML file with --conf"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    ask: Ask, words: tuple[str, ...], line: str
) -> None:
    answer = ask(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"ldlm-monitor: {line}")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("command", [["--once"], ["parse"], ["replay"], ["report"]])
@pytest.mark.parametrize("pattern", ["missing.log", "missing/*.log"])
def test_a_finished_input_must_be_there(ask: Ask, command: list[str], pattern: str) -> None:
    """Following waits for it; these do not."""
    answer = ask(*command, pattern)
    assert (answer.code, answer.out) == (2, "")
    assert pattern in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("command", ["parse", "replay", "report"])
def test_a_command_without_a_file_says_so(ask: Ask, command: str) -> None:
    answer = ask(command)
    assert answer.code == 2
    assert answer.err.startswith("ldlm-monitor: FILE: no file is named")


def test_a_file_named_like_a_command_is_written_with_its_folder(ask: Ask, folder: Path) -> None:
    (folder / "report").write_text("nothing of ours\n", encoding="utf-8")
    answer = ask("--once", "./report")
    assert answer.code == 0
    assert "No training run was found" in answer.out


def test_files_may_come_from_the_configuration(ask: Ask, folder: Path) -> None:
    (folder / "ldlm-monitor.toml").write_text('files = ["a.log"]\n', encoding="utf-8")
    (folder / "a.log").write_text("nothing of ours\n", encoding="utf-8")
    assert ask("report").code == 0


def test_a_bug_is_said_to_be_ours(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("ldlm_monitor.cli.notify.settings", broken)
    answer = ask("notify", "test")
    assert (answer.code, answer.out) == (1, "")
    assert "a bug of ours: ZeroDivisionError: division by zero (" in answer.err
    assert answer.err.count("\n") == 1
    monkeypatch.setenv("LDLM_LOG_LEVEL", "debug")
    assert "Traceback (most recent call last)" in ask("notify", "test").err


def test_ctrl_c_ends_with_130_and_no_traceback(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ldlm_monitor.cli.notify.settings", interrupted)
    answer = ask("notify", "test")
    assert (answer.code, answer.out, answer.err) == (130, "", "")


def test_the_version_is_the_packages(ask: Ask) -> None:
    from ldlm_monitor import __version__

    assert ask("--version").out == f"ldlm-monitor {__version__}\n"
