"""The one command for a machine with a GPU, on a machine that has none."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="a GPU is here")
def test_without_a_gpu_it_says_so_at_once_and_its_exit_code_is_no_success() -> None:
    command = ["sh", str(ROOT / "benchmarks/gpu/run.sh")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no GPU here: nvidia-smi lists none; nothing was run" in done.stderr
