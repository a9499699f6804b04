"""Two ranks that ask the callback whether to stop, under `ldlm-monitor run --on nan=stop`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ldlm_monitor.host.supervise.run_folder import all_runs
from tests.together.supervise.conftest import RUN, until

pytestmark = pytest.mark.live

# Each step waits for the other rank, as a collective does: if one leaves before it, both fail.
TRAINING = """
import os, socket, subprocess, sys, time
from pathlib import Path
from ldlm_callback import HealthCallback

rank = int(os.environ.get("RANK", 0))
if rank == 0:
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "RANK": "1"}
    words = [sys.executable, __file__, str(theirs.fileno())]
    other = subprocess.Popen(words, env=environment, pass_fds=[theirs.fileno()])
    theirs.close()
else:
    ours = socket.socket(fileno=int(sys.argv[1]))
with HealthCallback(out="saved/pair", rank=rank, world_size=2, gpu=False) as health:
    for step in range(1, 1000):
        ours.sendall(b"x")
        if not ours.recv(1):
            sys.exit(f"rank {rank} waits in step {step} for a rank that has left")
        loss = float("nan") if step > 35 else 5 - step / 100
        health.on_step(step, loss=loss)
        if rank == 0:
            print(f"step {step}/1000 loss {loss}", flush=True)
        stops = health.should_stop(step)
        if rank == 0 and (stops or step % 10 == 0):
            with health.phase("checkpoint"):
                Path(f"step_{step}.pt").touch()
        if stops:
            Path(f"stopped_{rank}").write_text(str(step))
            break
        time.sleep(0.1)
sys.exit(other.wait() if rank == 0 else 0)
"""


def test_two_ranks_save_and_stop_at_the_same_step_and_the_incident_says_that_we_asked(
    folder: Path,
) -> None:
    (folder / "train.py").write_text(TRAINING)
    (folder / "ldlm-monitor.toml").write_text("evaluation_interval = 1\n")
    flags = ("--on", "nan=stop", "--on", "crash=restart:2")
    code = subprocess.run([*RUN, *flags, "--", sys.executable, "train.py"], check=False).returncode
    (record,) = all_runs()
    log = Path(record.log).read_text()
    assert code == 0, log
    step = int((folder / "stopped_0").read_text())
    assert (folder / "stopped_1").read_text() == str(step)
    assert (folder / f"step_{step}.pt").exists()
    assert f"NonFiniteLoss, --on nan=stop: stop at step {step}" in log
    assert "SIGTERM" not in log
    assert "attempt 2" not in log
    until((record.folder / "report.txt").exists, seconds=90)
    done = subprocess.run(
        [*RUN[:3], "report", record.name, "-o", "report.json"], cwd=folder, check=False
    )
    assert done.returncode == 3
    (run,) = json.loads((folder / "report.json").read_text())["runs"]
    (incident,) = run["incidents"]
    said = f"stops at step {step} as ldlm-monitor run asked: NonFiniteLoss, --on nan=stop"
    assert said in {each["message"] for each in incident["symptoms"]}
    assert incident["root"]["kind"] == "nonfinite_metric"
    assert (run["state"], run["end_reason"]) == ("killed", "words")
    assert step in run["checkpoints"]
    decision = incident["decision"]
    assert (decision["decision"], decision["rollback_step"]) == ("ROLLBACK", 30)
