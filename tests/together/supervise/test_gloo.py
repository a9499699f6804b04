"""Two ranks on gloo under `ldlm-monitor run`, with the default settings: what comes of each fault.

docs/run.md has the table of seconds, which
`pytest -m long tests/together/supervise/test_gloo.py -s` prints.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from ldlm_monitor.host.supervise.run_folder import RunRecord, all_runs
from tests.together.supervise.conftest import RUN, on_terminal, until

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [pytest.mark.live, pytest.mark.trainer]
TRAINING = Path(__file__).with_name("gloo_training.py")
TORCHRUN = (*(sys.executable, "-m", "torch.distributed.run"), "--standalone", "--nproc-per-node=2")
ACTING = (
    *("--on", "hang=stacks,kill", "--on", "nan=kill", "--on", "crash=restart:2"),
    *("--run", "pair"),
)
NOTE = re.compile(r"^(\S+)Z ldlm-monitor run: (.*)$", re.MULTILINE)


class Pair:
    """A run of two ranks that has a fault at a step."""

    def __init__(
        self, fault: str, at: int, steps: int, pace: float, *more: str, flags: tuple[str, ...]
    ) -> None:
        command = (*TORCHRUN, str(TRAINING), fault, str(at), str(steps), str(pace), *more)
        self.process = subprocess.Popen(
            [*RUN, *flags, "--", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    @property
    def record(self) -> RunRecord:
        return next(all_runs())

    @property
    def log(self) -> str:
        return Path(self.record.log).read_text(encoding="utf-8")

    def shows(self, text: str) -> bool:
        return next(all_runs(), None) is not None and text in self.log

    def end(self) -> int:
        """Its exit code; prints when what was done."""
        self.process.communicate(timeout=400)
        until(lambda: not self.record.is_running)
        notes = [(datetime.fromisoformat(at), said) for at, said in NOTE.findall(self.log)]
        for at, said in notes:
            print(f"{(at - notes[0][0]).total_seconds():7.1f} s  {said[:110]}")
        rows = [line.split() for line in Path("times.txt").read_text().splitlines()]
        times = {key: [float(row[2]) for row in rows if row[0] == key] for key in "12"}
        if times["2"]:
            print(f"{times['2'][0] - times['1'][-1]:7.1f} s  from the last step to the next")
        return self.process.returncode


@pytest.fixture
def pair(folder: Path) -> Iterator[type[Pair]]:
    yield Pair
    for each in all_runs():
        if each.is_running:
            os.kill(each.relay, signal.SIGTERM)


def attempts(log: str) -> list[str]:
    return log.split(": attempt ")[1:]


def steps_of(text: str) -> list[int]:
    return [int(step) for step in re.findall(r"^step (\d+)/", text, re.MULTILINE)]


@pytest.mark.long  # each run has it without ranks, in test_acting.py
def test_an_exception_in_the_code_is_decided_stop_and_not_restarted(pair: type[Pair]) -> None:
    run = pair("raise", 3, 20, 0.1, flags=ACTING)
    assert run.end() == 1
    assert "no restart: STOP" in run.log
    assert "TypeError: forward() takes 2 positional arguments" in run.log
    assert len(attempts(run.log)) == 1


@pytest.mark.long
def test_a_rank_that_sleeps_in_backward_is_killed_and_takes_new_steps(pair: type[Pair]) -> None:
    """At a step a second and the learned limit; both ranks sleep, so nobody evaluates."""
    run = pair("hang", 31, 36, 1.0, flags=ACTING)
    assert run.end() == 0
    first, second = attempts(run.log)
    assert "TrainingStalled, --on hang=kill,stacks: SIGTERM" in first
    assert max(steps_of(first)) == 30
    assert steps_of(second) == [31, 32, 33, 34, 35, 36]
    assert (Path(run.record.log).parents[1] / "state").is_dir()


@pytest.mark.long
def test_nan_goes_back_before_it_and_leaves_its_batch_out(pair: type[Pair]) -> None:
    run = pair("nan", 23, 30, 0.5, flags=ACTING)
    assert run.end() == 0
    first, second = attempts(run.log)
    assert "NonFiniteLoss, --on nan=kill: SIGTERM" in first
    assert steps_of(second) == [21, 22, *range(24, 31)]
    assert "loss nan" not in second


@pytest.mark.long
def test_a_rank_that_is_killed_is_started_again(pair: type[Pair]) -> None:
    run = pair("kill", 13, 20, 0.2, flags=ACTING)
    assert run.end() == 0
    first, second = attempts(run.log)
    assert "decided: RESTART" in first
    assert steps_of(second)[0] == 11
    assert steps_of(second)[-1] == 20


@pytest.mark.long
@pytest.mark.parametrize("fault", ["timeout", "deadline"])
def test_what_outlasts_its_deadline_is_started_again(pair: type[Pair], fault: str) -> None:
    """A reduction that gloo gives up, and a program that the training waits for."""
    run = pair(fault, 13, 20, 0.2, flags=ACTING)
    assert run.end() == 0
    first, second = attempts(run.log)
    assert "decided: RESTART" in first
    assert (steps_of(second)[0], steps_of(second)[-1]) == (11, 20)


@pytest.mark.long
def test_ctrl_c_ends_it_for_good(pair: type[Pair]) -> None:
    run = pair("none", 0, 1000, 0.2, flags=ACTING)
    until(lambda: run.shows("step 5/"), seconds=120)
    run.process.send_signal(signal.SIGINT)
    assert run.end() != 0
    assert len(attempts(run.log)) == 1


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small disk, which takes root")
def test_a_full_disk_is_decided_stop(pair: type[Pair], folder: Path) -> None:
    """Its checkpoints fill a disk of a MiB; each has 144 KiB."""
    (folder / "small").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder / "small")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        run = pair("disk", 0, 100, 0.1, str(folder / "small"), flags=ACTING)
        assert run.end() == 1
        assert "no restart: STOP" in run.log
        assert "a file could not be written" in run.log
    finally:
        subprocess.run(["umount", str(folder / "small")], check=True)


@pytest.mark.long
def test_the_training_goes_on_without_its_monitor_and_attach_finds_it(pair: type[Pair]) -> None:
    run = pair("none", 0, 80, 0.5, flags=ACTING)
    until(lambda: run.shows("step 5/"), seconds=120)
    os.kill(monitor_of(run), signal.SIGKILL)
    before = len(steps_of(run.log))
    until(lambda: len(steps_of(run.log)) > before + 5)
    attached = on_terminal([*RUN[:3], "attach", "pair"], typed=[(b"pair_", b"q")])
    assert b"pair_" in attached.stdout
    assert run.end() == 0
    assert steps_of(run.log) == list(range(1, 81))


def monitor_of(run: Pair) -> int:
    """The pid of the process that watches: the front's child, beside the relay."""
    front = run.process.pid
    children = Path(f"/proc/{front}/task/{front}/children").read_text().split()
    (monitor,) = (int(pid) for pid in children if int(pid) != run.record.relay)
    return monitor


@pytest.mark.long
def test_an_evaluation_without_a_word_at_any_step_is_not_killed(pair: type[Pair]) -> None:
    """40 s after steps 37 and 74, beyond the limit of 30 s; rank 0 computes, rank 1 waits."""
    run = pair("evaluation", 37, 80, 1.0, flags=ACTING)
    assert run.end() == 0
    assert len(attempts(run.log)) == 1
    assert steps_of(run.log) == list(range(1, 81))
