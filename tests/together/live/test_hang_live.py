"""Ranks with the callback, before the daemon: one hangs with its GIL held, one's disk is full."""

import importlib.util
import subprocess
import sys
import textwrap
import time

import pytest

pytestmark = pytest.mark.live

HANGS = """
import ctypes, sys, time
from ldlm_callback import HealthCallback

mutex = ctypes.create_string_buffer(64)
ctypes.CDLL(None).pthread_mutex_lock(mutex)

def read_batch():
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)

rank, out = int(sys.argv[1]), sys.argv[2]
health = HealthCallback(run="run_a", out=out, rank=rank, world_size=3, gpu=False)
for step in range(1, 60):
    time.sleep(0.05)
    health.on_step(step, loss=1.0 / step)
if rank == 1:
    with health.phase("data"):
        read_batch()
time.sleep(600)
"""
FILLS_THE_DISK = """
import resource, signal, sys, time
from ldlm_callback import HealthCallback

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))
health = HealthCallback(run="run_a", out=sys.argv[2], rank=int(sys.argv[1]), gpu=False)
for step in range(1, 100_000):
    time.sleep(0.01)
    health.on_step(step, loss=1.0 / step)
"""

LEAVES_THE_COLLECTIVE = """
import ctypes, os, sys, time
os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
import torch
import torch.distributed as dist
from ldlm_callback import HealthCallback

rank, out = int(sys.argv[1]), sys.argv[2]
os.makedirs(out, exist_ok=True)
store = dist.FileStore(out + "/store", 2)
dist.init_process_group("gloo", rank=rank, world_size=2, store=store)
health = HealthCallback(run="run_a", out=out, flight_recorder=True, gpu=False)
for step in range(1, 60):
    time.sleep(0.05)
    dist.all_reduce(torch.ones(2))
    health.on_step(step, loss=1.0 / step)
if rank == 1:
    mutex = ctypes.create_string_buffer(64)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)
dist.all_reduce(torch.ones(2))
"""


@pytest.fixture
def follow(tmp_path):
    """Start ranks of a program and a daemon that follows their rows; its lines."""
    started = []

    def start(program: str, ranks: int, limit: float):
        script, out = tmp_path / "train.py", tmp_path / "saved/run_a"
        script.write_text(textwrap.dedent(program))
        (tmp_path / "ldlm-monitor.toml").write_text(f"[stall.limit_seconds]\nrunning = {limit}\n")
        for rank in range(ranks):
            arguments = [sys.executable, str(script), str(rank), str(out)]
            started.append(subprocess.Popen(arguments, stderr=subprocess.DEVNULL))
        daemon = subprocess.Popen(
            [
                *(sys.executable, "-m", "ldlm_monitor", str(out / "*.jsonl"), "--headless"),
                *("--state-dir", str(tmp_path / "state"), "--listen", "127.0.0.1:0"),
                *("--config", "ldlm-monitor.toml", "--interval", "1"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=tmp_path,
        )
        started.append(daemon)
        assert daemon.stdout is not None
        return daemon.stdout

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_a_stall_is_told_with_the_rank_the_phase_and_the_line(follow) -> None:
    reported = next(line for line in follow(HANGS, 3, 12) if "TrainingStalled" in line)
    assert "FIRING" in reported
    assert "hung: rank 1 is at another place than the others, in data after step 59" in reported
    assert "train.py:9 in read_batch" in reported


@pytest.mark.long
def test_a_training_whose_rows_stop_on_a_full_disk_goes_on_by_its_heartbeat(follow) -> None:
    """Two stall limits long, no row came: the second is that of a run that was looked at before.

    With a shorter limit a busy machine has no time for the look before it.
    """
    lines = follow(FILLS_THE_DISK, 1, 12)
    seen = [next(line for line in lines if "run_a" in line)]
    until = time.monotonic() + 2 * 12  # the disk was full within a second
    while time.monotonic() < until:
        seen.append(lines.readline())
    assert not [line for line in seen if "TrainingStalled" in line]


@pytest.mark.long  # tests/host/probe reads a real recorder in each run
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_flight_recorders_of_living_ranks_name_who_did_not_join(follow) -> None:
    reported = next(
        line for line in follow(LEAVES_THE_COLLECTIVE, 2, 12) if "TrainingStalled" in line
    )
    assert "hung: rank 1 is not where the others wait for it, in train after step 59" in reported
    assert "train.py:20 in <module>" in reported
    assert "all_reduce" in reported
