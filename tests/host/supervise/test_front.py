"""A command behind its front and its relay is as it is alone, and has a log beside."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FRONT = """
import sys
from pathlib import Path
from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.host.supervise.launch import start
try:
    record, front, monitor = start(tuple(sys.argv[1:]), "train", Path("logs"), echo=True)
except UsageError as error:
    sys.exit(str(error))
monitor.close()
sys.exit(front.wait(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def begun(*command: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", FRONT, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(*command: str, typed: str = "") -> tuple[int, str, str]:
    with begun(*command) as process:
        out, err = process.communicate(typed)
        return process.returncode, out, err


def log() -> list[str]:
    """The log's lines, ours without their times."""
    (path,) = Path("logs").iterdir()
    lines = path.read_text().splitlines()
    return [line.partition(" ldlm-monitor run: ")[2] or line for line in lines]


def test_output_goes_to_its_streams_and_into_one_log() -> None:
    script = "read x; echo out $x; sleep 0.1; echo err >&2; exit 3"
    assert ran("sh", "-c", script, typed="in\n") == (3, "out in\n", "err\n")
    begins, *lines, ends = log()
    assert begins == f"attempt 1 starts: {json.dumps(['sh', '-c', script])}"
    assert lines == ["out in", "err"]
    assert ends == "the command ended with exit code 3"


def test_the_run_has_a_record_of_its_command_without_secrets(tmp_path: Path) -> None:
    ran("true", "--password", "hunter2")
    (record,) = tmp_path.glob("state/ldlm-monitor/runs/train_*/run.json")
    kept = json.loads(record.read_text())
    assert kept["command"] == ["true", "--password", "[redacted]"]
    assert (kept["directory"], kept["name"]) == (str(tmp_path), record.parent.name)
    assert Path(kept["log"]).exists()
    assert kept["relay"] > 0
    assert kept["relay_started"] > 0
    assert "hunter2" not in "".join(log())


def test_the_command_knows_its_run() -> None:
    _, out, _ = ran("sh", "-c", "echo $LDLM_RUN $LDLM_ATTEMPT $PYTHONUNBUFFERED")
    name, *rest = out.split()
    assert name.startswith("train_")
    assert rest == ["1", "1"]


@pytest.mark.parametrize(("program", "code"), [("./none", 127), ("./plain", 126)])
def test_a_program_that_cannot_be_started_ends_as_in_a_shell(program: str, code: int) -> None:
    Path("plain").touch()
    status, _, err = ran(program)
    assert status == code
    assert err.startswith(f"ldlm-monitor: {program}: cannot be started (")
    assert log()[-1].startswith(f"the command ended with exit code {code}: ")


@pytest.mark.parametrize(
    ("command", "why"), [((), "COMMAND: is missing"), (("-x",), "-x: is no flag")]
)
def test_what_is_no_command_is_refused(command: tuple[str, ...], why: str) -> None:
    status, _, err = ran(*command)
    assert status == 1
    assert err.startswith(why)
    assert not Path("state").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_front_reaches_the_command(number: signal.Signals) -> None:
    script = f"trap 'echo got; exit 5' {number.value}; echo ready; while :; do sleep 0.05; done"
    with begun("sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, _ = process.communicate()
    assert (process.returncode, out) == (5, "got\n")
    assert f"asked to end by {number.name}" in log()


def test_a_command_that_a_signal_ends_gives_the_code_of_shells() -> None:
    status, _, _ = ran("sh", "-c", "kill -KILL $$")
    assert status == 137
    assert log()[-1] == "the command was ended by signal 9 (SIGKILL)"


def test_other_signals_of_the_front_are_passed_on_without_a_note() -> None:
    script = "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.05; done"
    with begun("sh", "-c", script) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, "got\n")
    assert not any("asked" in line for line in log())


def test_much_output_is_neither_lost_nor_out_of_order() -> None:
    status, out, _ = ran("sh", "-c", "seq 1 20000")
    assert status == 0
    assert out == "".join(f"{number}\n" for number in range(1, 20001))
    assert log()[1:-1] == out.splitlines()


def test_a_process_that_is_left_behind_does_not_hold_the_end_back() -> None:
    status, out, _ = ran("sh", "-c", "echo $$; sleep 2 & exit 4")
    assert status == 4
    assert out.strip().isdecimal()
