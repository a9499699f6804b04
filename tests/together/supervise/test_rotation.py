"""The kept log of a run is renamed by size, never truncated."""

import subprocess
import sys
from pathlib import Path

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.host.supervise.run_folder import all_runs
from ldlm_monitor.host.supervise.streams import RunLog
from ldlm_monitor.service.config import Settings
from tests.together.supervise.conftest import until

SMALL = """
import sys
from ldlm_monitor.host.supervise import launch
launch.ROTATE_BYTES = 2_000
from ldlm_monitor.service.cli import main
sys.exit(main(sys.argv[1:]))
"""
TRAINING = """
import time
for step in range(1, 201):
    print(f"step {step}/200 loss {5 - step / 100:.4f}", flush=True)
    time.sleep(0.01)
"""


def test_a_full_file_is_renamed_at_the_end_of_a_line_and_nothing_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    kept = RunLog(log, rotate_bytes=100)
    pieces = [f"line {number} ".encode() + b"x" * 30 for number in range(20)]
    for piece in pieces:
        kept.write(1, piece)  # no file ends within a line
        kept.write(1, b"\n")
    full = [tmp_path / f"train.log.{number}" for number in range(1, len([*tmp_path.iterdir()]))]
    files = [*full, log]
    assert len(files) > 3
    assert b"".join(each.read_bytes() for each in files) == b"".join(p + b"\n" for p in pieces)
    assert all(each.read_bytes().endswith(b"\n") for each in full)
    assert kept.lost == 0


def test_the_files_of_a_run_are_its_whole_output(folder: Path) -> None:
    (folder / "train.py").write_text(TRAINING)
    command = [sys.executable, "-c", SMALL, "run", "--log-dir", "logs", "--", sys.executable]
    done = subprocess.run([*command, "train.py"], capture_output=True, check=True, timeout=120)
    until(lambda: all(each.exit_code is not None for each in all_runs()))
    record = next(all_runs())
    files = record.files
    assert len(files) >= 3
    text = "".join(Path(each).read_text() for each in files)
    steps = [line for line in text.splitlines() if line.startswith("step ")]
    assert steps == done.stdout.decode().splitlines()
    (run,) = Replay(Settings(files=files, companions=False)).end().runs
    assert run.step == 200
