"""A benchmark reads what its command writes, measures it, and ends it at a limit."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ldlm_monitor.finished.bench_measuring import BenchLimits, BenchReader, Measuring
from ldlm_monitor.host.supervise.streams import Link

TRAINING = """
import json, signal, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
last = int(sys.argv[2])
with open(sys.argv[1], "a", buffering=1) as log:
    step = 0
    while step < last:
        print(json.dumps({"step": step, "loss": 1.0 + step, "time": time.time()}), file=log)
        step += 1
        time.sleep(0.02)
"""


@contextmanager
def relayed(log: Path, steps: int, *words: str) -> Iterator[Link]:
    """Our end of the link to a relay that runs the training and says what becomes of it."""
    ours, its = socket.socketpair()
    command = [sys.executable, "-c", TRAINING, str(log), str(steps), *words]
    process = subprocess.Popen(command, start_new_session=True)

    def relay() -> None:
        its.sendall(json.dumps({"started": process.pid}).encode() + b"\n")
        code = process.wait()
        its.sendall(json.dumps({"ended": code}).encode() + b"\n")
        its.recv(1)  # until it is released
        its.sendall(b'{"over": true}\n')
        its.close()

    thread = threading.Thread(target=relay)
    thread.start()
    try:
        yield Link(ours.detach())
    finally:
        process.kill()
        thread.join()


def reader(log: Path, *also: str) -> BenchReader:
    made = BenchReader("r", (), also, lambda _: None)
    made.begin(log)
    return made


@pytest.fixture(autouse=True)
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def measured(log: Path, limits: BenchLimits, steps: int, *words: str) -> Measuring:
    log.touch()
    made = reader(log)
    with relayed(log, steps, *words) as link:
        measuring = Measuring(link, made, limits)
        measuring.follow()
    return measuring


def test_a_command_that_ends_by_itself_is_read_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "train.jsonl"
    found = measured(log, BenchLimits(None, None, 5.0), 20)
    record = found.record("r", ["python", "train.py"], 100.0)
    assert (found.stopped_by, found.exit_code) == ("command", 0)
    assert (record.name, record.command, record.started_at) == ("r", ("python", "train.py"), 100.0)
    assert (record.stopped_by, record.exit_code, record.steps) == ("command", 0, 19)
    assert record.series["loss"].values == tuple(1.0 + step for step in range(20))
    assert record.series["steps"].steps == tuple(range(20))
    assert record.exact
    times = record.series["steps"].times
    assert times == tuple(sorted(times))
    assert record.seconds > 0
    memory = record.series["host_memory_bytes"]
    assert min(memory.values) > 2**20
    assert len(memory.times) == len(memory.steps) > 0


def test_a_command_is_ended_after_so_many_steps(tmp_path: Path) -> None:
    found = measured(tmp_path / "train.jsonl", BenchLimits(5, None, 30.0), 100_000)
    assert (found.stopped_by, found.exit_code) == ("steps", -15)
    assert found.record("r", [], 0.0).steps >= 5


def test_a_command_is_ended_after_so_long_and_killed_if_it_goes_on(tmp_path: Path) -> None:
    found = measured(tmp_path / "train.jsonl", BenchLimits(None, 1.0, 0.2), 100_000, "stubborn")
    assert (found.stopped_by, found.exit_code) == ("seconds", -9)
    assert found.seconds >= 1.0


def test_of_files_that_were_there_only_what_is_added_is_read(tmp_path: Path) -> None:
    log, also = tmp_path / "train.log", tmp_path / "metrics.jsonl"
    log.touch()
    also.write_text('{"step": 1, "loss": 9.0}\n')
    made = reader(log, "metrics.jsonl")
    made.search()
    with also.open("a") as file:
        file.write('{"step": 2, "loss": 8.0}\n{"step": 3, "loss": 7.0}')
    made.finish(time.time())
    loss = made.run.column("loss")
    assert loss is not None
    assert ([*loss.steps], [*loss.values]) == ([2, 3], [8.0, 7.0])
