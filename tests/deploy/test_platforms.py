"""Wheels of every locked package exist for the machines that docs/install.md names."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
LOCK = Path(__file__).parents[2] / "requirements/run.txt"
PLATFORMS = {
    "Linux on arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "Linux on x86-64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "macOS on arm64": ("macosx_14_0_arm64",),
}


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("machine", PLATFORMS)
def test_nothing_has_to_be_compiled(machine: str, version: str, tmp_path: Path) -> None:
    """It asks the package index; nothing is installed."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
    command += [f"--platform={name}" for name in PLATFORMS[machine]]
    command += [f"--target={tmp_path}", f"--requirement={LOCK}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
