"""Every command of ldlm-monitor in README and docs is accepted and, where it can be, run.

What is run has the exit code that it should have, and writes the files that it names. Those that
need another machine or service are named in `NOT_RUN`, with the reason.
"""

import contextlib
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from ldlm_monitor.service.cli.command_line import app
from ldlm_monitor.service.cli.flags import hide_dash

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SKILL = ROOT / "skills/ldlm-monitor/SKILL.md"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("**/*.md")), SKILL]
_BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.M | re.S)
_COMMAND = re.compile(r"(?:^|[;&|(] *)(?:\S*/)?ldlm-monitor (?=\S)(.*)")
_ENDS = {"|", ">", ">>", "2>", "2>&1", "&&", "||", ";", "&", "<"}


def commands() -> list[tuple[str, str]]:
    """The page and the words after the program's name of each command in a block of shell."""
    found = []
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if not line.lstrip().startswith("#") and (match := _COMMAND.search(line.strip())):
                    found.append((str(page.relative_to(ROOT)), match.group(1)))
    return found


def words(text: str) -> list[str]:
    """The words of a command up to a comment, a pipe or a redirection."""
    given: list[str] = []
    for word in shlex.split(text, comments=True):
        if word in _ENDS:
            break
        given.append(word)
        if word.endswith(";"):
            given[-1] = word[:-1]
            break
    return given


def test_the_pages_show_commands() -> None:
    assert len(commands()) > 50


@pytest.mark.parametrize(("page", "text"), commands())
def test_a_command_of_the_docs_is_accepted(page: str, text: str) -> None:
    app.parse_args(hide_dash(words(text)), exit_on_error=False, print_error=False)


NOT_RUN = {
    "notify test": "needs a Slack; tests/service/cli/test_cli_notify.py sends to one here",
    "service install": "needs systemd; tests/together/deploy/test_user_service.py starts one",
    "run -- torchrun": "needs torch and eight ranks; tests/together/supervise runs other commands",
    "run -- sbatch": "needs Slurm; tests/together/live/test_slurm.py",
    "doctor --live 12345": "needs a process of that number; tests/doctor reads real ones",
    "mcp --url": "needs a monitor on port 9847; tests/service/mcp asks one",
    "attach https://trainer:9847": "needs a host of that name; tests/together/live/test_https.py",
}
"""Beginnings of the commands that no test runs as they stand, and why."""
FAILED = 3
INTERRUPTED = 130
CODES = {
    "--once": FAILED,
    "--headless": INTERRUPTED,
    "replay --rules": FAILED,
    "replay --truth": FAILED,
    "report": FAILED,
    "wait-for examples": FAILED,
}
"""Exit codes but 0: two of the three example runs failed; Ctrl-C ends what has no screen."""
SHOWN = (b"083451", b"metrics on")
KEYS = {
    r"'\S+\.log'|--formats|replay --tui": (SHOWN, b"q"),
    "--headless": (SHOWN, b"\x03"),
    r"doctor \S+ --fix": ((b"[y/N]",), b"y\n"),
}
"""Commands that need a terminal: what they show when they are ready, and what is typed then."""
QUICK = {"docs/doctor.md", "docs/formats.md", "docs/index.md", "docs/prometheus.md", "docs/run.md"}
"""Pages whose commands are run each time; those of the others take minutes altogether."""
WRITTEN = re.compile(r"(?:>|-o|--plot|--sarif|--record|export) (\S+)")
TRAIN = """for step in $(seq 1 250); do echo "step $step/250 loss 2.$((999 - step))"; sleep 0.002
done
"""
LAUNCH = "#!/bin/bash\nexport NCCL_BLOCKING_WAIT=1\ntorchrun --nproc-per-node 8 train.py\n"
RULE_TEST = """rule_files: [mine.yml]
tests:
  - interval: 1m
    input_series: [{series: 'ldlm_eval_loss{run="a"}', values: 1x20 2x30}]
    alert_rule_test: [{alertname: EvalLossRises, eval_time: 25m, exp_alerts: []}]
"""


def runnable(page: str) -> list[str]:
    """The different commands of a page that are run, in their order."""
    found = dict.fromkeys(text for name, text in commands() if name == page)
    return [text for text in found if not text.startswith(tuple(NOT_RUN))]


@pytest.mark.parametrize("begin", NOT_RUN)
def test_a_reason_not_to_run_is_of_a_command(begin: str) -> None:
    assert any(text.startswith(begin) for _, text in commands())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages mention: logs, a training, a launch, rules and labels."""
    for name in ("examples", "rules"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("train_logs", "tutorial"):
        shutil.copytree(ROOT / "examples/train_logs", tmp_path / name)
    (failed,) = (ROOT / "examples/train_logs").glob("*083451*")
    for name in ("train.log", "your.log", "tutorial/train.log"):
        shutil.copy(failed, tmp_path / name)
    (tmp_path / "train.sh").write_text(TRAIN)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/train.sh").write_text(LAUNCH)
    (tmp_path / "truth.json").write_text(shown("backtest.md", "json"))
    (tmp_path / "mine.test.yml").write_text(RULE_TEST)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LDLM_LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("TERM", "xterm-256color")
    return tmp_path


def shown(page: str, language: str) -> str:
    """The first block in a language on a page."""
    (first, *_) = re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    return str(first)


def prepare(text: str, place: Path) -> None:
    """Make what the page has its reader make before this command."""
    if text.startswith("rules check mine.yml"):
        (place / "mine.yml").write_text(shown("writing.md", "yaml"))
    elif text.startswith("formats test mine.yml your.log"):
        assert run("formats learn your.log > mine.yml", place) == 0
    elif "--diff main" in text:
        commit = "git -c user.name=a -c user.email=a@b commit -qm 1"
        made = f"git init -qb main && git add scripts && {commit}"
        subprocess.run(made, shell=True, check=True, cwd=place)


def run(text: str, place: Path) -> int:
    """The exit code of a command in bash, whose output must show no bug."""
    done = subprocess.run(
        ["bash", "-c", f"ldlm-monitor {text}"], cwd=place, capture_output=True, text=True,
        check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "a bug of ours" not in done.stderr
    return done.returncode


def type_into(text: str, place: Path, ready: tuple[bytes, ...], keys: bytes) -> int:
    """The exit code of a command in a terminal, where the keys are typed once it is ready."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", "bash", "-c", f"exec ldlm-monitor {text}"],
        cwd=place, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    output = b""
    with contextlib.suppress(OSError):  # how a terminal's end is read
        while not any(word in output for word in ready):
            output += os.read(ours, 65536)
        os.write(ours, keys)
        while os.read(ours, 65536):
            pass
    os.close(ours)
    assert any(word in output for word in ready), output
    return process.wait(120)


@pytest.mark.live
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page in QUICK else pytest.mark.long)
        for page in sorted({page for page, _ in commands()})
        if runnable(page)
    ],
)
def test_the_commands_of_a_page_do_what_they_are_for(page: str, place: Path) -> None:
    for text in runnable(page):
        prepare(text, place)
        for pattern, (ready, keys) in KEYS.items():
            if re.match(pattern, text):
                code = type_into(text, place, ready, keys)
                break
        else:
            code = run(text, place)
        expected = next((code for begin, code in CODES.items() if text.startswith(begin)), 0)
        assert code == expected, text
        assert all((place / name).exists() for name in WRITTEN.findall(text)), text
