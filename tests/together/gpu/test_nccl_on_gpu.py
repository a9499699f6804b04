"""What only NCCL can show: a collective that hangs, its flight recorder, and RAS.

NCCL refuses two ranks on one device, so the hang is that of one rank, whose collective waits in
a stream that is busy.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from ldlm_monitor.finished.playback.log_replay import Replay  # noqa: E402
from ldlm_monitor.host.probe.flight_recorder import read  # noqa: E402
from ldlm_monitor.service.config import Settings  # noqa: E402

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no GPU is here: just gpu runs this where one is"
    ),
]

ONE_RANK = """
import datetime, sys
import torch
import torch.distributed as dist
from ldlm_monitor.host.probe.nccl_ras import address_of, ask

device = torch.device("cuda", 0)
dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=10))
value = torch.ones(1 << 20, device=device)
dist.all_reduce(value)
torch.cuda.synchronize()
"""
ASKS = """
print(ask(address_of(sys.argv[1])))
dist.destroy_process_group()
"""
HANGS = """
torch.cuda._sleep(10**11)  # clocks: about a minute, in which the watchdog's ten seconds pass
dist.all_reduce(value)
torch.cuda.synchronize()
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run(program: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A rank alone; its stdout and stderr."""
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, "-c", ONE_RANK + program, *arguments],
        env={**os.environ, **place, "MASTER_PORT": str(free_port()), **environment},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_the_flight_recorder_names_the_collective_that_hangs_and_the_log_is_an_alert(
    tmp_path: Path,
) -> None:
    done = run(
        HANGS, TORCH_FR_BUFFER_SIZE="2000", TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/trace_rank_",
        TORCH_NCCL_DUMP_ON_TIMEOUT="1",
    )  # fmt: skip
    assert done.returncode != 0
    *_, last = read(tmp_path / "trace_rank_0", 0).entries
    assert (last.operation, last.completed) == ("all_reduce", False)
    log = tmp_path / "train.log"
    log.write_text(done.stderr)
    fired = {each.alert for each in Replay(Settings(files=(str(log),))).transitions()}
    assert "NcclTimeout" in fired


def test_ras_answers_and_accuses_nobody_in_a_job_that_is_well() -> None:
    address = f"127.0.0.1:{free_port()}"
    done = run(ASKS, address, NCCL_RAS_ENABLE="1", NCCL_RAS_ADDR=address)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[]"
