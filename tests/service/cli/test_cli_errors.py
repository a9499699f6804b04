"""Whatever a user can mend is one line on stderr, and exit code 2."""

import os
import re
import subprocess
import sys
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
        (
            ("docter", "."),
            "docter: neither a file nor a command; did you mean ldlm-monitor doctor?",
        ),
        (("--once", "repport", "a.log"), "repport: neither a file nor a command; did you mean"),
        (("rules", "chek"), 'Unknown command "chek'),
        (("report", "a.log", "-o", "a.pdf"), '--output a.pdf: cannot write a report as ".pdf"'),
        (("--config", "no.toml", "a.log"), "no.toml: cannot be read (No such file or directory)"),
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


def test_a_complaint_holds_nothing_that_a_terminal_obeys(ask: Ask) -> None:
    answer = ask("parse", "no\x1b]0;title\x07\u202e.log")
    assert answer.err.startswith("ldlm-monitor: no\\x1b]0;title\\x07\\u202e.log: no such file")


@pytest.mark.parametrize("command", ["parse", "replay", "report"])
def test_a_command_without_a_file_says_so(ask: Ask, command: str) -> None:
    answer = ask(command)
    assert answer.code == 2
    assert answer.err.startswith("ldlm-monitor: FILE: no file is named")


def test_a_file_named_like_a_command_is_written_with_its_folder(ask: Ask, folder: Path) -> None:
    (folder / "report").write_text("nothing of ours\n", encoding="utf-8")
    answer = ask("--once", "./report")
    assert answer.code == 2
    assert "No training run was found" in answer.out


def test_a_text_without_a_training_is_an_error_that_says_what_to_try(
    ask: Ask, folder: Path
) -> None:
    (folder / "notes.txt").write_text("bought milk\n", encoding="utf-8")
    answer = ask("--once", "notes.txt")
    assert answer.code == 2
    assert answer.err == (
        "ldlm-monitor: notes.txt: no training run was found; see what is understood of it:"
        " ldlm-monitor parse --stats notes.txt; teach its lines: ldlm-monitor formats learn"
        " notes.txt\n"
    )


@pytest.mark.parametrize("word", ["reports", "docter.log", "./docter", "logs", "doc*"])
def test_a_word_that_may_be_a_coming_file_is_no_mistyped_command(ask: Ask, word: str) -> None:
    assert "did you mean" not in ask("--once", word).err


def test_a_file_whose_name_is_near_a_commands_is_read(ask: Ask, folder: Path) -> None:
    (folder / "docter").write_text("nothing of ours\n", encoding="utf-8")
    assert "did you mean" not in ask("--once", "docter").err


def test_files_may_come_from_the_configuration(ask: Ask, folder: Path) -> None:
    (folder / "ldlm-monitor.toml").write_text('files = ["a.log"]\n', encoding="utf-8")
    (folder / "a.log").write_text("nothing of ours\n", encoding="utf-8")
    assert ask("report").out.count("No training run was found") == 1


def test_a_bug_is_said_to_be_ours(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("ldlm_monitor.service.cli.notify.settings", broken)
    answer = ask("notify", "test")
    assert (answer.code, answer.out) == (1, "")
    assert "a bug of ours: ZeroDivisionError: division by zero (" in answer.err
    assert answer.err.count("\n") == 1
    monkeypatch.setenv("LDLM_LOG_LEVEL", "debug")
    assert "Traceback (most recent call last)" in ask("notify", "test").err


def test_ctrl_c_ends_with_130_and_no_traceback(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ldlm_monitor.service.cli.notify.settings", interrupted)
    answer = ask("notify", "test")
    assert (answer.code, answer.out, answer.err) == (130, "", "")


def test_the_version_is_the_packages(ask: Ask) -> None:
    from ldlm_monitor import __version__

    said = re.escape(f"ldlm-monitor {__version__}, ") + "(with|without) the compiled part\n"
    assert re.fullmatch(said, ask("--version").out)


FULL_DISK = Path("/dev/full")
FORGET_ROOT = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
"""Root may read everything, unless it gives these two rights away."""


def test_a_log_that_may_not_be_read_is_the_users_to_mend(folder: Path) -> None:
    log = folder / "secret.log"
    log.touch(mode=0o000)
    unprivileged = [] if os.geteuid() else FORGET_ROOT
    command = [*unprivileged, sys.executable, "-m", "ldlm_monitor"]
    try:
        denied = subprocess.run([*unprivileged, "cat", log], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("root reads everything, and setpriv is not here")
    assert denied.returncode == 1
    for words in (["--once"], ["parse"], ["replay"], ["report"]):
        done = subprocess.run([*command, *words, log.name], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(b"ldlm-monitor: secret.log: cannot be read (Permission")
        assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(not FULL_DISK.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["parse"], ["replay", "--format", "json"], ["--once"]])
def test_an_output_that_is_full_is_no_bug_of_ours(folder: Path, words: list[str]) -> None:
    (folder / "training_log.jsonl").write_text('{"step": 1, "loss": NaN}\n', encoding="utf-8")
    command = [sys.executable, "-m", "ldlm_monitor", *words, "training_log.jsonl"]
    with FULL_DISK.open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"ldlm-monitor: standard output: cannot be written (No space")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", ["parse", "replay", "report", "--once"])
def test_a_standard_input_that_is_closed_is_said_so(folder: Path, words: str) -> None:
    command = f"'{sys.executable}' -m ldlm_monitor {words} - <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "ldlm-monitor: -: standard input is closed; pipe a log into it, or name files\n"
    )


def test_an_output_that_is_closed_is_not_written_to(folder: Path) -> None:
    (folder / "training_log.jsonl").write_text('{"step": 1, "loss": 2.5}\n', encoding="utf-8")
    command = f"'{sys.executable}' -m ldlm_monitor parse training_log.jsonl >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0


def test_an_example_keeps_its_dots(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDLM_SLACK_WEBHOOK_URL", "x")
    assert ask("notify", "test").err.endswith("=https://hooks.slack.com/services/...\n")
