"""What a user sees of a command under `ldlm-monitor run` is what it shows alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ldlm_monitor.host.supervise.run_folder import all_runs, name_of
from tests.together.supervise.conftest import RUN, Ran, alone, on_terminal, signal_all, until

pytestmark = pytest.mark.live

BARS = r'for i in 1 2 3; do printf "\r%d/3 [#  ]" $i >&2; sleep 0.02; done; echo; echo done'
SIZE = "import os, sys; print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(0))"
BINARY = "import os; os.write(1, bytes(range(256)) * 4000); os.write(2, b'x' * 300000)"


@pytest.mark.parametrize(
    "command",
    [
        ("sh", "-c", "echo out; echo err >&2; printf cut; exit 3"),
        ("sh", "-c", BARS),
        (sys.executable, "-c", BINARY),
        ("sh", "-c", "kill -9 $$"),
        ("sh", "-c", "kill -TERM $$"),
        ("cat",),
        ("true",),
    ],
    ids=["streams", "bars", "binary", "killed", "terminated", "stdin", "nothing"],
)
def test_streams_and_code_of_a_piped_command_are_its_own(
    command: tuple[str, ...], run: Callable[..., Ran]
) -> None:
    text = b"typed\n" * 50000
    assert run(*command, stdin=text).seen == alone(*command, stdin=text).seen


@pytest.mark.parametrize(
    "command",
    [
        ("sh", "-c", "echo out; echo err >&2; exit 5"),
        ("sh", "-c", BARS),
        (sys.executable, "-c", SIZE),
        ("sh", "-c", "stty -a"),
    ],
    ids=["streams", "bars", "size", "modes"],
)
def test_a_command_on_a_terminal_has_a_terminal(command: tuple[str, ...], folder: Path) -> None:
    bare, supervised = on_terminal(command), on_terminal([*RUN, "--", *command])
    assert supervised.seen == bare.seen
    until(lambda: all(each.exit_code is not None for each in all_runs()))


def test_what_is_typed_goes_to_the_command(folder: Path) -> None:
    command = ("sh", "-c", "printf 'name? '; read name; echo hello $name")
    typed = [(b"name? ", b"me\r")]
    assert on_terminal([*RUN, "--", *command], typed).seen == on_terminal(command, typed).seen


def test_ctrl_c_on_the_terminal_interrupts_the_command(folder: Path) -> None:
    command = ("sh", "-c", "trap 'echo caught; exit 7' INT; echo ready; sleep 30 & wait")
    typed = [(b"ready", b"\x03")]
    seen = on_terminal(command, typed).seen
    assert seen[2] == 7
    assert on_terminal([*RUN, "--", *command], typed).seen == seen


def test_ctrl_c_interrupts_the_command_after_its_screen_was_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LDLM_EVALUATION_INTERVAL", "1")
    typed = [(b"Overview", b"q"), (b"goes on", b"\x03")]
    seen = on_terminal([*RUN, "--screen", "--", "sleep", "30"], typed)
    assert seen.code == 130
    assert "asked to end by SIGINT" in Path(next(all_runs()).log).read_text()


@pytest.mark.parametrize("words", ["", " ".join(RUN) + " -- "], ids=["alone", "run"])
def test_ctrl_z_gives_the_shell_its_terminal_until_fg(words: str, folder: Path) -> None:
    code = "import time; print('ready', flush=True); time.sleep(2); print('goes on'); exit(4)"
    (folder / "train.py").write_text(code)
    typed = [
        (b"$ ", f"{words}{sys.executable} train.py\r".encode()),
        (b"ready", b"\x1a"),
        (b"Stopped", b"fg\r"),
        (b"<4>", b"exit\r"),
    ]
    shell = ["env", "PS1=$ ", 'PROMPT_COMMAND=echo "<$?>"', "bash", "--norc", "-i"]
    shown = on_terminal(shell, typed).stdout
    assert b"Stopped" in shown
    assert b"goes on\r\n<4>" in shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_the_command_once(number: signal.Signals, folder: Path) -> None:
    name = number.name.removeprefix("SIG")
    loop = "n=0; while [ $n -lt 20 ]; do n=$((n+1)); sleep 0.05; done; exit 9"
    script = f"trap 'echo got {name}' {name}; echo ready; {loop}"
    with subprocess.Popen([*RUN, "--", "sh", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.read() == f"got {name}\n".encode()
    assert process.returncode == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_to_all_of_ours_reaches_the_command_once_and_ends_none(
    number: signal.Signals, folder: Path
) -> None:
    """A scheduler sends it to each process of a job (Slurm's `--signal=USR1@60`)."""
    name = number.name.removeprefix("SIG")
    loop = "n=0; while [ $n -lt 20 ]; do n=$((n+1)); sleep 0.05; done; exit 9"
    script = f"trap 'echo got {name}' {name}; echo ready; {loop}"
    with subprocess.Popen([*RUN, "--", "sh", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        until(lambda: len(_ours(process.pid)) == 3)
        signal_all(_ours(process.pid), number)
        assert process.stdout.read() == f"got {name}\n".encode()
    assert process.returncode == 9


def _ours(front: int) -> list[int]:
    """A front, its relay and its monitor."""
    return [front, *map(int, Path(f"/proc/{front}/task/{front}/children").read_text().split())]


def test_a_reader_that_leaves_ends_the_command_as_alone(folder: Path) -> None:
    line = f"{' '.join(RUN)} -- yes | head -2"
    done = subprocess.run(
        ["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}}"], capture_output=True, check=False
    )
    assert done.stdout == b"y\ny\n141\n"  # 128 + SIGPIPE


def test_a_command_that_does_not_exist_ends_as_in_a_shell(run: Callable[..., Ran]) -> None:
    ran = run("no-such-command")
    assert ran.code == 127
    assert (
        ran.stderr
        == b"ldlm-monitor: no-such-command: cannot be started (No such file or directory)\n"
    )
    assert ran.record is not None
    report = ran.record.folder / "report.txt"
    until(lambda: report.exists() and bool(report.read_text()))
    assert "STOP (weak): the command could not be started" in report.read_text()


def test_a_mistyped_flag_is_no_command(run: Callable[..., Ran]) -> None:
    ran = run("true", flags=["--onn", "hang=kill"])
    assert (ran.code, ran.record) == (2, None)
    assert ran.stderr == b"ldlm-monitor: --onn: is no flag; --help lists those there are\n"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun --nproc-per-node 8 train.py", "train"),
        ("sbatch --wait job.sh", "job"),
        ("sh -c exit", "exit"),
        ("python -m bench.speed", "bench"),
    ],
)
def test_a_run_is_called_after_what_its_launcher_starts(command: str, name: str) -> None:
    assert name_of(tuple(command.split())) == name


def test_the_log_has_both_streams_line_by_line_and_the_end(run: Callable[..., Ran]) -> None:
    ran = run("sh", "-c", "printf cut; sleep 0.2; echo err >&2; exit 3", flags=["--run", "exp"])
    assert ran.record is not None
    assert ran.record.name.startswith("exp_")
    lines = Path(ran.record.log).read_text().splitlines()
    assert lines[1:3] == ["cut", "err"]
    assert lines[0].endswith(
        'attempt 1 starts: ["sh", "-c", "printf cut; sleep 0.2; echo err >&2; exit 3"]'
    )
    assert lines[3].endswith("ldlm-monitor run: the command ended with exit code 3")


@pytest.mark.parametrize("whom", ["front", "monitor", "both"])
def test_the_command_goes_on_when_its_monitor_is_killed(whom: str, folder: Path) -> None:
    script = "echo ready; sleep 3; echo end; touch over"
    with subprocess.Popen([*RUN, "--", "sh", "-c", script], stdout=subprocess.PIPE) as front:
        assert front.stdout is not None
        assert front.stdout.readline() == b"ready\n"
        if whom != "front":
            (monitor,) = _children(front.pid)
            os.kill(monitor, signal.SIGKILL)
        if whom != "monitor":
            front.kill()
        assert front.stdout.read() == b"end\n"
    assert front.returncode == (0 if whom == "monitor" else -signal.SIGKILL)
    assert (folder / "over").exists()
    (log,) = (folder / "logs").iterdir()
    until(lambda: "exit code 0" in log.read_text())


def _children(pid: int) -> list[int]:
    """The processes that a front started, without the relay."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    relay = b"supervise.relay"
    return [each for each in found if relay not in Path(f"/proc/{each}/cmdline").read_bytes()]
