"""Commands run, watched and recorded, as one does it at the shell."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.finished.bench_measuring import POLL_SECONDS

pytestmark = pytest.mark.live

TRAINING = """\
import sys, time
held = b"x" * int(float(sys.argv[3]) * 2**20) if len(sys.argv) > 3 else None
for step in range(int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    print(f"step {step} | loss {2 + 1 / (step + 1):.4f} | lr 1e-4")
"""
PYTHON = sys.executable


Ask = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    return tmp_path


def record(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((kept(folder, name) / "record.json").read_text("utf-8"))
    return found


def kept(folder: Path, name: str) -> Path:
    """The folder of the newest run of this name."""
    return max((folder / "state/ldlm-monitor/runs").glob(f"{name}_*"))


def peak(folder: Path, name: str) -> float:
    """The most host memory, bytes."""
    values: list[float] = record(folder, name)["series"]["host_memory_bytes"]["values"]
    return max(values)


def test_a_command_is_run_shown_and_recorded(ask: Ask, folder: Path) -> None:
    answer = ask("bench", "--name", "base", "--", PYTHON, "train.py", "30", "0.1", "64")
    assert answer.code == 0
    assert "step 29 | loss 2.0333" in answer.out
    assert answer.err.startswith("bench base: 29 steps in ")
    found = record(folder, "base")
    assert (found["schema"], found["stopped_by"], found["exit_code"]) == (
        "ldlm.bench/1",
        "command",
        0,
    )
    assert found["series"]["loss"]["steps"] == list(range(30))
    assert peak(folder, "base") > 64 * 2**20


def test_it_is_a_run_by_its_name(ask: Ask, folder: Path) -> None:
    """With the streams, log, record and reports that `run` gives."""
    script = "echo 'step 1/2 loss 3'; echo 'step 2/2 loss 2' >&2"
    answer = ask("bench", "--name", "base", "--", "sh", "-c", script)
    assert answer.out == "step 1/2 loss 3\n"
    assert answer.err.startswith("step 2/2 loss 2\nbench base: 1 step in ")
    (log,) = (folder / "train_logs").glob("base_*.log")
    lines = log.read_text("utf-8").splitlines()
    assert lines[1:3] == ["step 1/2 loss 3", "step 2/2 loss 2"]
    assert lines[3].endswith("the command ended with exit code 0")
    run = json.loads((kept(folder, "base") / "run.json").read_text("utf-8"))
    assert (run["exit_code"], run["surroundings"]["environment"]["PATH"] != "") == (0, True)
    assert "base_" in ask("report", "base").out


def test_each_step_has_its_own_time(ask: Ask, folder: Path) -> None:
    """Not that of a look at the log: there are more times than looks."""
    ask("bench", "--name", "quick", "--quiet", "--", PYTHON, "train.py", "100", "0.02")
    times = record(folder, "quick")["series"]["loss"]["times"]
    assert len(set(times)) > (times[-1] - times[0]) / POLL_SECONDS


def test_memory_is_that_of_all_its_processes(ask: Ask, folder: Path) -> None:
    """Two children, one of them in a session of its own, and each holds 64 MiB."""
    held = f"{PYTHON} -c \"import time; held = b'x' * 2**26; time.sleep(2)\""
    ask("bench", "--name", "two", "--", "sh", "-c", f"{held} & setsid {held} & wait; sleep 0.5")
    assert peak(folder, "two") > 2 * 2**26


def test_a_command_that_tells_no_step_is_said_to(ask: Ask, folder: Path) -> None:
    answer = ask("bench", "--name", "mute", "--", "echo", "nothing of use")
    assert answer.code == 0
    assert "no step was found in the output" in answer.err
    assert ask("compare", "mute", "mute").code == 0


def test_where_no_record_is_kept_the_list_says_so(ask: Ask, folder: Path) -> None:
    answer = ask("bench", "--list")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "no run was measured by bench\n"


def test_it_stops_after_so_many_steps(ask: Ask, folder: Path) -> None:
    command = (PYTHON, "train.py", "100000", "0.005")
    answer = ask("bench", "--name", "few", "--steps", "20", "--quiet", "--", *command)
    assert (answer.code, answer.out) == (0, "")
    found = record(folder, "few")
    assert found["stopped_by"] == "steps"
    assert 20 <= found["steps"] < 200


def test_what_does_not_end_by_itself_is_killed_with_all_that_it_started(
    ask: Ask, folder: Path
) -> None:
    """Its children are deaf to SIGTERM, and one has left its process group."""
    script = "trap '' TERM; setsid sleep 98.7 & sleep 98.7 & sleep 98.7"
    limits = ("--seconds", "0.5", "--grace", "0.3")
    assert ask("bench", "--name", "deaf", *limits, "--", "sh", "-c", script).code == 0
    found = record(folder, "deaf")
    assert (found["stopped_by"], found["exit_code"]) == ("seconds", -signal.SIGKILL)
    assert not [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x0098.7" in _bytes(path)
    ]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_exit_code_of_a_command_is_passed_on(ask: Ask, folder: Path) -> None:
    assert ask("bench", "--name", "bad", "--", "sh", "-c", "exit 7").code == 7
    assert ask("bench", "--name", "dead", "--", "sh", "-c", "kill -9 $$").code == 137
    assert record(folder, "dead")["exit_code"] == -9


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_command_as_alone_and_keeps_the_record(
    folder: Path, number: signal.Signals, code: int
) -> None:
    # What a shell starts in the background ignores SIGINT, and passes that on.
    command = ["env", "--default-signal=INT"]
    command += [PYTHON, "-m", "ldlm_monitor", "bench", "--name", "cut", "--"]
    with subprocess.Popen(
        [*command, PYTHON, "train.py", "100000", "0.01"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, number)
        process.stdout.read()
        assert process.wait(30) == code
    assert record(folder, "cut")["stopped_by"] == "interrupt"


def test_a_reader_that_goes_away_ends_the_command_as_alone(folder: Path) -> None:
    command = [PYTHON, "-m", "ldlm_monitor", "bench", "--name", "piped", "--"]
    with subprocess.Popen(
        [*command, "sh", "-c", "while echo step 1; do sleep 0.1; done 2>&-; exit 9"],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) in (9, 141)  # as the shell takes a closed pipe
    assert record(folder, "piped")["stopped_by"] == "command"


def test_numbers_that_it_writes_into_a_file_are_read_and_old_ones_are_not(
    ask: Ask, folder: Path
) -> None:
    rows = folder / "saved/one/training_log.jsonl"
    rows.parent.mkdir(parents=True)
    rows.write_text('{"step": 900, "loss": 9.0}\n', encoding="utf-8")
    script = 'for n in 0 1 2; do echo "{\\"step\\": $n, \\"loss\\": 1.5}" >> "$0"; sleep 0.2; done'
    ask("bench", "--name", "rows", "--", "sh", "-c", script, str(rows))
    assert record(folder, "rows")["series"]["loss"]["steps"] == [0, 1, 2]


def test_records_are_listed_and_compared_by_name(ask: Ask, folder: Path) -> None:
    (folder / "timed.py").write_text(
        "import json, sys\n"
        "for n in range(60):\n"
        "    print(json.dumps({'step': n, 'loss': 2.5, 'step_time_ms': float(sys.argv[1])}))\n",
        encoding="utf-8",
    )
    for name, milliseconds in (("slow", "20"), ("quick", "10")):
        ask("bench", "--name", name, "--", PYTHON, "timed.py", milliseconds)
    listed = ask("bench", "--list").out.splitlines()
    assert [line.split()[0] for line in listed] == ["slow", "quick"]
    found = json.loads(ask("compare", "slow", "quick", "--json").out)
    (row,) = [row for row in found["rows"] if row["quantity"] == "step_seconds"]
    assert row["cells"][1]["verdict"] == "better"
    (loss,) = [row for row in found["rows"] if row["at"].startswith("at equal step")]
    assert loss["cells"][1]["change"] == 0


def test_memory_counts_while_steps_are_taken(ask: Ask, folder: Path) -> None:
    """Not before, while a command loads, and not after it."""
    (folder / "late.py").write_text(
        "import time\n"
        "held = b'x' * (200 * 2**20)\n"
        "time.sleep(2)\n"
        "del held\n"
        "for n in range(40):\n"
        "    time.sleep(0.05)\n"
        "    print(f'step {n} | loss 2.0 | lr 1e-4')\n",
        encoding="utf-8",
    )
    ask("bench", "--name", "late", "--", PYTHON, "late.py")
    assert peak(folder, "late") > 200 * 2**20
    found = json.loads(ask("compare", "late", "late", "--json").out)
    (row,) = [row for row in found["rows"] if row["quantity"] == "host_memory_bytes"]
    assert row["cells"][0]["value"] < 100 * 2**20


def test_a_record_is_never_overwritten_and_the_newest_of_a_name_is_compared(
    ask: Ask, folder: Path
) -> None:
    for steps in ("3", "5"):
        ask("bench", "--name", "twice", "--", PYTHON, "train.py", steps, "0.01")
    assert [line.split()[0] for line in ask("bench", "--list").out.splitlines()] == ["twice"] * 2
    found = json.loads(ask("compare", "twice", "twice", "--json").out)
    assert [run["last_step"] for run in found["runs"]] == [4, 4]


def test_a_record_is_compared_wherever_it_lies(ask: Ask, folder: Path) -> None:
    ask("bench", "--name", "x", "--quiet", "--", PYTHON, "train.py", "5", "0")
    shutil.copytree(kept(folder, "x"), "here")
    assert ask("compare", "here", "here/record.json").code == 0


def test_a_command_that_does_not_exist_ends_as_in_a_shell(ask: Ask, folder: Path) -> None:
    answer = ask("bench", "--name", "x", "--", "no-such-command")
    assert (answer.code, answer.out) == (127, "")
    assert answer.err.startswith("ldlm-monitor: no-such-command: cannot be started (")
    assert ask("bench", "--list").out == ""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--name", "x"), "COMMAND: is missing"),
        (("--", "true"), "--name: is missing"),
        (("--name", "../x", "--", "true"), "../x: is no name for a run"),
        (("--name", "x", "--steps", "0", "--", "true"), 'Invalid value "0" for --steps'),
        (("--name", "x", "--seconds", "nan", "--", "true"), 'Invalid value "nan" for --seconds'),
        (("--name", "x", "--grace", "-1", "--", "true"), 'Invalid value "-1.0" for --grace'),
    ],
)
def test_a_wrong_command_line_is_one_clear_line(
    ask: Ask, folder: Path, words: tuple[str, ...], line: str
) -> None:
    """And leaves nothing behind."""
    answer = ask("bench", *words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"ldlm-monitor: {line}")
    assert not (folder / "state").exists()


def test_a_secret_of_the_command_line_is_not_in_the_record(ask: Ask, folder: Path) -> None:
    ask("bench", "--name", "secret", "--", "echo", "--api-key=sk-abcdefghijklmnop1234")
    assert "abcdefghijklmnop" not in json.dumps(record(folder, "secret"))
