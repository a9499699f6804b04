"""Wheels of every locked package exist for the machines that docs/install.md names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
LOCK = Path(__file__).parents[3] / "requirements/run.txt"
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


def test_what_musl_has_no_wheel_of_is_installed_there_without_a_compiler(tmp_path: Path) -> None:
    """google-crc32c falls back to pure Python; of google-re2 there is no such form."""
    packages = re.findall(r"^(?:google-crc32c|watchdog)==\S+", LOCK.read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--no-binary=google-crc32c,watchdog", f"--wheel-dir={tmp_path}", *packages]
    environment = {**os.environ, "CC": "false", "CXX": "false"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-500:]
    made = {path.name.partition("-")[0] for path in tmp_path.glob("*-none-any.whl")}
    assert made == {"google_crc32c", "watchdog"}
