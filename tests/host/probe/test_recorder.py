"""The flight recorder of living ranks, over gloo: who did not join the collective."""

import importlib.util
import json
import socket
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from ldlm_monitor.host.probe.heartbeat import pages
from ldlm_monitor.host.probe.stacks import fetch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)
TRAINER = """
import ctypes, os, sys
os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
import torch
import torch.distributed as dist
from ldlm_callback import HealthCallback

rank, out = int(sys.argv[1]), sys.argv[2]
os.makedirs(out, exist_ok=True)
store = dist.FileStore(out + "/store", 2)
dist.init_process_group("gloo", rank=rank, world_size=2, store=store)
callback = HealthCallback(run="run_a", out=out, flight_recorder=True, gpu=False)
for step in range(5):
    dist.all_reduce(torch.ones(2))
    callback.on_step(step)
print("there", flush=True)
if rank == 1:
    mutex = ctypes.create_string_buffer(64)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)  # for ever, and the GIL is held
dist.all_reduce(torch.ones(2))
"""


@pytest.fixture
def ranks(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINER))
    out = tmp_path / "saved/run_a"
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "there\n"
    yield list(pages([out]))
    for each in started:
        each.kill()
        each.communicate()


def enqueued(data: bytes | None) -> int:
    assert data is not None
    (status,) = json.loads(data)["pg_status"].values()
    return int(status["last_enqueued_collective"])


def test_ranks_tell_which_collective_they_came_to_even_while_the_gil_is_held(
    ranks, tmp_path
) -> None:
    first, second = ranks
    assert second.recorder
    assert enqueued(fetch(second, 10.0)) == 5
    assert enqueued(fetch(first, 10.0)) in (5, 6)  # 6 once it waits
    # A socket of another process is not asked.
    assert fetch(replace(first, recorder=second.recorder), 5.0) is None
    ours = socket.socket(socket.AF_UNIX)
    ours.bind(str(tmp_path / "ours.sock"))
    ours.listen()
    assert fetch(replace(first, recorder=str(tmp_path / "ours.sock")), 1.0) is None
    ours.close()
    assert fetch(replace(first, recorder=str(tmp_path / "none.sock")), 1.0) is None
    assert fetch(replace(first, recorder=""), 1.0) is None
