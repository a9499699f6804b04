"""The fuzzer, for some seconds of every run, and for ten minutes of a long one."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fuzz_parse.py")


@pytest.mark.live
@pytest.mark.parametrize("seconds", [5, pytest.param(600, marks=pytest.mark.long)])
def test_no_input_raises_hangs_or_takes_memory_without_bound(tmp_path: Path, seconds: int) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: it has wheels for Linux on x86-64 only")
    command = [sys.executable, str(SCRIPT), "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--corpus", str(tmp_path / "corpus")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done " in done.stderr
    assert not [path.name for path in tmp_path.iterdir() if path.name != "corpus"]
